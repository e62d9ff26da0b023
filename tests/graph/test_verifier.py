"""The verifier finds what is wrong with a graph and shows where."""

from __future__ import annotations

import pytest

from rushlight._graph.core import Graph, Node, Value, trace
from rushlight._graph.verifier import GraphError, verify
from rushlight._prims import prim
from rushlight._types.dtype import FLOAT32, FLOAT64


@pytest.fixture
def graph() -> Graph:
    return trace(lambda x, y: prim.exp(prim.sin(x) * y), [((3,), FLOAT32), ((3,), FLOAT32)])


def test_good_graphs_pass(graph: Graph) -> None:
    verify(graph)
    verify(Graph([], [], []))


def test_wrong_order(graph: Graph) -> None:
    with pytest.raises(GraphError, match="read before it is made") as found:
        verify(Graph(graph.inputs, graph.nodes[::-1], graph.outputs))
    assert "-> v0 = prim.exp(v1)" in str(found.value)


def test_a_node_twice(graph: Graph) -> None:
    with pytest.raises(GraphError, match="result 0 is made twice"):
        verify(Graph(graph.inputs, [*graph.nodes, graph.nodes[-1]], graph.outputs))


def test_an_input_twice(graph: Graph) -> None:
    with pytest.raises(GraphError, match="input 1 is there twice"):
        verify(Graph([graph.inputs[0]] * 2, graph.nodes, graph.outputs))


def test_an_input_that_a_node_made(graph: Graph) -> None:
    with pytest.raises(GraphError, match=r"input 0 is made by prim\.sin"):
        verify(Graph([graph.nodes[0].outputs[0]], [], []))


def test_an_output_from_elsewhere(graph: Graph) -> None:
    with pytest.raises(GraphError, match=r"output 0 \(float32\[3\]\) is not made"):
        verify(Graph(graph.inputs, graph.nodes[:-1], graph.outputs))


def test_operands_that_the_spec_refuses(graph: Graph) -> None:
    x = Value((3,), FLOAT32)
    y = Value((4,), FLOAT32)
    node = Node(prim.add, (x, y), {}, [((3,), FLOAT32)])
    with pytest.raises(GraphError, match=r"spec refuses the operands: prim\.add takes operands of one shape"):
        verify(Graph([x, y], [node], node.outputs))


@pytest.mark.parametrize("promised", [((4,), FLOAT32), ((3,), FLOAT64)])
def test_results_other_than_promised(promised) -> None:
    x = Value((3,), FLOAT32)
    node = Node(prim.exp, (x,), {}, [promised])
    with pytest.raises(GraphError, match=r"its spec says float32\[3\]"):
        verify(Graph([x], [node], node.outputs))


def test_wrong_number_of_results() -> None:
    x = Value((3,), FLOAT32)
    node = Node(prim.exp, (x,), {}, [((3,), FLOAT32)] * 2)
    with pytest.raises(GraphError, match="has 2 results, its spec says 1"):
        verify(Graph([x], [node], node.outputs))


def test_long_graphs_show_the_lines_around_the_fault() -> None:
    def chain(x):
        for _ in range(20):
            x = prim.exp(x)
        return x

    graph = trace(chain, [((3,), FLOAT32)])
    nodes = list(graph.nodes)
    nodes[10], nodes[11] = nodes[11], nodes[10]
    with pytest.raises(GraphError) as found:
        verify(Graph(graph.inputs, nodes, graph.outputs))
    text = str(found.value)
    assert text.count("prim.exp(") == 9 and text.count("   ...") == 2
