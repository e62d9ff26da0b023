"""Partition of a joint graph into forward and backward, with few saved values between them.

The backward reads some values of the forward.  The choice of those to save, and those to recompute from them, is a
minimum cut (Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016, for the trade; Dinic
for the algorithm): every value of the forward is an edge whose capacity is the cost of saving it, from
sources that cannot be recomputed to the values that the backward reads, and the minimum cut is saved.

Saving an input or an output costs its bytes: it exists anyway.  Saving anything else costs three times its bytes,
because it is written, read and takes memory, plus a constant for one more result.  Matrix products, sorts, scans,
reductions and the like are never recomputed.  An effect happens in the forward, and what it gives is saved.

In a graph with borders (`_prims.borders`) a call is computed as a whole or not at all: saved are inputs and results of
calls, never what is inside of one, so that the sums of a call that is computed again are those of the first time.

A recomputed value must have the same bits: the gradient of a maximum looks for the elements that are equal to it.  That
holds because a primitive is computed the same way wherever it is fused; a code generator that contracts products and
sums at will would break it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rushlight._graph.core import Graph, Node, Value, call_key, live_nodes
from rushlight._types.layout import numel

__all__ = ["Joint", "behind", "is_expensive", "lacking", "partition", "readers_of"]

EXPENSIVE_FAMILIES = frozenset(("heavy", "scan", "reduce", "collective"))
EXPENSIVE = frozenset(("scatter", "index_put", "unwindow"))
EVER = 1 << 60  # above any capacity


def is_expensive(node: Node) -> bool:
    """Whether a node is never recomputed."""
    return node.prim.family in EXPENSIVE_FAMILIES or node.prim.name in EXPENSIVE or node.prim.effect is not None


class Joint(NamedTuple):
    """Forward and backward in one graph."""

    inputs: list[Value]
    outputs: Sequence[Value]
    nodes: list[Node]
    cotangents: list[Value]
    grads: list[Value]


def partition(
    joint: Joint,
    overwritten: Collection[int] = (),
    only: Collection[tuple[str, int]] | None = None,
    besides: Collection[Value] = (),
    unheld: Collection[int] = (),
    after: Collection[Node] = (),
) -> tuple[Graph, Graph, list[tuple[str, int]]]:
    """Forward graph (outputs, then residuals), backward graph (saved values, then cotangents), and the location of each
    saved value.

    `only` lists the available sources if the forward has run already: everything else is recomputed, however expensive.
    NotImplementedError where that is impossible.  `besides` lists inputs that are saved though this backward may not
    read them.  `unheld` lists outputs that the caller may change: others are saved.  `after` lists
    nodes of the backward that may depend on no cotangent: collectives of a process whose part is empty, for example,
    which others wait for there.
    """
    inputs, outputs, nodes, cotangents, grads = joint
    late = _late(nodes, cotangents, after)
    needed = live_nodes(nodes, grads)
    read = _read(needed, late, cotangents, grads) | set(besides)
    locations: dict[Value, tuple[str, int]] = {}
    for j, value in enumerate(outputs):
        if j not in unheld if only is None else ("output", j) in only:
            locations.setdefault(value, ("output", j))
    for i, value in enumerate(inputs):
        if i in overwritten:
            locations.pop(value, None)
        elif only is None or ("input", i) in only:
            locations[value] = ("input", i)
    forward_nodes = {id(n) for n in live_nodes(nodes, outputs)} if only is None else set()
    kept = _Cut(needed, inputs, read, forward_nodes, late, locations, fresh=only is None).values()
    residuals: list[Value] = []
    saved: list[tuple[str, int]] = []
    for value in kept:
        if value not in locations:
            locations[value] = ("residual", len(residuals))
            residuals.append(value)
        saved.append(locations[value])
    everything = [*outputs, *residuals]
    forward = Graph(inputs, live_nodes(nodes, everything), everything)
    return forward, _backward(needed, kept, cotangents, grads), saved


def lacking(joint: Joint, kept: Collection[Value]) -> list[int]:
    """The indices of the inputs that the gradients need in addition to the values in `kept`."""
    inputs, _, nodes, cotangents, grads = joint
    late = _late(nodes, cotangents)
    todo = list(_read(live_nodes(nodes, grads), late, cotangents, grads))
    reached = _behind(todo, kept)
    return [i for i, value in enumerate(inputs) if value in reached and value not in kept]


def behind(values: Sequence[Value], inputs: Sequence[Value]) -> list[int]:
    """The indices of the inputs that the values are computed from."""
    reached = _behind(list(values), ())
    return [i for i, value in enumerate(inputs) if value in reached]


def _behind(todo: list[Value], known: Collection[Value]) -> set[Value]:
    reached: set[Value] = set()
    while todo:
        value = todo.pop()
        if value not in reached and value not in known:
            reached.add(value)
            if value.node is not None:
                todo.extend(value.node.inputs)
    return reached


def _read(needed: Sequence[Node], late: set[Value], cotangents: Sequence[Value], grads: Sequence[Value]) -> set[Value]:
    """The values of the forward that the backward reads."""
    read = {v for node in needed if _is_late(node, late) for v in node.inputs if v not in late and v not in cotangents}
    read.update(g for g in grads if g not in late and g not in cotangents)
    return read


def readers_of(joint: Joint) -> dict[Value, int]:
    """For each value of the forward a bit for each cotangent whose gradients read it, or something computed from it."""
    behind_of = {value: 1 << k for k, value in enumerate(joint.cotangents)}
    found: dict[Value, int] = {}
    for node in joint.nodes:
        bits = 0
        for value in node.inputs:
            bits |= behind_of.get(value, 0)
        if not bits:
            continue
        behind_of.update(dict.fromkeys(node.outputs, bits))
        for value in node.inputs:
            if value not in behind_of:
                found[value] = found.get(value, 0) | bits
    for node in reversed(joint.nodes):
        bits = 0
        for value in node.outputs:
            bits |= found.get(value, 0) if value not in behind_of else 0
        for value in node.inputs if bits else ():
            found[value] = found.get(value, 0) | bits
    return found


def _late(nodes: Sequence[Node], cotangents: Sequence[Value], after: Collection[Node] = ()) -> set[Value]:
    """The values that depend on a cotangent, or on one of the nodes `after`."""
    late, later = set(cotangents), set(map(id, after))
    for node in nodes:
        if id(node) in later or any(v in late for v in node.inputs):
            late.update(node.outputs)
    return late - set(cotangents)


def _is_late(node: Node, late: set[Value]) -> bool:
    return node.outputs[0] in late


@dataclass(frozen=True, slots=True)
class _Cut:
    """The values that are cheapest to save: a minimum cut between the inputs of the forward and the values that are `read`.

    `needed` are the nodes that compute these, `forward` the identities of those whose results are there anyway, and
    `late` the values that only the backward has.  `fresh` allows results that the forward does not return yet.
    """

    needed: Sequence[Node]
    inputs: Sequence[Value]
    read: set[Value]
    forward: set[int]
    late: set[Value]
    locations: dict[Value, tuple[str, int]]
    fresh: bool

    def values(self) -> list[Value]:
        """The values to save, in the order in which they are computed.

        Of a graph with borders values inside of calls are saved only where there is no other way: a backward that was
        derived from the primitives may read them.
        """
        bordered = any(node.prim.name == "border" for node in self.needed)
        for calls in (True, False) if bordered else (False,):
            found = self._found(calls)
            if found is not None:
                return found
        raise NotImplementedError(
            "the backward needs values that were not saved and cannot be computed from those that were"
        )

    def _found(self, calls: bool) -> list[Value] | None:
        """The cut, None where there is none; with `calls` nothing inside of a call is saved."""
        flow = _Flow()
        order: dict[Value, None] = dict.fromkeys(self.inputs)
        for value in self.inputs:
            flow.add("source", (value, 0), EVER)
            flow.add((value, 0), (value, 1), self._cost(value))
        for node in self.needed:
            if _is_late(node, self.late):
                continue
            for value in node.outputs:
                order[value] = None
                flow.add((value, 0), (value, 1), self._cost(value, calls))
                if node.prim.effect is not None or (is_expensive(node) and id(node) in self.forward):
                    flow.add("source", (value, 0), EVER)
                for item in node.inputs:
                    flow.add((item, 1), (value, 0), EVER)
        for value in order:
            if value in self.read:
                flow.add((value, 1), "sink", EVER)
        side = flow.source_side()
        if flow.total >= EVER:
            return None
        return [v for v in order if (v, 0) in side and (v, 1) not in side]

    def _cost(self, value: Value, calls: bool = False) -> int:
        size = numel(value.shape) * value.dtype.itemsize
        if calls and value.node is not None and value.node.prim.name != "border":
            return EVER
        kind = self.locations.get(value, ("residual", 0))[0]
        if value not in self.locations and not self.fresh:
            return EVER
        if kind == "input":
            return 100 * size + 2
        return 99 * size + 1 if kind == "output" else 300 * size + 6400


class _Flow:
    """Maximum flow by blocking flows in layers (Dinic's algorithm)."""

    def __init__(self) -> None:
        self.numbers: dict[object, int] = {}
        self.names: list[object] = []
        # Of each place the numbers of its edges; an edge and its reverse are neighbours
        self.edges: list[list[int]] = []
        self.heads: list[int] = []
        self.room: list[int] = []
        self.total = 0
        self.source, self.sink = self.number("source"), self.number("sink")

    def number(self, name: object) -> int:
        found = self.numbers.get(name)
        if found is None:
            found = self.numbers[name] = len(self.names)
            self.names.append(name)
            self.edges.append([])
        return found

    def add(self, tail: object, head: object, width: int) -> None:
        """Add an edge from tail to head."""
        a, b = self.number(tail), self.number(head)
        self.edges[a].append(len(self.heads))
        self.edges[b].append(len(self.heads) + 1)
        self.heads += [b, a]
        self.room += [width, 0]

    def source_side(self) -> set[object]:
        """The places that the source still reaches at maximum flow."""
        while True:
            depth = self._depths()
            if depth[self.sink] < 0:
                return {self.names[k] for k, d in enumerate(depth) if d >= 0}
            self._block(depth)

    def _depths(self) -> list[int]:
        depth = [-1] * len(self.names)
        depth[self.source] = 0
        layer = [self.source]
        while layer:
            after = []
            for here in layer:
                for edge in self.edges[here]:
                    there = self.heads[edge]
                    if self.room[edge] > 0 and depth[there] < 0:
                        depth[there] = depth[here] + 1
                        after.append(there)
            layer = after
        return depth

    def _block(self, depth: list[int]) -> None:
        """Push along paths from layer to layer until there is none."""
        at = [0] * len(self.names)
        path: list[int] = []
        here = self.source
        while True:
            if here == self.sink:
                width = min(self.room[edge] for edge in path)
                self.total += width
                cut = len(path)
                for k in range(len(path) - 1, -1, -1):
                    self.room[path[k]] -= width
                    self.room[path[k] ^ 1] += width
                    if not self.room[path[k]]:
                        cut = k
                here = self.heads[path[cut] ^ 1]
                del path[cut:]
                continue
            edges = self.edges[here]
            while at[here] < len(edges):
                edge = edges[at[here]]
                if self.room[edge] > 0 and depth[self.heads[edge]] == depth[here] + 1:
                    break
                at[here] += 1
            else:
                if here == self.source:
                    return
                edge = path.pop()
                here = self.heads[edge ^ 1]
                at[here] += 1
                continue
            path.append(edge)
            here = self.heads[edge]


def _backward(
    needed: Sequence[Node], kept: Sequence[Value], cotangents: Sequence[Value], grads: Sequence[Value]
) -> Graph:
    """The nodes from the saved values and the cotangents to the gradients, over inputs of its own."""
    env: dict[Value, Value] = {v: Value(v.shape, v.dtype, weak=v.weak) for v in (*kept, *cotangents)}
    inputs = [env[v] for v in (*kept, *cotangents)]
    wanted = set(grads) - set(env)
    used: list[Node] = []
    for node in reversed(needed):
        if any(v in wanted for v in node.outputs):
            used.append(node)
            wanted.update(v for v in node.inputs if v not in env)
    nodes: dict[Any, Node] = {}  # nodes that were distinct for the choice may now be equal
    for node in reversed(used):
        operands = tuple(env[v] for v in node.inputs)
        key = call_key(node.prim, operands, node.params)
        copy = nodes.get(key)
        if copy is None:
            copy = nodes[key] = Node(node.prim, operands, node.params, [(v.shape, v.dtype) for v in node.outputs])
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            env.setdefault(old, new)
    return Graph(inputs, list(nodes.values()), [env[g] for g in grads])
