"""Derivatives and batching of every operator of the table: slopes, slopes of slopes, forward against reverse mode, a batch against a loop.

Everything runs on the primitives' NumPy references, in float64 and in complex128 (gradients in PyTorch's convention: the gradient of a real
function by a complex number holds its derivatives by the real and by the imaginary part).  A sample that is drawn in float64 is tried in
complex128 too; operators that refuse complex numbers raise, as in PyTorch.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from tests.ops.harness import Bound, bind, run_graph
from tests.ops.test_operators import CASES, NOT_SLOPES, NOT_SMOOTH, STATISTICS, drawn, each_call
from tests.prim_cases import inner, random
from tests.rows import each_row

import rushlight as torch
from rushlight._base.errors import NotDifferentiableError
from rushlight._engine.dispatch.lower import differentiate, differentiate_graph, trace_operator
from rushlight._graph.core import Graph, evaluate, trace
from rushlight._ops.samples import Call, Draw, samples_of
from rushlight._ops.table import OPERATORS, Operator
from rushlight._transforms.batching import batch
from rushlight._transforms.jvp import jvp
from rushlight._transforms.vjp import carries_gradient, vjp
from rushlight._types.dtype import COMPLEX128, FLOAT64

DOUBLE = (FLOAT64, COMPLEX128)
STEP = 1e-6


class Subject:
    """One call of one operator, traced."""

    def __init__(self, op: Operator, key: str, i: int, bound: Bound) -> None:
        self.op, self.key, self.i, self.bound = op, key, i, bound
        self.graph, self.count = trace_operator(op, bound.template, bound.specs)
        self.arrays = bound.inputs()
        self.wrt = [k for k, t in enumerate(bound.tensors) if t.dtype in DOUBLE]
        self.mask = [v.dtype in DOUBLE and not (key in STATISTICS and j) for j, v in enumerate(self.graph.outputs)]
        self.cts = [random(v.shape, v.dtype, 5 + j) for j, v in enumerate(self.graph.outputs) if self.mask[j]]
        self.tangents = [random(self.graph.inputs[k].shape, self.graph.inputs[k].dtype, 9 + k) for k in self.wrt]

    @property
    def differentiable(self) -> bool:
        return (
            bool(self.wrt)
            and any(self.mask)
            and not any(np.isnan(t.array).any() for t in self.bound.tensors if t.array.dtype.kind in "fc")
        )

    def gradient(self) -> tuple[Graph, list[int]]:
        """The gradients as one graph of all inputs, then the cotangents; and which of `wrt` they belong to."""
        found = differentiate(self.op, self.bound.template, self.bound.specs, self.wrt, self.mask)
        count, given = self.count, len(self.arrays)

        def grads(*values: Any) -> list[Any]:
            inputs, cts = values[:given], values[given:]
            outs = evaluate(found.forward, inputs)
            held = {"input": inputs, "output": outs, "residual": outs[count:]}
            backward = evaluate(found.graph, [*(held[kind][j] for kind, j in found.saved), *cts])
            return [backward[place] for place in found.outputs if place is not None]

        avals: list[Any] = [(v.shape, v.dtype, v.weak) for v in self.graph.inputs]
        avals += [(v.shape, v.dtype) for v, flag in zip(self.graph.outputs, self.mask, strict=True) if flag]
        return trace(grads, avals), [k for k, place in zip(self.wrt, found.outputs, strict=True) if place is not None]


def complexified(value: Any) -> Any:
    if isinstance(value, Draw) and value.dtype is FLOAT64 and value.values is None:
        return value.with_dtype(COMPLEX128)
    return [complexified(v) for v in value] if isinstance(value, list) else value


@cache
def subject(key: str, i: int, complex_too: bool = False) -> Subject | None:
    """The call, or None where it does not exist in complex128 (or is the same there)."""
    op, call = OPERATORS[key], samples_of(OPERATORS[key])[i]
    rng = np.random.default_rng(7)
    if complex_too:
        changed = Call(*map(complexified, call.args), **{k: complexified(v) for k, v in call.kwargs.items()})
        if all(a is b for a, b in zip([*call.args, *call.kwargs.values()], [*changed.args, *changed.kwargs.values()])):
            return None
        call = changed
    bound = bind(op, [drawn(a, rng) for a in call.args], {k: drawn(v, rng) for k, v in call.kwargs.items()})
    try:
        return Subject(op, key, i, bound)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError, AssertionError):
        if not complex_too:
            raise
        return None


SUBJECTS = [(key, i, flag) for key, i in CASES for flag in (False, True) if subject(key, i, flag) is not None]
every_call = each_row((key, f"{key}-{i}{'-complex' if flag else ''}", (key, i, flag)) for key, i, flag in SUBJECTS)


def slope(
    graph: Graph, arrays: list[Any], places: list[int], directions: list[Any], weights: list[Any], mask: list[bool]
) -> float:
    """How fast <weights, results> changes along the directions: central differences."""
    ends = []
    for side in (1, -1):
        moved = list(arrays)
        for k, direction in zip(places, directions, strict=True):
            moved[k] = np.asarray(arrays[k] + side * STEP * direction)
        results = run_graph(graph, moved)
        ends.append([r for r, flag in zip(results, mask, strict=True) if flag])
    return inner(weights, [(a - b) / (2 * STEP) for a, b in zip(*ends, strict=True)])


def differentiable_subject(key: str, i: int, complex_too: bool) -> Subject:
    call = subject(key, i, complex_too)
    if call is None or not call.differentiable or key in NOT_SMOOTH or (key, i) in NOT_SLOPES:
        pytest.skip("nothing to differentiate")
    return call


@every_call
def test_first_and_second_derivatives_are_slopes(key: str, i: int, complex_too: bool) -> None:
    call = differentiable_subject(key, i, complex_too)
    try:
        graph, wrt = call.gradient()
    except NotDifferentiableError as error:
        pytest.skip(str(error))
    if not wrt:
        pytest.skip("no path from inputs to results")
    arrays = [*call.arrays, *call.cts]
    grads = run_graph(graph, arrays)
    directions = [call.tangents[call.wrt.index(k)] for k in wrt]
    want = slope(call.graph, call.arrays, wrt, directions, call.cts, call.mask)
    assert inner(grads, directions) == pytest.approx(want, rel=1e-4, abs=1e-5)
    # The gradient is a graph of the inputs and the cotangents: its own gradient, by all of them.
    places = [*wrt, *range(len(call.arrays), len(arrays))]
    directions += [
        random(c.shape, v.dtype, 30 + j)
        for j, (c, v) in enumerate(zip(call.cts, graph.inputs[len(call.arrays) :], strict=True))
    ]
    weights = [random(v.shape, v.dtype, 50 + j) for j, v in enumerate(graph.outputs)]
    second = vjp(graph, places)
    results = run_graph(second.forward, arrays)
    held = {"input": arrays, "output": results, "residual": results[len(graph.outputs) :]}
    found = run_graph(second.backward, [*(held[kind][j] for kind, j in second.saved), *weights])
    pairs = [(found[place], d) for place, d in zip(second.grads, directions, strict=True) if place is not None]
    got = inner([g for g, _ in pairs], [d for _, d in pairs])
    want = slope(graph, arrays, places, directions, weights, [True] * len(weights))
    assert got == pytest.approx(want, rel=1e-4, abs=1e-4), "second derivative"


@each_call(CASES)
def test_what_is_kept_suffices_to_differentiate_the_backward(key: str, i: int) -> None:
    """Whichever tensors want gradients: what the backward reads of the forward has derivatives that are computed from the same."""
    call = subject(key, i)
    assert call is not None
    for wrt in (w for n in range(1, min(len(call.wrt), 4) + 1) for w in combinations(call.wrt, n)):
        try:
            found = differentiate(call.op, call.bound.template, call.bound.specs, wrt, call.mask)
            kept = [("output", call.count + k) if kind == "residual" else (kind, k) for kind, k in found.saved]
            outs = found.forward.outputs
            residuals = [k >= call.count and carries_gradient(v.dtype) for k, v in enumerate(outs)]
            if any(residuals):
                differentiate_graph(found.forward, len(outs), wrt, residuals, only=kept)
        except NotDifferentiableError:
            continue


@every_call
def test_forward_mode_is_the_transpose_of_reverse_mode(key: str, i: int, complex_too: bool) -> None:
    """<u, J v> = <J' u, v>."""
    call = differentiable_subject(key, i, complex_too)
    try:
        graph, wrt = call.gradient()
        forward = jvp(call.graph, [k in wrt for k in range(len(call.arrays))])
    except NotDifferentiableError as error:
        pytest.skip(str(error))
    if not wrt:
        pytest.skip("no path from inputs to results")
    tangents = [call.tangents[call.wrt.index(k)] for k in wrt]
    moved = run_graph(forward, [*call.arrays, *tangents])[call.count :]
    floats = [flag for flag, v in zip(call.mask, call.graph.outputs, strict=True) if carries_gradient(v.dtype)]
    left = inner(call.cts, [m for m, flag in zip(moved, floats, strict=True) if flag])
    right = inner(run_graph(graph, [*call.arrays, *call.cts]), tangents)
    assert left == pytest.approx(right, rel=1e-7, abs=1e-8)


