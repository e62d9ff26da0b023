"""Graphs print as Python that reads back as the same graph."""

from __future__ import annotations

import ast
import math

import numpy as np
import pytest
from tests.prim_cases import CASES, Case, each_case

from rushlight._backends.reference import run
from rushlight._graph.core import trace
from rushlight._graph.printer import parse, to_source
from rushlight._graph.verifier import verify
from rushlight._prims import build, prim
from rushlight._transforms.vjp import vjp
from rushlight._types.dtype import COMPLEX64, FLOAT32, FLOAT64


@each_case(CASES)
def test_round_trip(case: Case) -> None:
    graphs = [case.graph()]
    if case.differentiable:
        gradient = vjp(graphs[0], case.wrt)
        graphs += [gradient.forward, gradient.backward]
    for graph in graphs:
        text = to_source(graph)
        again = parse(text)
        verify(again)
        assert to_source(again) == text
        for a, b in zip(graph.nodes, again.nodes, strict=True):
            assert a.prim is b.prim and list(map(repr, a.params.items())) == list(map(repr, b.params.items()))
    for got, want in zip(run(parse(to_source(graphs[0])), case.arrays), run(graphs[0], case.arrays), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("value", [0.1, -0.0, math.inf, -math.inf, math.nan, 1e-320, 3.0])
def test_numbers_read_back_bit_for_bit(value: float) -> None:
    graph = parse(to_source(trace(lambda: build.full((2,), value, FLOAT64), [])))
    assert repr(graph.nodes[0].params["value"]) == repr(value)


def test_complex_numbers_read_back() -> None:
    graph = parse(to_source(trace(lambda: build.full((), complex(-0.0, math.inf), COMPLEX64), [])))
    assert repr(graph.nodes[0].params["value"]) == repr(complex(-0.0, math.inf))


def test_the_text_is_python_and_runs_over_prim() -> None:
    """It is a function whose only free names are `prim`, dtypes, `float` and `complex`."""
    source = to_source(trace(lambda x: prim.exp(x) * 2.0, [((2,), FLOAT32)]), "body")
    tree = ast.parse(source)
    assert isinstance(tree.body[0], ast.FunctionDef) and tree.body[0].name == "body"
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    free = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} - stored - {"x0"}
    assert free == {"prim", "FLOAT32"}


def test_scalars_given_at_run_time_are_marked() -> None:
    text = to_source(trace(lambda x, a: x * a, [((3,), FLOAT32), ((), FLOAT64, True)]))
    assert 'x1: "float64[] weak"' in text
    assert parse(text).inputs[1].weak


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x = 1", "expected one function"),
        ("def f(x):\n    return x", "annotation"),
        ('def f(x: "float31[2]"):\n    return x', "annotation"),
        ('def f(x: "float32[2]"):\n    y = x.exp()\n    return y', "a call of a primitive"),
        ('def f(x: "float32[2]"):\n    y = prim.exp(z)\n    return y', "a name defined above"),
        ('def f(x: "float32[2]"):\n    y = prim.exp(x)', "does not return"),
        (
            'def f(x: "float32[2]"):\n    y = prim.full(shape=(2,), value=open("a"), dtype=FLOAT32)\n    return y',
            "not a literal",
        ),
        ('def f(x: "float32[2]"):\n    import os\n    return x', "expected `names = prim"),
        ('def f(x: "float32[2]"):\n    x = prim.exp(x)\n    return x', "a new name"),
    ],
)
def test_other_python_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse(text)
