"""Graphs computed on parts give the parts of their results: every option of every primitive, and whole operators."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from tests.ops.test_operators import ENGINE, bound_call
from tests.prim_cases import CASES, Case

from rushlight._backends.reference import run
from rushlight._engine.dispatch.lower import trace_operator
from rushlight._graph.core import Graph, trace
from rushlight._graph.verifier import verify
from rushlight._ops.samples import samples_of
from rushlight._ops.table import OPERATORS
from rushlight._prims import PRIMITIVES, build, prim
from rushlight._transforms.sharding import Strategy, follow, localize, stages, strategies
from rushlight._transforms.sharding_rules import WHOLE, Part, Placement, has_rule, options_of
from rushlight._types.dtype import FLOAT32, FLOAT64, INT64

COMBINE = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def part_of(array: np.ndarray, placement: Placement, part: Part) -> np.ndarray:
    """What a process has of an array; terms of a sum are made up."""
    if placement is None:
        return array
    if isinstance(placement, int):
        return array[(slice(None),) * placement + (slice(*part.span(array.shape[placement])),)]
    if placement == "sum":
        share = (array * (0.25 if array.dtype.kind in "fc" else 0)).astype(array.dtype)
        return share if part.coordinate else array - sum([share] * (part.size - 1), np.zeros_like(array))
    if placement == "prod":
        return np.ones_like(array) if part.coordinate else array
    return array


def joined(parts: list[np.ndarray], placement: Placement) -> np.ndarray:
    if placement is None:
        for other in parts[1:]:
            np.testing.assert_array_equal(other, parts[0])
        return parts[0]
    return np.concatenate(parts, placement) if isinstance(placement, int) else reduce(COMBINE[placement], parts)


def ran(graph: Graph, strategy: Strategy, arrays: list[np.ndarray], size: int) -> list[list[np.ndarray]]:
    """The outputs of every process; terms are reduced between stages."""
    held = [[part_of(a, p, Part(size, k)) for a, p in zip(arrays, strategy.inputs, strict=True)] for k in range(size)]
    programs = [localize(graph, strategy, size, k) for k in range(size)]
    for program in programs:
        verify(program)
    for now in zip(*map(stages, programs), strict=True):
        found = [run(stage.graph, [mine[n] for n in stage.reads]) for stage, mine in zip(now, held, strict=True)]
        for (_, kind), terms in zip(now[0].reductions, zip(*found, strict=True), strict=False):
            for mine in held:
                mine.append(reduce(COMBINE[kind], terms))
    return found


def check(graph: Graph, strategy: Strategy, arrays: list[np.ndarray], size: int, tolerance: float) -> None:
    results = ran(graph, strategy, arrays, size)
    for j, want in enumerate(run(graph, arrays)):
        got = joined([r[j] for r in results], strategy.outputs[j])
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got.astype(complex), want.astype(complex), rtol=tolerance, atol=tolerance)


def of_options(graph: Graph, size: int) -> list[Strategy]:
    """Each option of the only node of a graph."""
    node = graph.nodes[0]
    found = []
    for option in options_of(node, size):
        inputs: dict[object, Placement] = {}
        fits = all(inputs.setdefault(v, p) == p for v, p in zip(node.inputs, option.inputs, strict=True))
        if fits and len(node.inputs) == len(graph.inputs):
            outputs = tuple(option.outputs[v.index] for v in graph.outputs)
            found.append(Strategy(tuple(inputs[v] for v in graph.inputs), outputs, {node: option}, {}))
    return found


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_every_option_of_a_primitive(name: str) -> None:
    for case in (c for c in CASES if c.primitive.name == name):
        graph, size = case.graph(), 2 + case.number % 2
        if len(graph.nodes) == 1:
            for strategy in of_options(graph, size):
                check(graph, strategy, case.arrays, size, 1e-9 if case.double else 2e-2 if half(case) else 1e-4)


def half(case: Case) -> bool:
    return any(a.dtype.itemsize == 2 and a.dtype.kind not in "iub" for a in case.arrays)


def test_every_primitive_has_a_rule_or_a_reason() -> None:
    without = {name for name, p in PRIMITIVES.items() if not has_rule(name, p.lower)}
    assert without == set(WHOLE)


def shown(graph: Graph, size: int) -> set[tuple[tuple[Placement, ...], tuple[Placement, ...]]]:
    return {(s.inputs, s.outputs) for s in strategies(graph, size)}


def softmax(x):
    e = prim.exp(x - prim.broadcast(prim.amax(x, dims=(1,)), shape=x.shape, dims=(0,)))
    return e / prim.broadcast(prim.sum(e, dims=(1,)), shape=x.shape, dims=(0,))


def test_a_softmax_reduces_its_maximum_and_its_sum() -> None:
    """Divided by rows nothing is said; divided along a row the processes exchange two numbers of each row."""
    graph = trace(softmax, [((4, 6), FLOAT64)])
    assert shown(graph, 2) == {((None,), (None,)), ((0,), (0,)), ((1,), (1,))}
    for strategy in strategies(graph, 2):
        check(graph, strategy, [np.random.default_rng(0).normal(size=(4, 6))], 2, 1e-12)
    along = strategies(graph, 2)[2]
    assert [stage.reductions for stage in stages(localize(graph, along, 2, 0))] == [((0, "max"),), ((0, "sum"),), ()]


def test_a_mean_over_a_divided_dim_is_a_term_of_the_whole_mean() -> None:
    graph = trace(lambda x: prim.sum(x, dims=(0,)) / 10.0, [((10, 3), FLOAT64)])
    assert ((0,), ("sum",)) in shown(graph, 4)
    check(graph, strategies(graph, 4)[1], [np.random.default_rng(1).normal(size=(10, 3))], 4, 1e-12)


def test_an_affine_map_of_terms_needs_the_sum_first() -> None:
    graph = trace(lambda x, w, b: build.dot(x, w) + b, [((4, 6), FLOAT32), ((6, 2), FLOAT32), ((4, 2), FLOAT32)])
    terms, whole = follow(graph, 2, (1, 0, "sum")), follow(graph, 2, (1, 0, None))
    assert terms is not None and not terms.reduced and terms.outputs == ("sum",)
    assert whole is not None and list(whole.reduced.values()) == ["sum"] and whole.outputs == (None,)
    assert follow(graph, 2, (1, 1, None)) is None
    assert ((0, None, 0), (0,)) in shown(graph, 2)


def test_rows_of_an_embedding_on_several_processes() -> None:
    """Rows that another process has count as zero, indices are checked against all rows."""
    graph = trace(lambda w, i: prim.index(w, i), [((5, 3), FLOAT64), ((2, 4), INT64)])
    table, index = np.random.default_rng(2).normal(size=(5, 3)), np.array([[0, 4, -1, 2], [3, -5, 1, 0]])
    strategy = next(s for s in strategies(graph, 2) if s.outputs == ("sum",))
    check(graph, strategy, [table, index], 2, 1e-12)
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        run(localize(graph, strategy, 2, 0), [table[:3], np.full((2, 4), 5)])


def test_constants_are_made_in_parts() -> None:
    """Nobody makes the whole of what is only used in parts."""
    graph = trace(
        lambda x: x * build.convert(prim.iota(shape=(6, 2), dim=0, dtype=INT64), FLOAT64), [((6, 2), FLOAT64)]
    )
    strategy = next(s for s in strategies(graph, 2) if s.inputs == (0,))
    local = localize(graph, strategy, 2, 1)
    assert "slice" not in [node.prim.name for node in local.nodes]
    check(graph, strategy, [np.ones((6, 2))], 2, 0)


def test_a_mesh_is_sharded_axis_by_axis() -> None:
    graph = trace(lambda x, w: build.dot(x, w), [((4, 6), FLOAT64), ((6, 8), FLOAT64)])
    x, w = np.random.default_rng(3).normal(size=(4, 6)), np.random.default_rng(4).normal(size=(6, 8))
    rows = next(s for s in strategies(graph, 2) if s.inputs == (0, None))
    result = np.zeros((4, 8))
    for i in range(2):
        half = localize(graph, rows, 2, i)
        columns = next(s for s in strategies(half, 2) if s.inputs == (None, 1))
        for j in range(2):
            quarter = localize(half, columns, 2, j)
            result[2 * i : 2 * i + 2, 4 * j : 4 * j + 4] = run(
                quarter, [x[2 * i : 2 * i + 2], w[:, 4 * j : 4 * j + 4]]
            )[0]
    np.testing.assert_allclose(result, x @ w)


def test_operators_follow_from_their_primitives() -> None:
    """Every strategy of an operator's first sample gives parts of its results; nearly all operators have one."""
    divided = set()
    for key in sorted(set(OPERATORS) - ENGINE):
        op = OPERATORS[key]
        bound = bound_call(op, samples_of(op)[0])
        graph, _ = trace_operator(op, bound.template, bound.specs)
        arrays = [np.asarray(a) for a in bound.inputs()]
        for strategy in strategies(graph, 2)[1:]:
            check(graph, strategy, arrays, 2, 1e-5)
            divided.add(key)
    assert len(divided) >= 360
