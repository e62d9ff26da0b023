"""Graphs as plain data: the round trip, and data that are no graph's."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from rushlight._graph.core import GraphBuilder, trace
from rushlight._graph.packing import (
    RecordError,
    UnpackableError,
    packed_graph,
    packed_value,
    unpacked_graph,
    unpacked_value,
)
from rushlight._graph.printer import to_source
from rushlight._prims import prim
from rushlight._transforms.vjp import vjp
from rushlight._types.dtype import FLOAT16, FLOAT32


def read_again(data: Any) -> Any:
    return json.loads(json.dumps(data))


def softmax_like(x, y):
    high = prim.amax(x, dims=(1,))
    e = prim.exp(x - prim.broadcast(high, shape=(3, 4), dims=(0,)))
    return e * y, prim.convert(e, dtype=FLOAT16)


def test_graphs_come_back_as_they_were():
    graph = trace(softmax_like, [((3, 4), FLOAT32), ((3, 4), FLOAT32)])
    again = unpacked_graph(read_again(packed_graph(graph)))
    assert to_source(again) == to_source(graph)
    back = vjp(graph, [0, 1], [True, True], outputs=2)
    for part in (back.forward, back.backward):
        assert to_source(unpacked_graph(read_again(packed_graph(part)))) == to_source(part)


def test_numbers_given_at_run_time_stay_weak():
    builder = GraphBuilder()
    x, n = builder.input((2,), FLOAT32), builder.input((), FLOAT32, weak=True)
    again = unpacked_graph(read_again(packed_graph(builder.finish([x, n]))))
    assert [v.weak for v in again.inputs] == [False, True]


@pytest.mark.parametrize(
    "value",
    [1, True, 1.0, -0.0, math.inf, "text", None, (1, (2.5, "a")), [1, (2,)], FLOAT16, 1 - 2j, {"a": (1, FLOAT32), "b": []}, 1 << 70],
)  # fmt: skip
def test_parameters_keep_their_types(value):
    again = unpacked_value(read_again(packed_value(value)))
    assert repr(again) == repr(value) and type(again) is type(value)


def test_what_plain_data_cannot_hold_is_refused():
    with pytest.raises(UnpackableError, match="function"):
        packed_value((1, lambda: None))


GRAPH = packed_graph(trace(softmax_like, [((3, 4), FLOAT32), ((3, 4), FLOAT32)]))


def damaged() -> list[Any]:
    """The data with each part replaced by something else, in turn."""
    made = []
    others = [None, -1, 10**30, "x", [], {}, {"dtype": "float33"}, [[1]], True, 1.5]

    def walk(data: Any, path: tuple[Any, ...]) -> None:
        made.extend((path, other) for other in others)
        if isinstance(data, list):
            for k, item in enumerate(data):
                walk(item, (*path, k))

    walk(GRAPH, ())
    return made


def replaced(path: tuple[Any, ...], other: Any) -> Any:
    data = read_again(GRAPH)
    if not path:
        return other
    held = data
    for k in path[:-1]:
        held = held[k]
    held[path[-1]] = other
    return data


def test_damaged_data_are_refused_or_are_a_graph():
    refused = 0
    for path, other in damaged():
        try:
            to_source(unpacked_graph(replaced(path, other)))
        except RecordError:
            refused += 1
    assert refused > len(damaged()) // 2


def test_deep_nesting_ends_in_an_error():
    data = read_again(GRAPH)
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    data[1][0][2] = [["axis", deep]]
    with pytest.raises((RecordError, RecursionError)):
        unpacked_graph(data)
