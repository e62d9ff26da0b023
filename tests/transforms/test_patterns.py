"""Patterns: where they are found, where not, what stands there afterwards, and the check of their two functions."""

from __future__ import annotations

import math

import pytest

from rushlight._backends.reference import run
from rushlight._graph.core import GraphBuilder, trace
from rushlight._graph.verifier import verify
from rushlight._prims import build
from rushlight._prims.effects import prim
from rushlight._prims.samples import floats
from rushlight._transforms.patterns import Pattern, PatternError, replaced
from rushlight._types.dtype import FLOAT32, FLOAT64

THREE = ((3,), FLOAT64)
NUMBER = ((), FLOAT64)


def spread(n, like):
    return build.broadcast_to(n, like.shape)


GELU = Pattern(
    lambda x, n: x * 0.5 * (1.0 + prim.erf(x * spread(n, x))), lambda x, n: x * prim.tanh(x * spread(n, x)), [THREE, NUMBER]
)  # fmt: skip
SQUARE = Pattern(lambda x, y: x * y + x, lambda x, y: x * (y + 1.0), [THREE, THREE], name="square")


def names(graph):
    return [node.prim.name for node in graph.nodes]


def test_operands_of_commutative_primitives_may_be_exchanged():
    for function in (lambda x, y: y * x + x, lambda x, y: x + x * y, lambda x, y: x + y * x):
        graph = trace(function, [((4, 5), FLOAT64)] * 2)
        made, count = replaced(graph, [SQUARE])
        assert count == 1
        verify(made)
        arrays = [floats((4, 5), 1), floats((4, 5), 2)]
        assert abs(run(made, arrays)[0] - run(graph, arrays)[0]).max() < 1e-12
    assert replaced(trace(lambda x, y: y * x + y * 2.0, [THREE, THREE]), [SQUARE])[1] == 0


def test_numbers_are_found_as_constants():
    root = math.sqrt(0.5)
    graph = trace(lambda x: x * 0.5 * (1.0 + prim.erf(x * root)), [((7,), FLOAT64)])
    made, count = replaced(graph, [GELU])
    assert count == 1 and "erf" not in names(made)
    assert root in [node.params["value"] for node in made.nodes if node.prim.name == "full"]
    other = trace(lambda x: x * 0.4 * (1.0 + prim.erf(x * root)), [((7,), FLOAT64)])
    assert replaced(other, [GELU])[1] == 0  # another constant than the pattern's


def test_what_others_need_stays():
    inside = trace(lambda x, y: (x * y + x, x * y), [THREE, THREE])
    assert replaced(inside, [SQUARE])[1] == 0
    whole = trace(lambda x, y: (x * y + x, prim.exp(x * y + x)), [THREE, THREE])
    assert replaced(whole, [SQUARE])[1] == 1


def test_matches_do_not_overlap():
    graph = trace(lambda x, y: (x * y + x) * y + (x * y + x), [THREE, THREE])
    made, count = replaced(graph, [SQUARE])
    assert count >= 1
    arrays = [floats((3,), 1), floats((3,), 2)]
    assert abs(run(made, arrays)[0] - run(graph, arrays)[0]).max() < 1e-12


def test_patterns_reach_over_calls():
    builder = GraphBuilder()
    x, y = builder.input((3,), FLOAT64), builder.input((3,), FLOAT64)
    with builder:
        (product,) = prim.border(prim.operand(x, call=0) * prim.operand(y, call=0), strides=((1,),))
        (total,) = prim.border(prim.operand(product, call=1) + prim.operand(x, call=1), strides=((1,),))
    made, count = replaced(builder.finish([total]), [SQUARE])
    assert count == 1 and names(made).count("border") == 1
    builder = GraphBuilder()
    x, y = builder.input((3,), FLOAT64), builder.input((3,), FLOAT64)
    logs = Pattern(lambda a, b: prim.log(a) + prim.log(b), lambda a, b: prim.log(a * b), [THREE, THREE])
    with builder:
        parts = [prim.border(prim.log(prim.operand(v, call=0)), strides=((1,),))[0] for v in (x, y)]
        (total,) = prim.border(prim.operand(parts[0], call=2) + prim.operand(parts[1], call=2), strides=((1,),))
    made, count = replaced(builder.finish([total]), [logs])
    assert count == 1 and names(made).count("border") == 1 and names(made).count("log") == 1


def test_operands_may_be_refused():
    small = Pattern(SQUARE.search, SQUARE.replace, SQUARE.example, accepts=lambda x, y: x.shape[0] < 4)
    for size, wanted in ((3, 1), (5, 0)):
        assert replaced(trace(lambda x, y: x * y + x, [((size,), FLOAT64)] * 2), [small])[1] == wanted


def test_both_functions_are_compared():
    GOOD = Pattern(lambda x: prim.neg(prim.neg(x)), lambda x: x * 1.0, [THREE], exact=True)
    GOOD.check()
    SQUARE.check()
    with pytest.raises(PatternError, match="differ by"):
        Pattern(SQUARE.search, lambda x, y: x * y, SQUARE.example).check()
    with pytest.raises(PatternError, match="differ by"):
        Pattern(SQUARE.search, SQUARE.replace, SQUARE.example, exact=True).check()
    with pytest.raises(PatternError, match=r"float64\[3\] would become float32\[3\]"):
        Pattern(lambda x: prim.exp(x), lambda x: prim.convert(prim.exp(x), dtype=FLOAT32), [THREE]).check()
    with pytest.raises(PatternError, match="computes nothing"):
        Pattern(lambda x: x, lambda x: x, [THREE])
