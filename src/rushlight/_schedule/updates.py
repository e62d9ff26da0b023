"""Outputs that are an input with a part of it changed: only that part is computed and written.

An in-place change of a view is, as a graph, an array as large as the whole memory: `select(mask, pad(part), x)`.  Where
the output is written into the memory of `x`, everything outside the part is there already.  The same holds for a
scatter into a transposed view of the memory.

    graph, places = narrowed(graph, layouts, {0: 2})      # output 0 is written into input 2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._graph.core import Graph
from rushlight._types.layout import numel, view_strides

if TYPE_CHECKING:
    from rushlight._graph.core import Node, Value

__all__ = ["Place", "base_of", "layout_of", "narrowed"]

_WRITES = ("scatter", "index_write")


class Place(NamedTuple):
    """Where an output lies in the memory of an input: strides, and the offset of its first element, in elements."""

    strides: tuple[int, ...]
    offset: int


def narrowed(
    graph: Graph, layouts: Sequence[Sequence[int] | None], aliases: Mapping[int, int]
) -> tuple[Graph, dict[int, Place]]:
    """The graph whose outputs are what has to be written of them, and the places of those that are parts of an input.

    `aliases[output] = input` as for `compile_graph`.
    """
    users: dict[int, int] = {}
    for value in (*graph.outputs, *(x for node in graph.nodes for x in node.inputs)):
        users[id(value)] = users.get(id(value), 0) + 1
    outputs, places = list(graph.outputs), dict[int, Place]()
    for i, k in aliases.items():
        strides = layouts[k]
        if strides is None or graph.inputs[k].dtype is not outputs[i].dtype:
            continue
        found = _Narrowing(graph.inputs[k], tuple(strides), users).run(outputs[i])
        if found is not None:
            outputs[i], places[i] = found
    if not places:
        return graph, places
    return Graph(graph.inputs, _live(graph.nodes, outputs), outputs), places


def base_of(graph: Graph, layouts: Sequence[Sequence[int] | None], strides: Sequence[int], output: int) -> int | None:
    """The number of the input that an output, which lies with `strides`, changes at most half of; None where there is
    none.
    """
    value = graph.outputs[output]
    for k, (x, lies) in enumerate(zip(graph.inputs, layouts, strict=True)):
        if lies is None or tuple(lies) != tuple(strides) or tuple(x.shape) != tuple(value.shape):
            continue
        narrow, places = narrowed(graph, layouts, {output: k})
        if not places:
            continue
        part = narrow.outputs[output]
        if part.node is not None and part.node.prim.lower[0] in _WRITES:
            part = part.node.inputs[1]
        if 2 * numel(part.shape) <= numel(value.shape):
            return k
    return None


def _live(nodes: Sequence[Node], outputs: Sequence[Value]) -> list[Node]:
    """The nodes that outputs are computed from."""
    wanted, live = {id(v) for v in outputs}, []
    for node in reversed(nodes):
        if any(id(v) in wanted for v in node.outputs):
            live.append(node)
            wanted.update(id(v) for v in node.inputs)
    return live[::-1]


def layout_of(value: Value, root: Value, strides: Sequence[int]) -> tuple[tuple[int, ...], Place] | None:
    """The shape and place of a value that is a view of an input; None for other values."""
    chain: list[Node] = []
    while value is not root:
        node = value.node
        if node is None or node.prim.layout is None or len(node.inputs) != 1:
            return None
        chain.append(node)
        value = node.inputs[0]
    found: Any = tuple(root.shape), tuple(strides), 0
    for node in reversed(chain):
        found = node.prim.layout(*found, **node.params)  # type: ignore[misc]
        if found is None:
            return None
    shape, steps, offset = found
    return tuple(shape), Place(tuple(steps), offset)


class _Narrowing:
    """Follows an output back to what is written, and where that lies in the memory of `root`."""

    def __init__(self, root: Value, strides: tuple[int, ...], users: Mapping[int, int]) -> None:
        self.root, self.strides, self.users = root, strides, users

    def run(self, value: Value) -> tuple[Value, Place] | None:
        """None for outputs that are written whole, as they are."""
        place: Place | None = Place(self.strides, 0)
        found: tuple[Value, Place] | None = None
        if tuple(value.shape) != tuple(self.root.shape):
            return None
        while place is not None and self.users.get(id(value)) == 1:
            node = value.node
            if node is None:
                break
            if node.prim.lower[0] in _WRITES:
                return (value, place) if self.is_at(node.inputs[0], place) else found
            inner = self.before(node, place)
            if inner is None:
                break
            value, place = inner
            if node.prim.name == "select":
                found = value, place
        return found

    def before(self, node: Node, place: Place) -> tuple[Value, Place] | None:
        """A view's input, or the part that a `select` puts into the memory; and its place."""
        name = node.prim.name
        if name == "transpose":
            perm = node.params["perm"]
            return node.inputs[0], Place(tuple(place.strides[perm.index(d)] for d in range(len(perm))), place.offset)
        if name == "reshape":
            x = node.inputs[0]
            strides = view_strides(node.outputs[0].shape, place.strides, x.shape)
            return None if strides is None else (x, Place(strides, place.offset))
        return self.part(node, place) if name == "select" else None

    def part(self, node: Node, place: Place) -> tuple[Value, Place] | None:
        """The part that `select(mask, pad(part), x)` writes over `x`, with its place."""
        inside, spread, x = node.inputs[0].node, node.inputs[1].node, node.inputs[2]
        if inside is None or spread is None or inside.prim.name != "pad" or spread.prim.name != "pad":
            return None
        full, edges = inside.inputs[0].node, ("lo", "hi", "interior")
        if full is None or full.prim.name != "full" or not full.params["value"] or inside.params["value"]:
            return None
        if any(inside.params[e] != spread.params[e] for e in edges) or not self.is_at(x, place):
            return None
        part = spread.inputs[0]
        if part.shape != inside.inputs[0].shape or not numel(part.shape):
            return None
        offset = place.offset + sum(n * s for n, s in zip(spread.params["lo"], place.strides, strict=True))
        steps = zip(place.strides, spread.params["interior"], strict=True)
        return part, Place(tuple(s * (gap + 1) for s, gap in steps), offset)

    def is_at(self, value: Value, place: Place) -> bool:
        """Whether a value is the view of the memory at a place."""
        found = layout_of(value, self.root, self.strides)
        if found is None or found[1].offset != place.offset:
            return False
        return all(a == b for n, a, b in zip(value.shape, found[1].strides, place.strides, strict=True) if n != 1)
