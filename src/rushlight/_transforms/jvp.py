"""Forward mode: a graph that computes results together with their tangents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._base.errors import NotDifferentiableError
from rushlight._graph.core import Graph, Node, Value, evaluate
from rushlight._graph.rewrite import RewritingBuilder
from rushlight._prims import build
from rushlight._prims.record import ByDecomposition, not_differentiable
from rushlight._transforms.simplify import EXACT
from rushlight._transforms.vjp import carries_gradient, decomposed

__all__ = ["jvp"]


def jvp(graph: Graph, tangent_mask: Sequence[bool]) -> Graph:
    """The graph with tangents: inputs are those of `graph`, then a tangent for each input that `tangent_mask` marks;
    outputs are those of `graph`, then a tangent for each output of float or complex dtype (zeros where no marked input
    reaches it).

    RuntimeError if a marked input reaches a primitive without a derivative.
    """
    builder = RewritingBuilder(EXACT)
    env = {v: builder.input_like(v) for v in graph.inputs}
    tangents = {
        env[v]: builder.input(v.shape, v.dtype) for v, flag in zip(graph.inputs, tangent_mask, strict=True) if flag
    }
    with builder:
        for node in graph.nodes:
            inputs = [env[v] for v in node.inputs]
            result = node.prim(*inputs, **node.params)
            results = result if node.prim.multiple else (result,)
            env.update(zip(node.outputs, results, strict=True))
            changes = [tangents.get(v) for v in inputs]
            if any(t is not None for t in changes):
                _push_forward(node, changes, inputs, results, tangents)
        outputs = [env[v] for v in graph.outputs]
        moved = [tangents.get(v) for v in outputs if carries_gradient(v.dtype)]
        shown = [v for v in outputs if carries_gradient(v.dtype)]
        extra = [build.zeros_like(v) if t is None else t for v, t in zip(shown, moved, strict=True)]
    return builder.finish([*outputs, *extra])


def _push_forward(
    node: Node, changes: list[Value | None], inputs: list[Value], results: Sequence[Value], tangents: dict[Value, Any]
) -> None:
    """Store the tangents of one node's results."""
    if not any(carries_gradient(v.dtype) for v in results):
        return
    rule = node.prim.jvp
    if isinstance(rule, not_differentiable):
        raise NotDifferentiableError(f"the derivative of prim.{node.prim.name} is not implemented: {rule.why}")
    if isinstance(rule, ByDecomposition):
        emitted = results[0].node
        assert emitted is not None
        pushed = _through(emitted, tangents)
    else:
        pushed = rule(changes, tuple(results) if node.prim.multiple else results[0], *inputs, **node.params)
    for value, tangent in zip(results, pushed if node.prim.multiple else (pushed,), strict=True):
        if tangent is not None:
            if tangent.shape != value.shape or tangent.dtype is not value.dtype:
                raise AssertionError(
                    f"the jvp of prim.{node.prim.name} gave {tangent.dtype.name}{list(tangent.shape)} "
                    f"for a result that is {value.dtype.name}{list(value.shape)}"
                )
            tangents[value] = tangent


def _through(node: Node, tangents: dict[Value, Any]) -> Any:
    """The tangents of a primitive's results, through its decomposition."""
    graph, inputs = decomposed(node)
    input_tangents = [tangents.get(v) for v in inputs]
    whole = jvp(graph, [t is not None for t in input_tangents])
    flat = iter(evaluate(whole, [*inputs, *(t for t in input_tangents if t is not None)])[len(graph.outputs) :])
    output_tangents = tuple(next(flat) if carries_gradient(v.dtype) else None for v in graph.outputs)
    return output_tangents if node.prim.multiple else output_tangents[0]
