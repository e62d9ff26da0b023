"""`functionalize`: graphs that change memory become graphs of arrays with the same results."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as torch
from rushlight._backends.reference import run
from rushlight._graph.core import Graph, GraphBuilder
from rushlight._graph.verifier import verify
from rushlight._prims.draws import STREAM, seeded
from rushlight._prims.effects import prim
from rushlight._prims.memory import shown
from rushlight._transforms.functionalize import functionalize
from rushlight._types.dtype import FLOAT64

ROWS = ("slice", (("starts", (1, 0)), ("stops", (4, 6)), ("steps", (2, 1))))
VIEWS = {
    "whole": (),
    "rows": (ROWS,),
    "transposed rows": (ROWS, ("transpose", (("perm", (1, 0)),))),
    "one row": (("slice", (("starts", (2, 0)), ("stops", (3, 6)), ("steps", (1, 1)))), ("reshape", (("shape", (6,)),))),
    "flat": (("reshape", (("shape", (24,)),)),),
    "diagonal": (("diagonal", (("start", (0, 1)), ("size", 4))),),
    "new dim": (("broadcast", (("shape", (1, 4, 6)), ("dims", (1, 2)))),),
    "every third of every second": (
        ("slice", (("starts", (0, 0)), ("stops", (4, 6)), ("steps", (2, 1)))),
        ("slice", (("starts", (0, 1)), ("stops", (2, 6)), ("steps", (1, 3)))),
    ),
}


def through(views) -> Graph:
    """10 is added to what views show of memory; the sum of all is given too."""
    builder = GraphBuilder()
    memory = builder.reference("memory", (4, 6), FLOAT64)
    with builder:
        part = shown(prim.read(memory), views)
        memory = prim.write(memory, part + 10.0, views=views)
        total = prim.sum(prim.read(memory), dims=(0, 1))
    return builder.finish([memory, total])


@pytest.mark.parametrize("name", VIEWS)
def test_a_write_through_views(name: str) -> None:
    graph = through(VIEWS[name])
    verify(graph)
    made = functionalize(graph)
    verify(made.graph)
    assert made.written == [(0, 0)] and all(n.prim.effect is None for n in made.graph.nodes)
    x = np.arange(24.0).reshape(4, 6)
    x[0, 0] = -0.0
    x[3, 5] = np.nan
    wanted = x.copy()
    part = {
        "whole": np.s_[:], "rows": np.s_[1:4:2], "transposed rows": np.s_[1:4:2], "one row": np.s_[2], "flat": np.s_[:], "diagonal": (range(4), range(1, 5)),
        "new dim": np.s_[:], "every third of every second": np.s_[::2, 1::3],
    }[name]  # fmt: skip
    wanted[part] += 10
    for found in (run(graph, [x]), run(made.graph, [x])):
        np.testing.assert_array_equal(found[0], wanted)
        assert np.array_equal(np.signbit(found[0]), np.signbit(wanted))


def test_writes_one_after_another_memories_apart_and_a_stream() -> None:
    builder = GraphBuilder()
    a, b = builder.reference("memory", (3,), FLOAT64), builder.reference("memory", (3,), FLOAT64)
    untouched, stream = builder.reference("memory", (2,), FLOAT64), builder.reference("stream", *STREAM)
    with builder:
        old = prim.read(a)
        stream, noise = prim.draw_uniform(stream, shape=(3,), dtype=FLOAT64, low=0.0, high=1.0)
        a = prim.write(a, prim.read(b) + noise, views=())
        b = prim.write(b, old, views=())
        a = prim.write(a, prim.read(a) * prim.read(b), views=())
        mine = prim.write(prim.allocate(old), prim.read(a), views=())
        result = prim.read(mine) + old
    graph = builder.finish([result, a, stream, b, untouched, mine])
    verify(graph)
    made = functionalize(graph)
    verify(made.graph)
    assert made.written == [(0, 1), (1, 3)]
    assert [n.prim.name for n in made.graph.nodes] == ["draw_uniform", "add", "mul", "add"]
    given = [np.array([1.0, 2, 3]), np.array([4.0, 5, 6]), np.zeros(2), seeded(0)]
    for x, y in zip(run(graph, given), run(made.graph, given), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_graph_without_effects_stays() -> None:
    builder = GraphBuilder()
    x = builder.input((2,), FLOAT64)
    with builder:
        y = prim.exp(x)
    made = functionalize(builder.finish([y]))
    assert made.written == [] and [n.prim.name for n in made.graph.nodes] == ["exp"]


READING = {
    "nonzero": lambda x: x.nonzero(),
    "as tuple": lambda x: x.nonzero(as_tuple=True),
    "where": lambda x: torch.where(x > 1),
    "argwhere": lambda x: torch.argwhere(x),
    "masked_select": lambda x: torch.masked_select(x, x > 1),
    "unique": lambda x: torch.unique(x),
    "histc": lambda x: torch.histc(x, 3),
    "masked_scatter": lambda x: x.masked_scatter(x > 1, x),
}


@pytest.mark.parametrize("name", READING)
def test_functions_that_read_elements_read_those_of_the_values(name: str) -> None:
    function, x = READING[name], torch.tensor([0.0, 2.0, 1.0])
    made, expected = torch.func.functionalize(function)(x), function(x)
    assert type(made) is type(expected)
    pairs = zip(made, expected, strict=True) if isinstance(made, tuple) else [(made, expected)]
    assert all(torch.equal(one, two) for one, two in pairs)
