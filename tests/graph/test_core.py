"""Building graphs, walking them, and the kind layer of operator bodies."""

from __future__ import annotations

import numpy as np
import pytest

from rushlight._backends.reference import run
from rushlight._graph.core import GraphBuilder, evaluate, trace
from rushlight._graph.interpreter import count, expand
from rushlight._graph.rewrite import rewrite, rule
from rushlight._prims import build, prim
from rushlight._types.dtype import BFLOAT16, FLOAT32, FLOAT64, INT64


def test_equal_calls_become_one_node() -> None:
    graph = trace(lambda x: prim.exp(x) + prim.exp(x), [((2,), FLOAT32)])
    assert [n.prim.name for n in graph.nodes] == ["exp", "add"]


@pytest.mark.parametrize(("a", "b"), [(0.0, -0.0), (1.0, 1), (True, 1), (0.0, 0)])
def test_constants_that_only_look_equal_stay_two(a, b) -> None:
    with GraphBuilder() as builder:
        prim.full(shape=(2,), value=a, dtype=FLOAT32)
        prim.full(shape=(2,), value=b, dtype=FLOAT32)
    assert len(builder.nodes) == 2


def test_dead_nodes_are_dropped() -> None:
    graph = trace(lambda x: (prim.sin(x), prim.cos(x))[1], [((2,), FLOAT32)])
    assert [n.prim.name for n in graph.nodes] == ["cos"]


def test_operators_broadcast_and_take_numbers() -> None:
    graph = trace(lambda x, y: 2.0 - x * y / 4.0, [((3, 1), FLOAT64), ((4,), FLOAT64)])
    x, y = np.arange(3.0).reshape(3, 1), np.arange(4.0)
    np.testing.assert_array_equal(run(graph, [x, y])[0], 2 - x * y / 4)


def test_weak_scalars_take_the_dtype_of_what_they_meet() -> None:
    graph = trace(lambda x, a: x * a + a, [((3,), FLOAT32), ((), FLOAT64, True)])
    assert graph.outputs[0].dtype is FLOAT32
    np.testing.assert_array_equal(run(graph, [np.ones(3, "float32"), 2.5])[0], np.full(3, 5.0, "float32"))


def test_values_have_no_truth() -> None:
    with pytest.raises(TypeError, match="no truth"):
        trace(lambda x: x if x > 0.0 else -x, [((), FLOAT32)])


def test_evaluate_copies_a_graph_into_the_current_builder() -> None:
    graph = trace(lambda x: prim.exp(x) * 2.0, [((2,), FLOAT32)])
    twice = trace(lambda x: evaluate(graph, evaluate(graph, [x])), [((2,), FLOAT32)])
    assert [n.prim.name for n in twice.nodes] == ["exp", "full", "mul", "exp", "mul"]
    with pytest.raises(TypeError, match="1 inputs, got 2"):
        evaluate(graph, [1, 2])


def test_expand_replaces_what_is_not_claimed() -> None:
    p = {"stride": (1,), "padding": (1,), "dilation": (1,), "groups": 1}
    graph = trace(lambda x, w: prim.conv(x, w, **p), [((2, 3, 8), FLOAT64), ((4, 3, 3), FLOAT64)])
    assert count(expand(graph, lambda node: True)) == {"conv": 1}
    simple = expand(graph, lambda node: node.prim.name != "conv")
    assert "conv" not in count(simple) and count(simple)["dot"] == 1
    arrays = [np.random.default_rng(i).normal(size=v.shape) for i, v in enumerate(graph.inputs)]
    np.testing.assert_allclose(run(simple, arrays)[0], run(graph, arrays)[0])


def test_rewriting_reaches_a_fixed_point_in_one_walk() -> None:
    @rule("exp")
    def exp_of_log(node):
        """exp log x = x"""
        (x,) = node.inputs
        return x.node.inputs[0] if x.node is not None and x.node.prim.name == "log" else None

    @rule("sin")
    def sin_as_cos(node):
        """a rule whose result is rewritten in turn"""
        return prim.exp(prim.log(prim.cos(node.inputs[0])))

    graph = trace(lambda x: prim.exp(prim.log(prim.exp(prim.log(prim.sin(x))))), [((2,), FLOAT64)])
    assert [n.prim.name for n in rewrite(graph, [exp_of_log, sin_as_cos]).nodes] == ["cos"]


def test_sums_and_adds_of_half_types_go_through_single() -> None:
    graph = trace(lambda x: (build.total(x, (0,)), build.add_any(x, x)), [((3,), BFLOAT16)])
    assert [v.dtype for v in graph.outputs] == [BFLOAT16, BFLOAT16]
    assert all(n.outputs[0].dtype is FLOAT32 for n in graph.nodes if n.prim.name in ("sum", "add"))


def test_pad_cuts_where_it_is_negative() -> None:
    x = np.arange(5)
    for lo, hi in ((1, 2), (-1, 2), (2, -3), (-2, -1), (0, 0)):
        graph = trace(lambda v, a=lo, b=hi: build.pad(v, (a,), (b,), (0,), value=9), [((5,), INT64)])
        want = np.pad(x, (max(lo, 0), max(hi, 0)), constant_values=9)
        want = want[max(-lo, 0) : len(want) - max(-hi, 0)]
        np.testing.assert_array_equal(run(graph, [x])[0], want)


def test_sum_to_undoes_broadcast() -> None:
    for shape, target in (((3, 1), (2, 3, 4)), ((), (2,)), ((2, 3), (2, 3)), ((1, 3), (4, 3))):
        graph = trace(lambda x, s=shape: build.sum_to(x, s), [(target, FLOAT64)])
        assert graph.outputs[0].shape == shape
        np.testing.assert_allclose(run(graph, [np.ones(target)])[0], np.full(shape, np.prod(target) / np.prod(shape)))
