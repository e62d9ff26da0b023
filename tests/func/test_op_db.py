"""PyTorch's samples of every operator under transforms: batches against PyTorch's, tangents against PyTorch's, both modes and second derivatives
against each other and against differences.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

oracle = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # PyTorch's sample inputs need it

from tests.func.op_samples import Sample, close, first_sample, infos, to_array, to_mine  # noqa: E402

import rushlight  # noqa: E402
from rushlight.func import jvp, vjp, vmap  # noqa: E402

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]

INFOS = {f"{i.name}.{i.variant_test_name}" if i.variant_test_name else i.name: i for i in infos()}

# PyTorch pushes tangents otherwise there: as if a matrix moved with its transpose (Cholesky), through what shape and statistics do not tell, with
# values at places that are written twice, or with a gradient that is no slope.
OTHER_TANGENTS = frozenset((
    "linalg.cholesky", "linalg.cholesky_ex", "cholesky", "triangular_solve", "native_batch_norm", "nn.functional.max_unpool1d",
    "nn.functional.max_unpool2d", "nn.functional.max_unpool3d", "nn.functional.max_unpool1d.grad", "nn.functional.max_unpool2d.grad",
    "nn.functional.max_unpool3d.grad", "logcumsumexp", "native_layer_norm",
))  # fmt: skip
# Corners, steps, results of few digits, reads beyond the tensor, and gradients that are scaled by intent or (ctc_loss) of normalised probabilities
# alone: there is no slope to compare with.
NO_SLOPES = frozenset((
    "linalg.norm.subgradients_at_zero", "as_strided_scatter", "nextafter", "nn.functional.embedding", "floor_divide", "div.floor_rounding",
    "div.trunc_rounding", "nn.functional.gaussian_nll_loss", "linalg.eig", "linalg.eigvals", "linalg.svd", "svd", "linalg.eigh", "linalg.lu",
    "linalg.qr", "qr", "geqrf", "lu", "ormqr", "linalg.householder_product", "nn.functional.hardtanh", "cholesky", "linalg.cholesky",
    "linalg.cholesky_ex", "linalg.eigvalsh", "linalg.pinv.hermitian", "native_batch_norm", "nn.functional.max_unpool3d",
    "nn.functional.cosine_embedding_loss", "nn.functional.hinge_embedding_loss", "zero_", "native_layer_norm",
    "float", "half", "bfloat16", "cfloat", "chalf", "nn.functional.ctc_loss",
))  # fmt: skip
# Functions of ours whose backward cannot be differentiated.
ONCE = frozenset(("nn.functional.linear_cross_entropy.chunked", "nn.functional.linear_cross_entropy.chunked_none"))
# Labels are read as Python numbers: a batch of targets is refused, where PyTorch calls once for each item.
READ_TARGETS = frozenset(("nn.functional.ctc_loss",))
# Calls without tensors: nothing to batch.
WITHOUT_TENSORS = frozenset((
    "arange", "broadcast_shapes", "eye", "full", "linspace", "logspace", "ones", "scalar_tensor", "tril_indices", "triu_indices", "zeros",
    *(f"signal.windows.{window}" for window in ("bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming",
                                                "hamming", "hann", "kaiser", "nuttall")),
))  # fmt: skip

# Arguments, by their places among the tensors, that have no derivative.
CONSTANTS = {"nn.functional.batch_norm": (1, 2), "nn.functional.soft_margin_loss": (1,)}


def two_items(t: Any) -> Any:
    return oracle.stack([t, t.flip(0) if t.dim() else t])


@functools.cache
def found_first(name: str, dtype: Any) -> Sample | None:
    return first_sample(INFOS[name], dtype)


def first(name: str, dtype: Any) -> Sample:
    sample = found_first(name, dtype)
    if sample is None:
        assert name in WITHOUT_TENSORS, "PyTorch takes none of its own samples"
        pytest.skip("takes no tensors")
    return sample


@pytest.mark.parametrize("name", sorted(INFOS))
def test_batches_as_pytorch(name: str) -> None:
    """The result of `vmap` is PyTorch's, wherever PyTorch has one."""
    kinds = INFOS[name].supported_dtypes("cpu")
    sample = first(
        name, next(kind for kind in (oracle.float64, oracle.int64, oracle.complex128, oracle.float32) if kind in kinds)
    )
    count = len(sample.tensors)
    for mask in ([True] * count, [k == 0 for k in range(count)])[: 2 if count > 1 else 1]:
        dims = tuple(0 if m else None for m in mask)
        given = [two_items(t) if m else t for t, m in zip(sample.tensors, mask, strict=True)]
        try:
            want = oracle.func.vmap(lambda *a: tuple(sample.call(oracle, list(a))), in_dims=dims)(*given)
        except Exception:  # PyTorch does not batch it
            continue
        batched = vmap(lambda *a: tuple(sample.call(rushlight, list(a))), in_dims=dims)
        if name in READ_TARGETS and all(mask):
            with pytest.raises(RuntimeError, match="doesn't have storage"):
                batched(*map(to_mine, given))
            continue
        got = batched(*map(to_mine, given))
        assert all(close(g, w) for g, w in zip(got, want, strict=True)), f"in_dims={dims}"


