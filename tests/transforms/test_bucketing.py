"""Small all-reduces as one: which are taken together, in which order, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np

from rushlight._backends.reference import run_ranks
from rushlight._graph.core import Graph, trace
from rushlight._graph.verifier import verify
from rushlight._prims import build
from rushlight._prims.effects import prim
from rushlight._transforms.bucketing import LARGEST, bucketed
from rushlight._types.dtype import FLOAT64, INT64

SHAPES = [(2, 3), (4,), (), (5,)]


class Calls:
    """Calls with borders, as a recorded program has them."""

    def __init__(self) -> None:
        self.number, self.orders = 0, dict[int, Any]()

    def of(self, function: Any, *xs: Any) -> Any:
        self.number += 1
        found = function(*[prim.operand(x, call=self.number) for x in xs])
        listed = found if isinstance(found, tuple) else (found,)
        strides = tuple(tuple(np.empty(x.shape).strides[k] // 8 for k in range(len(x.shape))) for x in listed)
        made = prim.border(*listed, strides=strides)
        return made if isinstance(found, tuple) else made[0]

    def all_reduce(self, x: Any, group: int = 0, reduce: str = "sum") -> Any:
        if group not in self.orders:
            self.orders[group] = self.of(lambda: build.full((), 0, INT64))
        params = {"group": group, "size": 2, "reduce": reduce, "factor": None}
        self.orders[group], found = self.of(lambda order, y: prim.all_reduce(order, y, **params), self.orders[group], x)
        return found


def graph_of(program: Any, shapes: Any = tuple(SHAPES)) -> Graph:
    def function(*xs: Any) -> list[Any]:
        calls = Calls()
        found = program(calls, *xs)
        return [*found, *calls.orders.values()]

    return trace(function, [(shape, FLOAT64) for shape in shapes])


def check(graph: Graph, merged: int, left: int) -> Graph:
    """How many calls became part of another, how many are left; two ranks get what they got."""
    made, count = bucketed(graph)
    verify(made)
    assert count == merged and sum(node.prim.family == "collective" for node in made.nodes) == left
    xs = [[np.random.default_rng(rank).uniform(-1, 1, v.shape) for v in graph.inputs] for rank in range(2)]
    outputs = len(graph.outputs) - sum(v.dtype is INT64 for v in graph.outputs)
    for before, after in zip(run_ranks([graph] * 2, xs), run_ranks([made] * 2, xs), strict=True):
        for a, b in zip(before[:outputs], after[:outputs], strict=True):
            np.testing.assert_array_equal(a, b)
    return made


def test_neighbours_are_one_call() -> None:
    def program(calls: Calls, *xs: Any) -> list[Any]:
        return [calls.of(prim.sin, calls.all_reduce(calls.of(prim.exp, x))) for x in xs]

    made = check(graph_of(program), 3, 1)
    (call,) = [node for node in made.nodes if node.prim.family == "collective"]
    assert call.inputs[1].shape == (16,)


def test_a_call_that_needs_another_begins_anew() -> None:
    def program(calls: Calls, a: Any, b: Any, c: Any, d: Any) -> list[Any]:
        first, second = calls.all_reduce(b), calls.all_reduce(c)
        both = calls.of(lambda x, y: build.binary("mul", x, y), first, second)
        return [calls.all_reduce(both), calls.all_reduce(d), calls.all_reduce(calls.of(prim.sin, first))]

    check(graph_of(program), 3, 2)


def test_what_differs_stays_apart() -> None:
    def program(calls: Calls, a: Any, b: Any, c: Any, d: Any) -> list[Any]:
        return [
            calls.all_reduce(a), calls.all_reduce(b, group=1), calls.all_reduce(c, reduce="max"), calls.all_reduce(d, group=1),
            calls.all_reduce(a, reduce="max"),
        ]  # fmt: skip

    made = check(graph_of(program), 2, 3)
    kinds = [(node.params["group"], node.params["reduce"]) for node in made.nodes if node.prim.family == "collective"]
    assert sorted(kinds) == [(0, "max"), (0, "sum"), (1, "sum")]


def test_large_ones_end_a_bucket() -> None:
    def program(calls: Calls, a: Any, b: Any, c: Any) -> list[Any]:
        return [calls.all_reduce(x) for x in (a, b, c, a)]

    check(graph_of(program, [(3,), (LARGEST // 8 + 1,), (4,)]), 1, 3)
