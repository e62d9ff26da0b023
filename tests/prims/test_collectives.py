"""Collectives over a list of ranks: shapes, derivatives along random directions, batches against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rushlight._backends.reference import run, run_ranks
from rushlight._base.errors import NotDifferentiableError
from rushlight._graph.core import Graph, evaluate, trace
from rushlight._graph.printer import to_source
from rushlight._graph.verifier import verify
from rushlight._prims import build
from rushlight._prims.collectives import COLLECTIVES, LINEAR, OVER_RANKS, REDUCTIONS
from rushlight._prims.effects import EFFECTS, prim
from rushlight._transforms.batching import batch
from rushlight._transforms.jvp import jvp
from rushlight._transforms.vjp import vjp
from rushlight._types.dtype import FLOAT32, FLOAT64, INT64

SIZE = 3
SENT = [[1, 0, 2], [2, 1, 0], [0, 3, 1]]


def params_of(name: str, place: int, reduce: str = "sum") -> dict[str, Any]:
    """Parameters of a collective among three processes, uneven where that can be."""
    reducing = {"reduce": reduce, "factor": 0.5 if reduce == "premul_sum" else None}
    sizes = (2, 1, 3)
    found: dict[str, dict[str, Any]] = {
        "all_reduce": reducing, "reduce_to": {**reducing, "root": 1, "place": place}, "broadcast_from": {"root": 2, "place": place},
        "all_gather": {"sizes": sizes, "place": place, "together": False}, "reduce_scatter": {**reducing, "sizes": sizes, "place": place},
        "all_to_all": {"sent": tuple(SENT[place]), "got": tuple(row[place] for row in SENT), "place": place, "together": False},
        "permute_ranks": {"to": (1, 2, 0), "place": place},
    }  # fmt: skip
    return {"group": 7, "size": SIZE, **found[name]}


def rows_of(name: str, place: int) -> int:
    return {"all_gather": (2, 1, 3)[place], "reduce_scatter": 6, "all_to_all": sum(SENT[place])}.get(name, 4)


def graph_of(name: str, place: int, reduce: str = "sum") -> Graph:
    """Two calls in order around something that is not linear."""
    params = params_of(name, place, reduce)

    def twice(x: Any) -> Any:
        order, y = getattr(prim, name)(build.full((), 0, INT64), prim.sin(x), **params)
        _, z = (
            prim.all_reduce(order, prim.cos(y), group=7, size=SIZE, reduce="sum", factor=None) if same(name) else (0, y)
        )
        return build.binary("mul", y, z)

    return trace(twice, [((rows_of(name, place), 2), FLOAT64)])


def same(name: str) -> bool:
    """Whether all results have one shape."""
    return name not in ("reduce_scatter", "all_to_all")


def cases() -> list[tuple[str, str]]:
    return [
        (name, reduce) for name in COLLECTIVES for reduce in (LINEAR if "reduce" in params_of(name, 0) else ("sum",))
    ]


def inputs(name: str) -> list[Any]:
    return [np.random.default_rng(place).uniform(-1, 1, (rows_of(name, place), 2)) for place in range(SIZE)]


@pytest.mark.parametrize(("name", "reduce"), cases())
def test_gradients_are_those_of_the_sum_of_all_losses(name: str, reduce: str) -> None:
    graphs, xs = [graph_of(name, place, reduce) for place in range(SIZE)], inputs(name)
    verify(graphs[0])
    found = run_ranks(graphs, [[x] for x in xs])
    cts = [np.random.default_rng(9 + k).uniform(-1, 1, out[0].shape) for k, out in enumerate(found)]
    ways = [np.random.default_rng(5 + k).uniform(-1, 1, x.shape) for k, x in enumerate(xs)]
    step = 1e-6
    ahead, behind = (
        run_ranks(graphs, [[x + sign * step * way] for x, way in zip(xs, ways, strict=True)]) for sign in (1, -1)
    )
    slope = sum((ct * (a[0] - b[0])).sum() for ct, a, b in zip(cts, ahead, behind, strict=True)) / (2 * step)

    pushed = run_ranks([jvp(graph, [True]) for graph in graphs], [[x, way] for x, way in zip(xs, ways, strict=True)])
    assert abs(sum((ct * out[1]).sum() for ct, out in zip(cts, pushed, strict=True)) - slope) < 1e-7

    derived = [vjp(graph, [0], [True]) for graph in graphs]
    first = run_ranks([d.forward for d in derived], [[x] for x in xs])
    given = []
    for d, x, out, ct in zip(derived, xs, first, cts, strict=True):
        held = {"input": [x], "output": out, "residual": out[1:]}
        given.append([*[held[kind][i] for kind, i in d.saved], ct])
    pulled = run_ranks([d.backward for d in derived], given)
    assert abs(sum((g[0] * way).sum() for g, way in zip(pulled, ways, strict=True)) - slope) < 1e-7


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_batch_is_one_call(name: str) -> None:
    graphs = [graph_of(name, place) for place in range(SIZE)]
    rows = [
        [np.random.default_rng(10 * k + place).uniform(-1, 1, (rows_of(name, place), 2)) for k in range(2)]
        for place in range(SIZE)
    ]
    whole = [batch(graph, [True], 2) for graph in graphs]
    calls = [sum(node.prim.family == "collective" for node in graph.nodes) for graph in (graphs[0], whole[0])]
    assert calls[0] == calls[1]
    found = run_ranks(whole, [[np.stack(row)] for row in rows])
    for k in range(2):
        for out, one in zip(found, run_ranks(graphs, [[row[k]] for row in rows]), strict=True):
            np.testing.assert_array_equal(out[0][k], one[0])


def test_all_reductions_over_ranks() -> None:
    xs = [np.array([6, 3]), np.array([5, -2]), np.array([-3, 1])]
    wanted = {
        "sum": [8, 2], "avg": [2, 0], "prod": [-90, -6], "min": [-3, -2], "max": [6, 3], "band": [4, 0], "bor": [-1, -1], "bxor": [-2, -4],
    }  # fmt: skip
    for reduce, result in wanted.items():
        for found in OVER_RANKS["all_reduce"](xs, reduce=reduce, factor=None):
            assert found.tolist() == result and found.dtype == np.int64, reduce
    assert set(wanted) | {"premul_sum"} == set(REDUCTIONS)
    uneven = [np.array([-7]), np.array([0])]
    assert OVER_RANKS["all_reduce"](uneven, reduce="avg", factor=None)[0].tolist() == [-3]  # towards zero


def test_records_say_what_is_wrong() -> None:
    def call(name: str, shape: tuple[int, ...] = (4, 2), dtype: Any = FLOAT64, **changed: Any) -> Graph:
        params = {**params_of(name, 1), **changed}
        return trace(lambda x: getattr(prim, name)(build.full((), 0, INT64), x, **params), [(shape, dtype)])

    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("all_reduce", {"reduce": "median"}, "reduce is one of sum, avg, premul_sum, prod"),
        ("all_reduce", {"factor": 2.0}, "a factor goes with premul_sum"),
        ("all_reduce", {"reduce": "bor"}, "bor takes integers, got float64"),
        ("all_reduce", {"group": -1}, "-1 with 3 processes is no process group"),
        ("broadcast_from", {"root": 3}, "root is a place among 3 processes, got 3"),
        ("all_gather", {"shape": (4,)}, "process 1 gives 1 rows, got 4"),
        ("all_gather", {"sizes": (1, 2)}, "are not the rows of 3 processes"),
        ("reduce_scatter", {"shape": (4,)}, r"parts of \[2, 1, 3\] rows are not the 4 of x"),
        ("all_to_all", {"shape": ()}, "takes rows, got a scalar"),
        ("permute_ranks", {"to": (0, 0, 1)}, r"\[0, 0, 1\] is no permutation of 3 processes"),
    ]
    for name, changed, text in wrong:
        with pytest.raises((ValueError, TypeError), match=text):
            call(name, **changed)
    with pytest.raises(TypeError, match="takes the order of calls in group 7 first"):
        trace(lambda x: prim.all_reduce(x, x, **params_of("all_reduce", 0)), [((2,), FLOAT32)])
    with pytest.raises(RuntimeError, match="among 3 processes has no result on one"):
        run(graph_of("all_reduce", 0), [inputs("all_reduce")[0]])
    with pytest.raises(NotDifferentiableError, match="has a gradient for sum, avg, premul_sum, not for max"):
        vjp(graph_of("all_reduce", 0, "max"), [0], [True])


def test_the_order_of_calls_is_data() -> None:
    graph = graph_of("all_reduce", 0)
    first, second = [node for node in graph.nodes if node.prim.family == "collective"]
    assert second.inputs[0] is first.outputs[0]
    assert (
        "v2, v3 = prim.all_reduce(v0, v1, group=7, size=3, reduce='sum', factor=None)  # int64[], float64[4, 2]"
        in to_source(graph)
    )


@pytest.mark.parametrize("name", COLLECTIVES)
def test_alone_a_process_is_its_group(name: str) -> None:
    record = EFFECTS[name]
    for (order, x), params in record.samples():
        graph = trace(
            lambda *xs, p=params: record(*xs, **p), [((), INT64), (x.shape, FLOAT64 if x.dtype == float else FLOAT32)]
        )
        after, found = evaluate(graph, [order, x], lambda node, xs: node.prim.reference(*xs, **node.params))
        assert after == order + 1
        np.testing.assert_array_equal(found, x)