def stacked(array: Any, change: bool) -> Any:
    """Two items for a batch: the array, and it turned round (so that indices stay in range), scaled where it is a float."""
    turned = np.ascontiguousarray(array[::-1]) if array.ndim else array
    return np.stack([array, (turned * 0.75).astype(array.dtype) if change and array.dtype.kind in "fc" else turned])


@every_call
def test_a_batch_is_a_loop(key: str, i: int, complex_too: bool) -> None:
    call = subject(key, i, complex_too)
    assert call is not None
    count = len(call.bound.tensors)
    if not count:
        pytest.skip("no tensors")
    numbers = len(call.arrays) - count
    masks = [[True] * count] + ([[j == i % count for j in range(count)]] if count > 1 else [])
    for mask in masks:
        batched = batch(call.graph, [*mask, *[False] * numbers], 2)
        given = [
            stacked(a, True) if flag else a for a, flag in zip(call.arrays, [*mask, *[False] * numbers], strict=True)
        ]
        got = run_graph(batched, given)
        for k in range(2):
            want = run_graph(
                call.graph, [a[k] if flag else a for a, flag in zip(given, [*mask, *[False] * numbers], strict=True)]
            )
            for mine, theirs in zip(got, want, strict=True):
                np.testing.assert_allclose(mine[k], theirs, rtol=1e-9, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("include_self", [True, False])
def test_slopes_of_products_with_zeros_are_the_products_of_the_others(include_self: bool) -> None:
    x, places = np.array([2.0, 3.0, 0.0]), np.array([0, 0, 1, 1, 1, 2, 2])
    source = np.array([0.0, 5.0, 0.0, 0.0, 7.0, 4.0, 1.5])
    given, values = torch.tensor(x, requires_grad=True), torch.tensor(source, requires_grad=True)
    given.scatter_reduce(0, torch.tensor(places), values, "prod", include_self=include_self).sum().backward()
    factors = [[(x[k], None)] * include_self + [(source[j], j) for j in np.flatnonzero(places == k)] for k in range(3)]
    for k, row in enumerate(factors):
        for at, (_, j) in enumerate(row):
            others = np.prod([value for n, (value, _) in enumerate(row) if n != at])
            assert float(given.grad[k] if j is None else values.grad[j]) == others
