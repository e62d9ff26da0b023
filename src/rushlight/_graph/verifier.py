"""Checking a graph: order, uniqueness, effects, and every spec again.

>>> from rushlight._graph.core import trace
>>> from rushlight._graph.verifier import verify
>>> from rushlight._types.dtype import FLOAT32
>>> verify(trace(lambda x: x + 1.0, [((3,), FLOAT32)]))
"""

from __future__ import annotations

from rushlight._graph.core import Graph, Node, Reference, Value
from rushlight._graph.printer import describe, line, name_values
from rushlight._prims.effects import EFFECTS
from rushlight._prims.record import PRIMITIVES

__all__ = ["GraphError", "verify"]

AROUND = 4  # lines shown before and after a fault


class GraphError(AssertionError):
    """A graph breaks a rule; the text shows where."""


def verify(graph: Graph) -> None:
    """GraphError unless every value is made once and before it is read, and every node has the results its spec
    promises.

    A reference must not be used after an effect has replaced it, and what became of an input that effects change must
    be an output.
    """
    known: set[Value] = set()
    replaced: dict[Value, Node] = {}
    for i, value in enumerate(graph.inputs):
        if value in known:
            raise GraphError(f"input {i} is there twice\n{_excerpt(graph, None)}")
        if value.node is not None:
            raise GraphError(f"input {i} is made by prim.{value.node.prim.name}\n{_excerpt(graph, None)}")
        known.add(value)
    for node in graph.nodes:
        fault = _check_node(node, known) or _check_references(node, replaced)
        if fault:
            raise GraphError(f"prim.{node.prim.name}: {fault}\n{_excerpt(graph, node)}")
        known.update(node.outputs)
        if node.prim.effect is not None and node.prim.effect.replaces:
            replaced[node.inputs[0]] = node
    for j, value in enumerate(graph.outputs):
        if value not in known:
            raise GraphError(f"output {j} ({describe(value)}) is not made in this graph\n{_excerpt(graph, None)}")
        if value in replaced:
            raise GraphError(f"output {j} ({describe(value)}) was replaced\n{_excerpt(graph, replaced[value])}")
    _check_last(graph, replaced)


def _check_references(node: Node, replaced: dict[Value, Node]) -> str:
    """The fault in the references that a node takes and gives, or ""."""
    effect = node.prim.effect
    for i, value in enumerate(node.inputs):
        wanted = effect.reference if effect is not None and effect.takes_reference and i == 0 else ""
        found = value.kind if isinstance(value, Reference) else ""
        if found != wanted:
            return f"operand {i} ({describe(value)}) is not {f'a reference to a {wanted}' if wanted else 'an array'}"
        if value in replaced:
            return (
                f"operand {i} ({describe(value)}) was replaced by prim.{replaced[value].prim.name}, which comes before"
            )
    for i, value in enumerate(node.outputs):
        wanted = effect.reference if effect is not None and effect.makes_reference and i == 0 else ""
        if (value.kind if isinstance(value, Reference) else "") != wanted:
            return f"result {i} ({describe(value)}) is not {f'a reference to a {wanted}' if wanted else 'an array'}"
    return ""


def _check_last(graph: Graph, replaced: dict[Value, Node]) -> None:
    """GraphError where an effect on an input is lost."""
    outputs = set(graph.outputs)
    for i, value in enumerate(graph.inputs):
        last, node = value, None
        while last in replaced:
            node = replaced[last]
            last = node.outputs[0]
        if node is not None and last not in outputs:
            raise GraphError(
                f"no output holds what effects make of input {i} ({describe(value)}): they would be lost\n{_excerpt(graph, node)}"
            )


def _check_node(node: Node, known: set[Value]) -> str:
    """The fault of a node, or ""."""
    if (PRIMITIVES.get(node.prim.name) or EFFECTS.get(node.prim.name)) is not node.prim:
        return "is not in the table of primitives"
    for i, value in enumerate(node.inputs):
        if value not in known:
            return f"operand {i} ({describe(value)}) is read before it is made"
    try:
        avals = node.prim.spec(*node.inputs, **node.params)
    except Exception as error:  # any error of a spec is the fault to report
        return f"its spec refuses the operands: {error}"
    promised = avals if node.prim.multiple else [avals]
    if len(promised) != len(node.outputs):
        return f"has {len(node.outputs)} results, its spec says {len(promised)}"
    for i, (value, (shape, dtype)) in enumerate(zip(node.outputs, promised, strict=True)):
        if value in known:
            return f"result {i} is made twice"
        if value.node is not node or value.index != i:
            return f"result {i} does not know that this node made it"
        if value.shape != tuple(shape) or value.dtype is not dtype:
            return f"result {i} is {describe(value)}, its spec says {dtype.name}{list(shape)}"
    return ""


def _excerpt(graph: Graph, fault: Node | None) -> str:
    """The lines around the fault, which is marked."""
    names = name_values(graph)
    lines = [f"inputs: {', '.join(f'{names[v]}: {describe(v)}' for v in graph.inputs)}"]
    at = next((i for i, node in enumerate(graph.nodes) if node is fault), len(graph.nodes))
    first, last = max(0, at - AROUND), min(len(graph.nodes), at + AROUND + 1)
    lines += ["   ..."] * (first > 0)
    for node in graph.nodes[first:last]:
        lines.append(("-> " if node is fault else "   ") + line(node, names))
    lines += ["   ..."] * (last < len(graph.nodes))
    lines.append(f"outputs: {', '.join(names.get(v, '?') for v in graph.outputs)}")
    return "\n".join(lines)
