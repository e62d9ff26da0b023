"""Tests that iterate over the operator table: values in two precisions, gradients against differences, what each row declares.

They run on the primitives' NumPy references, so a failure here is a fault of an operator's body or rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from tests.ops.harness import CPU, Arr, Bound, bind, gradients, run_graph
from tests.rows import each_row

import rushlight._ops.families
import rushlight._ops.samples.arrays
import rushlight._ops.samples.numbers  # noqa: F401
from rushlight._base.errors import NotDifferentiableError
from rushlight._engine.dispatch.lower import TENSOR, differentiate_graph, trace_operator
from rushlight._ops.dtypes import REFUSED
from rushlight._ops.samples import Call, Draw, samples_of
from rushlight._ops.table import OPERATORS, Operator
from rushlight._prims.record import not_differentiable
from rushlight._types.dtype import BY_NAME, COMPLEX64, COMPLEX128, FLOAT32, FLOAT64
from rushlight._types.spec import Spec

# Copies and casts of the engine itself: they are tested with it.
ENGINE = {"clone_core", "clone_contiguous", "clone_channels_last", "reshape_copy", "to_dtype", "copy", "fill", "zero"}
CASES = [(key, i) for key, op in OPERATORS.items() for i in range(len(samples_of(op)))]


def each_call(cases: Iterable[tuple[str, int]]) -> Callable[[Any], Any]:
    """Runs a test with each of the samples; those of one operator are one test."""
    return each_row((key, f"{key}-{i}", (key, i)) for key, i in cases)


LOWER = {FLOAT64: FLOAT32, COMPLEX128: COMPLEX64}


def drawn(value: Any, rng: Any, lower: bool = False) -> Any:
    """Arguments with tensors in place of draws."""
    if isinstance(value, Draw):
        dtype = LOWER.get(value.dtype, value.dtype) if lower else value.dtype
        return Arr(value.array(rng).astype(dtype.numpy_name), dtype)
    if isinstance(value, list):
        return [drawn(v, rng, lower) for v in value]
    return LOWER.get(value, value) if lower and value in (FLOAT64, COMPLEX128) else value


def bound_call(op: Operator, call: Call, lower: bool = False) -> Bound:
    rng = np.random.default_rng(7)
    return bind(
        op, [drawn(a, rng, lower) for a in call.args], {k: drawn(v, rng, lower) for k, v in call.kwargs.items()}
    )


def results(op: Operator, bound: Bound) -> list[Arr]:
    graph, count = trace_operator(op, bound.template, bound.specs)
    assert count == len(graph.outputs)
    return [Arr(a, v.dtype) for a, v in zip(run_graph(graph, bound.inputs()), graph.outputs, strict=True)]


@pytest.mark.parametrize("key", sorted(set(OPERATORS) - ENGINE))
def test_every_operator_has_samples_and_a_text(key: str) -> None:
    op = OPERATORS[key]
    assert samples_of(op), f"{key} has no samples"
    assert op.doc and op.doc.strip().endswith((".", ")", ",")), f"{key} does not say what it does"


@each_call(CASES)
def test_single_precision_follows_double(key: str, i: int) -> None:
    """The same call in float64 and float32: dtypes as declared, values close."""
    op = OPERATORS[key]
    call = samples_of(op)[i]
    double, single = (results(op, bound_call(op, call, lower)) for lower in (False, True))
    for d, s in zip(double, single, strict=True):
        assert s.array.shape == d.array.shape
        if key == "float_power":
            assert s.dtype is d.dtype is FLOAT64
            continue
        assert s.dtype in (LOWER.get(d.dtype), d.dtype)
        if key in ("nextafter", "nan_to_num"):  # what they give depends on the dtype
            continue
        np.testing.assert_allclose(s.array, d.array, rtol=2e-4, atol=2e-5, equal_nan=True)


def weighted_sum(op: Operator, bound: Bound, weights: list[Any]) -> float:
    found = results(op, bound)
    return float(sum((np.conj(w) * r.array).real.sum() for w, r in zip(weights, found, strict=True) if w is not None))


def float_results(op: Operator, bound: Bound) -> list[Arr]:
    return [r for r in results(op, bound) if r.dtype.kind in "fc"]


def weights_for(found: list[Arr]) -> list[Any]:
    rng = np.random.default_rng(3)
    made = []
    for r in found:
        if r.dtype.kind not in "fc":
            made.append(None)
            continue
        w = rng.uniform(-1, 1, r.array.shape)
        made.append((w + 1j * rng.uniform(-1, 1, r.array.shape) if r.dtype.is_complex else w).astype(r.array.dtype))
    return made


# Their further results are for the running statistics and carry no gradient; values at a corner; steps between neighbours.
STATISTICS = {"batch_norm_train", "instance_norm_core"}
NOT_SMOOTH = {"nextafter", "gaussian_nll_loss"}
# The padding row gets no gradient, gradients may be scaled by how often a row is used, and as_strided_scatter has PyTorch's choice; a Cholesky
# factor's gradient is not cut to the triangle that is read (nor real on the diagonal), nor that of a pseudo-inverse made Hermitian, as in PyTorch:
# no slopes, by intent.  Fake quantization passes the gradient straight through its steps.
NOT_SLOPES = {
    ("embedding", 1), ("embedding", 2), ("as_strided_scatter_core", 0), ("cholesky_solve", 0), ("cholesky_solve", 1), ("cholesky_inverse", 0),
    ("cholesky_inverse", 1), ("linalg_pinv_core", 2), ("linalg_cholesky_ex", 2), ("cholesky_core", 1),
    *(("fake_quantize_per_tensor_affine", i) for i in range(3)), ("fake_quantize_per_channel_affine", 0),
}  # fmt: skip


# Samples whose derivative does not exist, or of which no closed form is known: that it is refused is what these assert.
UNDERIVABLE = {
    ("linalg_qr", 3), ("geqrf", 0), ("geqrf", 1), ("geqrf", 2), ("special_zeta", 0), ("special_hermite_polynomial_h", 0), ("special_hermite_polynomial_he", 0),
    ("special_laguerre_polynomial_l", 0), ("special_legendre_polynomial_p", 0), ("igamma", 0), ("igammac", 0), ("paged_attention", 0),
}  # fmt: skip


@each_call(CASES)
def test_gradient_is_the_slope(key: str, i: int) -> None:
    """The gradient times a direction is how fast the results change in that direction."""
    op = OPERATORS[key]
    bound = bound_call(op, samples_of(op)[i])
    wrt = [k for k, t in enumerate(bound.tensors) if t.dtype.kind in "fc" and t.dtype.name in ("float64", "complex128")]
    found = results(op, bound)
    if (
        op.underivable
        or key in NOT_SMOOTH
        or (key, i) in NOT_SLOPES
        or not wrt
        or all(r.dtype.kind not in "fc" for r in found)
        or any(np.isnan(t.array).any() for t in bound.tensors)
    ):
        pytest.skip("nothing to differentiate")
    weights = weights_for(found)
    if key in STATISTICS:
        weights[1:] = [None] * (len(weights) - 1)
    try:
        grads = gradients(op, bound, wrt, [None if w is None else Arr(w) for w in weights])
    except NotDifferentiableError as error:
        assert (key, i) in UNDERIVABLE, error
        pytest.skip(str(error))
    assert (key, i) not in UNDERIVABLE
    rng = np.random.default_rng(5)
    for k, grad in zip(wrt, grads, strict=True):
        tensor = bound.tensors[k]
        direction = rng.uniform(-1, 1, tensor.array.shape).astype(tensor.array.dtype)
        if tensor.dtype.is_complex:
            direction = direction + 1j * rng.uniform(-1, 1, tensor.array.shape)
        slope = 0.0 if grad is None else float((np.conj(grad.array) * direction).real.sum())
        if grad is None and not differentiable_in(op, k, bound):
            continue
        step, held = 1e-6, tensor.array
        ends = []
        for side in (1, -1):
            tensor.array = np.asarray(held + side * step * direction)
            ends.append(weighted_sum(op, bound, weights))
        tensor.array = held
        measured = (ends[0] - ends[1]) / (2 * step)
        assert math.isclose(slope, measured, rel_tol=2e-5, abs_tol=2e-6), (
            f"input {k}: gradient {slope}, measured {measured}"
        )


def differentiable_in(op: Operator, k: int, bound: Bound) -> bool:
    """PyTorch gives no gradient to class weights, targets of some losses, running statistics and such: the rule says None."""
    return op.gradient_rule is None


# Where the derived gradient is not finite, or is another choice at a tie, the hand-written one is what counts.
RULED = [(key, i) for key, i in CASES if OPERATORS[key].gradient_rule is not None]


@each_call(RULED)
def test_hand_written_gradient_agrees_with_the_derived(key: str, i: int) -> None:
    op = OPERATORS[key]
    bound = bound_call(op, samples_of(op)[i])
    wrt = [k for k, t in enumerate(bound.tensors) if t.dtype.kind in "fc"]
    found = results(op, bound)
    weights = weights_for(found)
    if key in STATISTICS:
        weights[1:] = [None] * (len(weights) - 1)
    cts = [None if w is None else Arr(w) for w in weights]
    if not wrt or all(c is None for c in cts) or (key, i) in NOT_SLOPES:
        pytest.skip("nothing to differentiate")
    graph, count = trace_operator(op, bound.template, bound.specs)
    if any(isinstance(node.prim.vjp, not_differentiable) for node in graph.nodes if node.outputs[0].dtype.kind in "fc"):
        pytest.skip("made of steps")
    derived = differentiate_graph(graph, count, wrt, [c is not None for c in cts])
    inputs = bound.inputs()
    values = run_graph(derived.forward, inputs)
    held = {"input": inputs, "output": values, "residual": values[count:]}
    saved = [held[where][j] for where, j in derived.saved]
    outs = run_graph(derived.graph, saved + [c.array for c in cts if c is not None])
    try:
        written = gradients(op, bound, wrt, cts)
    except NotDifferentiableError as error:  # the rule refuses what PyTorch refuses
        pytest.skip(str(error))
    for mine, place in zip(written, derived.outputs, strict=True):
        if mine is None or place is None or not np.isfinite(outs[place]).all():
            continue
        if key in ("gaussian_nll_loss", "index_fill", "hardtanh"):
            continue
        np.testing.assert_allclose(mine.array, outs[place], rtol=1e-9, atol=1e-9)


DTYPES_OF_KIND = {
    "b": "bool",
    "u": "uint8",
    "i": "int64",
    "n": "int32",
    "h": "float16",
    "8": "float8_e4m3fn",
    "c": "complex64",
}


@pytest.mark.parametrize(("key", "kind"), [(key, kind) for key, kinds in REFUSED.items() for kind in kinds])
def test_dtypes_that_pytorch_refuses_are_refused(key: str, kind: str) -> None:
    op, dtype = OPERATORS[key], BY_NAME[DTYPES_OF_KIND[kind]]
    bound = bound_call(op, samples_of(op)[0])
    specs = [Spec.of(dtype if s.dtype.is_floating_point else s.dtype, s.device, s.shape) for s in bound.specs]
    with pytest.raises(NotImplementedError, match=r"\"\w+\" not implemented for '"):
        trace_operator(op, tuple(bound.template), specs)


def test_what_no_primitive_takes_is_refused_in_the_operators_name() -> None:
    spec = Spec.of(BY_NAME["complex64"], CPU, (3,))
    with pytest.raises(NotImplementedError, match="\"atan2\" not implemented for 'ComplexFloat'"):
        trace_operator(OPERATORS["atan2"], (TENSOR, TENSOR), [spec, spec])