def pieces(sample: Sample, constants: tuple[int, ...] = ()) -> tuple[list[int], Any]:
    """The float tensors among the arguments but for `constants`, and the function of them that gives the float results."""
    floats = [
        k for k, t in enumerate(sample.tensors) if (t.is_floating_point() or t.is_complex()) and k not in constants
    ]

    def function(*values: Any) -> Any:
        lib = rushlight if isinstance(values[0], rushlight.Tensor) else oracle
        whole = [to_mine(t) if lib is rushlight else t for t in sample.tensors]
        for k, v in zip(floats, values, strict=True):
            whole[k] = v
        return tuple(
            r
            for r in sample.call(lib, whole)
            if isinstance(r, lib.Tensor) and (r.is_floating_point() or r.is_complex())
        )

    return floats, function


def direction(t: Any, seed: int) -> Any:
    return oracle.randn(t.shape, dtype=t.dtype, generator=oracle.Generator().manual_seed(seed))


def array(x: Any) -> Any:
    return to_array(x) if isinstance(x, rushlight.Tensor) else np.asarray(x)


def inner(a: Any, b: Any) -> float:
    return float(sum(np.real(np.vdot(array(x), array(y))) for x, y in zip(a, b, strict=True)))


DIFFERENTIABLE = sorted(n for n, i in INFOS.items() if i.supports_autograd)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives(name: str, dtype: str) -> None:
    """Forward mode is PyTorch's and the transpose of reverse mode; both are slopes; the second derivative is the slope of the first."""
    info = INFOS[name]
    kind = getattr(oracle, dtype)
    if kind not in info.supported_dtypes("cpu"):
        pytest.skip(f"PyTorch takes no {dtype}")
    if dtype == "complex128" and kind not in info.supported_backward_dtypes("cpu"):
        pytest.skip("PyTorch has no complex gradient")
    sample = first(name, kind)
    floats, function = pieces(sample, CONSTANTS.get(name, ()))
    if not floats or name == "zero_":
        pytest.skip("nothing to differentiate")
    points, moves = [sample.tensors[k] for k in floats], [direction(sample.tensors[k], k) for k in floats]
    mine, my_moves = [to_mine(t) for t in points], [to_mine(t) for t in moves]
    values, tangents = jvp(function, tuple(mine), tuple(my_moves))
    if not values:
        pytest.skip("no float results")
    if info.supports_forward_ad and name not in OTHER_TANGENTS:
        theirs = pytorch_tangents(function, points, moves)
        assert theirs is None or all(close(g, w) for g, w in zip(tangents, theirs, strict=True)), "forward mode"
    if name in NO_SLOPES:
        return
    weights = [to_mine(direction(oracle.from_numpy(array(v)), 50 + j)) for j, v in enumerate(values)]
    slope = inner(weights, difference(function, mine, my_moves))
    if np.isnan(slope):
        return
    assert inner(weights, tangents) == pytest.approx(slope, rel=1e-4, abs=1e-4), "forward mode against differences"
    grads = vjp(function, *mine)[1](tuple(weights))
    assert inner(grads, my_moves) == pytest.approx(inner(weights, tangents), rel=1e-6, abs=1e-7), "duality"
    if (
        not info.supports_gradgrad or name in ONCE or dtype == "complex128"
    ):  # `tests/ops/test_derivatives.py` has the complex ones
        return

    def gradient(*at: Any) -> Any:
        return vjp(function, *at)[1](tuple(weights))

    second = jvp(gradient, tuple(mine), tuple(my_moves))[1]
    assert inner(my_moves, second) == pytest.approx(
        inner(my_moves, difference(gradient, mine, my_moves)), rel=1e-3, abs=1e-3
    ), "second derivative"


def pytorch_tangents(function: Any, points: Any, moves: Any) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return oracle.func.jvp(function, tuple(points), tuple(moves))[1]
    except Exception:
        return None


def difference(function: Any, points: Any, moves: Any) -> list[Any]:
    """Central differences along `moves`, by NumPy: the arithmetic around the function would need plans of its own for every shape."""
    step = 1e-6
    ends = []
    for side in (step, -step):
        moved = [
            rushlight.from_numpy(np.asarray(array(p) + side * array(m))) for p, m in zip(points, moves, strict=True)
        ]
        ends.append([array(r) for r in function(*moved)])
    return [(a - b) / (2 * step) for a, b in zip(*ends, strict=True)]


def test_most_of_the_database_is_here() -> None:
    assert len(INFOS) > 500 and len(DIFFERENTIABLE) > 380
