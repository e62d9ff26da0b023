"""The operator table through the engine: generated kernels against the reference, and every other form against the function.

Whatever is declared is tested here: values on any strides, `meta`, method, in-place and `out=` forms, gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.ops.harness import Arr, Bound, gradients
from tests.ops.test_operators import CASES, ENGINE, bound_call, drawn, each_call, results

import rushlight as torch
from rushlight._engine.core.convert import numpy_of
from rushlight._engine.dispatch.lower import Slot
from rushlight._ops.samples import samples_of
from rushlight._ops.table import OPERATORS, Operator
from rushlight._surface.registry import function_of

RUN = [(key, i) for key, i in CASES if key not in ENGINE]


def tensor(x: Arr, strided: bool = False) -> Any:
    """A tensor with the elements of `x`; with `strided`, every other element of a larger one."""
    made = torch.from_numpy(np.array(x.array))
    if not strided or not made.dim():
        return made
    wide = torch.zeros(*made.shape[:-1], 2 * made.shape[-1] + 1, dtype=made.dtype)
    view = wide[..., 1::2]
    view.copy_(made)
    return view


def arguments(
    op: Operator, i: int, lower: bool = True, **how: Any
) -> tuple[list[Any], dict[str, Any], list[Any], Bound]:
    """Positional and keyword arguments of a sample as tensors; the tensors among them; the same for the reference."""
    call = samples_of(op)[i]
    rng = np.random.default_rng(7)
    leaves: list[Any] = []

    def convert(value: Any) -> Any:
        if isinstance(value, Arr):
            leaves.append(tensor(value, **how))
            return leaves[-1]
        return [convert(v) for v in value] if isinstance(value, list) else value

    args = [convert(drawn(a, rng, lower)) for a in call.args]
    kwargs = {k: convert(drawn(v, rng, lower)) for k, v in call.kwargs.items()}
    return args, kwargs, leaves, bound_call(op, call, lower)


def listed(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (tuple, list)) else [made]


def same(made: Any, expected: list[Arr], key: str, rtol: float = 2e-5) -> None:
    found = listed(made)
    assert len(found) == len(expected) >= 1
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype is theirs.dtype and tuple(mine.shape) == theirs.array.shape
        np.testing.assert_allclose(
            numpy_of(mine, force=True), theirs.array, rtol=rtol, atol=1e-5, equal_nan=True, err_msg=key
        )


@each_call(RUN)
def test_kernels_compute_what_the_reference_defines(key: str, i: int) -> None:
    op = OPERATORS[key]
    for strided in (False, True) if key != "view" else (False,):  # it refuses what strides cannot express
        args, kwargs, _, bound = arguments(op, i, strided=strided)
        same(function_of(key)(*args, **kwargs), results(op, bound), key)


@each_call(RUN)
def test_meta_knows_shapes_dtypes_and_strides(key: str, i: int) -> None:
    op = OPERATORS[key]
    args, kwargs, leaves, _ = arguments(op, i)
    if not leaves:
        pytest.skip("takes no tensors")
    where = {id(x): x.to("meta") for x in leaves}

    def moved(value: Any) -> Any:
        return [moved(v) for v in value] if isinstance(value, list) else where.get(id(value), value)

    real = listed(function_of(key)(*args, **kwargs))
    meta = listed(function_of(key)(*map(moved, args), **{k: moved(v) for k, v in kwargs.items()}))
    for r, m in zip(real, meta, strict=True):
        assert m.is_meta and (m.dtype, m.shape, m.stride()) == (r.dtype, r.shape, r.stride())


@each_call(RUN)
def test_method_inplace_and_out_agree_with_the_function(key: str, i: int) -> None:
    op = OPERATORS[key]
    args, kwargs, _, _ = arguments(op, i)
    expected = listed(function_of(key)(*args, **kwargs))
    first = args[0] if args and isinstance(args[0], torch.Tensor) else None
    name = op.schema.name
    if "torch" in op.spaces and op.method is True and first is not None and op.name == name:
        for mine, theirs in zip(listed(getattr(first, name)(*args[1:], **kwargs)), expected, strict=True):
            np.testing.assert_array_equal(numpy_of(mine, force=True), numpy_of(theirs, force=True))
    alone = len(expected) == 1
    if op.inplace and op.name == name and first is not None and alone:
        fits = expected[0].shape == first.shape and expected[0].dtype is first.dtype
        if fits and hasattr(first, name + "_"):
            target = first.clone()
            made = getattr(target, name + "_")(*args[1:], **kwargs)
            assert made is target and target._version > 0
            np.testing.assert_array_equal(numpy_of(target), numpy_of(expected[0], force=True))
    if op.out and alone and (op.out != "dim" or len(args) > 1 or "dim" in kwargs):
        out = torch.empty_like(expected[0])
        assert function_of(key)(*args, **kwargs, out=out) is out
        np.testing.assert_array_equal(numpy_of(out), numpy_of(expected[0], force=True))


def names_of_tensors(op: Operator, bound: Bound) -> list[str]:
    """Which argument each tensor is, or is part of."""
    found: list[str] = []
    for argument, item in zip(op.schema.arguments, bound.template, strict=True):
        if isinstance(item, Slot) and item.kind in ("tensor", "list"):
            found += [argument.name] * item.count
    return found


@each_call(RUN)
def test_backward_through_kernels(key: str, i: int) -> None:
    op = OPERATORS[key]
    args, kwargs, leaves, bound = arguments(op, i, lower=False)
    refused = [k for k, name in enumerate(names_of_tensors(op, bound)) if name in op.constants]
    wrt = [k for k, x in enumerate(bound.tensors) if x.dtype.is_floating_point and k not in refused]
    if not wrt or len(leaves) != len(bound.tensors):
        pytest.skip("nothing to differentiate")
    rng = np.random.default_rng(3)
    reference = results(op, bound)
    cts = [Arr(rng.standard_normal(r.array.shape), r.dtype) if r.dtype.is_floating_point else None for r in reference]
    try:
        wanted = gradients(op, bound, wrt, cts)
    except NotImplementedError:
        pytest.skip("declared not differentiable")
    for k in wrt:
        leaves[k].requires_grad_()
    outs = listed(function_of(key)(*args, **kwargs))
    pairs = [(o, tensor(c)) for o, c in zip(outs, cts, strict=True) if c is not None and o.requires_grad]
    if not pairs:
        pytest.skip("nothing to differentiate")
    found = torch.autograd.grad(
        [o for o, _ in pairs], [leaves[k] for k in wrt], [c for _, c in pairs], allow_unused=True
    )
    for mine, theirs in zip(found, wanted, strict=True):
        if mine is None or theirs is None:
            assert theirs is None or not np.any(theirs.array), key
            continue
        np.testing.assert_allclose(
            numpy_of(mine, force=True), theirs.array, rtol=1e-7, atol=1e-9, equal_nan=True, err_msg=key
        )


def test_weights_of_covariances():
    x = np.array([[0.5, 2.0, -1.0], [3.0, 1.0, 4.0]])
    counts, shares = np.array([1, 2, 1]), np.array([0.1, 0.2, 0.4])
    found = torch.cov(torch.tensor(x), fweights=torch.tensor(counts), aweights=torch.tensor(shares))
    np.testing.assert_allclose(found.numpy(), np.cov(x, fweights=counts, aweights=shares))
    for weights in ({"fweights": torch.zeros(3, dtype=torch.int64)}, {"aweights": torch.zeros(3)}):
        with pytest.raises(RuntimeError, match="sum to zero"):
            torch.cov(torch.tensor(x), **weights)
    for _ in range(2):
        with pytest.warns(UserWarning, match="degrees of freedom"):
            assert torch.cov(torch.tensor(x), correction=4).isinf().all()


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("bad", [-1, 3, -(1 << 31)])
@pytest.mark.parametrize(
    "name", ["gather", "scatter", "scatter_add", "scatter_reduce", "index_select", "index_add", "index_copy"]
)
def test_places_do_not_count_from_the_end(name: str, bad: int, dtype: str) -> None:
    if name == "index_copy" and dtype == "int32":
        pytest.skip("takes int64 alone")
    x, index = torch.zeros(3), torch.tensor([0, bad], dtype=getattr(torch, dtype))
    more = () if name in ("gather", "index_select") else (torch.ones(2),)
    extra = ("sum",) if name == "scatter_reduce" else ()
    with pytest.raises((IndexError, RuntimeError), match=f"index {bad} is out of bounds for dimension 0 with size 3"):
        getattr(torch, name)(x, 0, index, *more, *extra)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_whole_numbers_are_divided_downward_to_the_last_one(dtype: str) -> None:
    info, rng = np.iinfo(dtype), np.random.default_rng(11)
    edges = np.array(
        [info.min, info.min + 1, 1, 2, 3, 7, info.max - 1, info.max, *((-1, -2, -7) if info.min else ())], dtype
    )
    x, y = (a.ravel() for a in np.meshgrid(np.append(edges, edges.dtype.type(0)), edges[edges != 0]))
    some, others = (rng.integers(info.min, info.max, 300, dtype=dtype, endpoint=True) for _ in range(2))
    x, y = np.concatenate([x, some]), np.concatenate([y, np.where(others == 0, 1, others).astype(dtype)])
    unsigned = [int(a) // int(b) % 2 ** (8 * info.dtype.itemsize) for a, b in zip(x, y, strict=True)]
    expected = np.array(unsigned, f"uint{8 * info.dtype.itemsize}").view(dtype)
    np.testing.assert_array_equal(torch.floor_divide(torch.from_numpy(x), torch.from_numpy(y)).numpy(), expected)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        torch.floor_divide(torch.from_numpy(x), torch.zeros(x.size, dtype=torch.from_numpy(x).dtype))


@pytest.mark.parametrize("exponent", [True, False])
def test_a_bool_to_the_power_of_a_bool_is_a_bool(exponent: bool) -> None:
    x = np.array([True, False])
    found = torch.from_numpy(x) ** exponent
    assert found.dtype is torch.bool
    np.testing.assert_array_equal(found.numpy(), x if exponent else [True, True])


def test_many_blocks_along_a_diagonal() -> None:
    blocks = [torch.full((1 + i % 2, i % 3), float(i), requires_grad=True) for i in range(300)]
    given = [*blocks, torch.tensor(7.0, dtype=torch.float64), torch.arange(3)]
    made = torch.block_diag(*given)
    width = sum(b.shape[1] for b in blocks) + 4
    expected, row, column = np.zeros((made.shape[0], width), np.float32), 0, 0
    for each in given:
        block = np.atleast_2d(each.detach().numpy())
        expected[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    assert made.dtype is torch.float32 and row == made.shape[0]
    assert np.array_equal(made.detach().numpy(), expected)
    (made * 2).sum().backward()
    assert all(torch.equal(b.grad, torch.full_like(b, 2.0)) for b in blocks if b.numel())
    with pytest.raises(RuntimeError, match="Input 301 has 3 dimensions"):
        torch.block_diag(*given[:-1], torch.ones(1, 1, 1), torch.ones(1, 1, 1))
