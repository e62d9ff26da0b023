"""What operators promise apart from values: that every declared form exists, errors, names of backward nodes, aliases, schemas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.ops.harness import Arr, bind, call
from tests.ops.test_eager import arguments, listed
from tests.ops.test_operators import ENGINE

import rushlight as torch
import rushlight._ops.families
from rushlight._ops.samples import samples_of
from rushlight._ops.table import OPERATORS
from rushlight._surface.registry import function_of

DECLARED = sorted(set(OPERATORS) - ENGINE)
PUBLIC = [key for key in DECLARED if OPERATORS[key].spaces or OPERATORS[key].method]


@pytest.mark.parametrize("key", PUBLIC)
def test_every_declared_form_exists(key: str) -> None:
    """In each space under each name, as a method and in place."""
    op = OPERATORS[key]
    for space in op.spaces:
        page = torch
        for word in space.split(".") if space != "torch" else ():
            page = getattr(page, word)
        names = [op.public.removeprefix(f"{space}_"), *(a for a in op.aliases if "." not in a)]
        names += [f"{op.public}_"] * (op.inplace and space in op.inplace_spaces)
        assert [n for n in names if not callable(getattr(page, n, None))] == [], f"missing in {space}"
    methods = [op.method if isinstance(op.method, str) else op.public] * bool(op.method) + [
        f"{op.public}_"
    ] * op.inplace
    assert [n for n in methods if not callable(getattr(torch.Tensor, n, None))] == [], "missing methods of Tensor"


@pytest.mark.parametrize("key", PUBLIC)
def test_every_operator_refuses_a_wrong_call_in_its_own_name(key: str) -> None:
    """Nothing given: the error names the operator and its first argument.  An unknown keyword: the error names that."""
    op, function = OPERATORS[key], function_of(key)
    needed = [a.name for a in op.schema.arguments if a.required]
    if needed:
        with pytest.raises(TypeError, match=op.public) as raised:
            function()
        assert needed[0] in str(raised.value)
    args, kwargs, _, _ = arguments(op, 0)
    with pytest.raises(TypeError, match="no_such_argument"):
        function(*args, **kwargs, no_such_argument=1)


@pytest.mark.parametrize("key", [key for key in DECLARED if not OPERATORS[key].underivable])
def test_a_recorded_call_has_the_declared_node(key: str) -> None:
    op = OPERATORS[key]
    for i in range(len(samples_of(op))):
        args, kwargs, leaves, bound = arguments(op, i, lower=False)
        for x in leaves:
            x.requires_grad_(x.dtype.is_floating_point or x.dtype.is_complex)
        try:
            made = listed(function_of(key)(*args, **kwargs))
        except RuntimeError as error:  # an argument by which there is no derivative
            assert "requires_grad" in str(error) or "not differentiable" in str(error)
            continue
        nodes = {type(x.grad_fn).__name__ for x in made if x.grad_fn is not None}
        if nodes:
            assert nodes == {op.node_name(bound.named)}
            return
    pytest.skip("records no node")


def zeros(*shape: int, dtype: str = "float32") -> Arr:
    return Arr(np.zeros(shape, dtype))


REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ("neg", (zeros(2, dtype="bool"),), {}, RuntimeError, "Negation"),
    ("sub", (zeros(2, dtype="bool"), zeros(2, dtype="bool")), {}, RuntimeError, "two bool tensors"),
    ("sub", (zeros(2, dtype="int64"), True), {}, RuntimeError, "with a bool tensor"),
    ("add", (zeros(2, dtype="int64"), zeros(2, dtype="int64")), {"alpha": 0.5}, RuntimeError, "integral input"),
    ("add", (zeros(2, 3), zeros(4)), {}, RuntimeError, "must match the size"),
    ("pow", (zeros(2, dtype="int64"), -1), {}, RuntimeError, "negative integer powers"),
    ("floor", (zeros(2, dtype="bool"),), {}, NotImplementedError, "not implemented for 'Bool'"),
    ("bitwise_and", (zeros(2), zeros(2)), {}, NotImplementedError, "not implemented for 'Float'"),
    ("addcdiv", (zeros(2), zeros(2, dtype="int64"), zeros(2, dtype="int64")), {}, RuntimeError, "Integer division"),
    ("clamp", (zeros(2),), {}, RuntimeError, "At least one of"),
    ("where", (zeros(2), zeros(2), zeros(2)), {}, RuntimeError, "boolean tensor"),
    ("mean", (zeros(2, dtype="int64"),), {}, RuntimeError, "floating point or complex"),
    ("amax", (zeros(0),), {}, RuntimeError, "numel"),
    ("amax", (zeros(2, 0), (1,)), {}, IndexError, "non-zero size"),
    ("argmax", (zeros(0),), {}, IndexError, "numel"),
    ("sum", (zeros(2, 3), (0, 0)), {}, RuntimeError, "appears multiple times"),
    ("sum", (zeros(2, 3), (2,)), {}, IndexError, "Dimension out of range"),
    ("softmax", (zeros(2, dtype="int64"), 0), {}, NotImplementedError, "not implemented for 'Long'"),
    ("layer_norm", (zeros(2, 3), (4,)), {}, RuntimeError, "normalized_shape"),
    ("group_norm", (zeros(2, 3), 2), {}, RuntimeError, "divisible"),
    ("cross_entropy", (zeros(2, 3), zeros(3, dtype="int64")), {}, ValueError, "batch_size"),
    ("mm", (zeros(2, 3), zeros(2, 3)), {}, RuntimeError, r"cannot be multiplied \(2x3 and 2x3\)"),
    ("mm", (zeros(2, 3), zeros(3, 2, dtype="float64")), {}, RuntimeError, "same dtype"),
    ("linear", (zeros(2, 3), zeros(4, 5)), {}, RuntimeError, r"cannot be multiplied \(2x3 and 5x4\)"),
    ("einsum_core", ("ij,jk", [zeros(2, 3)]), {}, RuntimeError, "fewer operands"),
    ("view", (zeros(2, 3), (4,)), {}, RuntimeError, "invalid for input of size 6"),
    ("expand", (zeros(2, 3), (2, 4)), {}, RuntimeError, "must match the existing size"),
    ("permute", (zeros(2, 3), (0,)), {}, RuntimeError, "does not match the length"),
    ("t", (zeros(1, 2, 3),), {}, RuntimeError, "<= 2 dimensions"),
    ("select", (zeros(2), 0, 2), {}, IndexError, "out of range"),
    ("narrow", (zeros(4), 0, 2, 3), {}, RuntimeError, "exceeds dimension size"),
    ("split", (zeros(4), (1, 2)), {}, RuntimeError, "sum exactly"),
    ("cat", ([zeros(2, 3), zeros(2, 4)],), {}, RuntimeError, "Sizes of tensors must match"),
    ("stack", ([zeros(2), zeros(3)],), {}, RuntimeError, "equal size"),
    ("pad", (zeros(1, 2, 3), (3, 0), "reflect"), {}, RuntimeError, "less than the corresponding"),
    ("gather", (zeros(2, 3), 0, zeros(2)), {}, RuntimeError, "Expected dtype"),
    ("embedding", (zeros(2), zeros(3, 4)), {}, RuntimeError, "Long, Int"),
    ("topk", (zeros(3), 4), {}, RuntimeError, "out of range"),
    ("conv2d", (zeros(1, 3, 4, 4), zeros(2, 4, 3, 3)), {}, RuntimeError, "channels"),
    ("conv2d", (zeros(1, 3, 2, 2), zeros(2, 3, 3, 3)), {}, RuntimeError, "Kernel size can't be greater"),
    ("max_pool2d_values", (zeros(1, 1, 4, 4), 2, 2, 2), {}, RuntimeError, "half of"),
    ("avg_pool2d", (zeros(1, 1, 4, 4), 2), {"divisor_override": 0}, RuntimeError, "not zero"),
    ("sdpa_core", (zeros(2, 3), zeros(2, 3), zeros(2, 3), zeros(2, 2), True), {}, RuntimeError, "is_causal"),
]


@pytest.mark.parametrize(
    ("key", "args", "kwargs", "error", "words"), REFUSED, ids=[f"{r[0]}-{i}" for i, r in enumerate(REFUSED)]
)
def test_refuses_as_pytorch(key: str, args: Any, kwargs: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(OPERATORS[key], *args, **kwargs)


NODES = [
    ("sum", (zeros(2),), "SumBackward0"),
    ("sum", (zeros(2), (0,)), "SumBackward1"),
    ("mean", (zeros(2), (0,)), "MeanBackward1"),
    ("mul", (zeros(2), 2.0), "MulBackward0"),
    ("pow", (zeros(2), 2), "PowBackward0"),
    ("pow", (zeros(2), zeros(2)), "PowBackward1"),
    ("float_power", (zeros(2), 2), "PowBackward0"),
    ("float_power", (zeros(2), zeros(2)), "PowBackward1"),
    ("float_power", (2, zeros(2)), "PowBackward2"),
    ("matmul", (zeros(2), zeros(2)), "DotBackward0"),
    ("matmul", (zeros(2, 2), zeros(2, 2)), "MmBackward0"),
    ("linear", (zeros(1, 2), zeros(3, 2), zeros(3)), "AddmmBackward0"),
    ("layer_norm", (zeros(2), (2,)), "NativeLayerNormBackward0"),
    ("log_softmax", (zeros(2), 0), "LogSoftmaxBackward0"),
    ("nll_loss", (zeros(1, 2), zeros(1, dtype="int64")), "NllLossBackward0"),
    ("cross_entropy", (zeros(1, 2, 3), zeros(1, 3, dtype="int64")), "NllLoss2DBackward0"),
    ("conv2d", (zeros(1, 1, 2, 2), zeros(1, 1, 1, 1)), "ConvolutionBackward0"),
    ("embedding", (zeros(1, dtype="int64"), zeros(2, 2)), "EmbeddingBackward0"),
    ("lerp", (zeros(2), zeros(2), 0.5), "LerpBackward0"),
    ("lerp", (zeros(2), zeros(2), zeros(2)), "LerpBackward1"),
]


@pytest.mark.parametrize(("key", "args", "name"), NODES, ids=[f"{n[0]}-{n[2]}" for n in NODES])
def test_backward_nodes_have_pytorchs_names(key: str, args: Any, name: str) -> None:
    op = OPERATORS[key]
    assert op.node_name(bind(op, args).named) == name


def test_nan_goes_where_pytorch_lets_it() -> None:
    nan = float("nan")
    x, y = Arr(np.array([nan, 1.0, 2.0])), Arr(np.array([1.0, nan, 1.0]))
    assert np.isnan(call(OPERATORS["maximum"], x, y)[0].array[:2]).all()
    np.testing.assert_array_equal(call(OPERATORS["fmax"], x, y)[0].array, [1.0, 1.0, 2.0])
    assert np.isnan(call(OPERATORS["relu"], x)[0].array[0])
    assert np.isnan(call(OPERATORS["clamp"], x, 0.0, 1.0)[0].array[0])
    assert call(OPERATORS["argmax"], x)[0].array == 0
    assert np.isnan(call(OPERATORS["amax"], x)[0].array)
    assert call(OPERATORS["nansum"], x)[0].array == 3.0


def test_half_types_are_summed_in_single_precision() -> None:
    ones = Arr(np.ones(4096, "float16"))
    total = call(OPERATORS["sum"], ones)[0]
    assert total.dtype.name == "float16" and total.array == 4096.0


def test_cross_entropy_rejects_a_class_that_does_not_exist() -> None:
    for wrong in (3, -1):
        with pytest.raises(IndexError):
            call(OPERATORS["cross_entropy"], zeros(1, 3), Arr(np.array([wrong])))


def test_no_two_operators_share_a_public_place() -> None:
    places: dict[tuple[str, str], str] = {}
    for key, op in OPERATORS.items():
        for space in op.spaces:
            for name in (op.schema.name, *(a for a in op.aliases if "." not in a)):
                assert places.setdefault((space, name), key) == key, (
                    f"{key} and {places[space, name]} are both {space}.{name}"
                )
