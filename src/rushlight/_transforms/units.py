"""A program's graph as its calls: small graphs over values in memory, each computed as an operator computes it.

A call ends at a `border`, which says how its results lie, and begins at operands, which are views of memory: of inputs
and of results of other calls.  What is between operands and border is the call's graph.  Two calls with equal keys are
the same computation on other memory.

    units = cut(graph, layouts)          # in the order of the graph
    units.units[0].graph, units.units[0].layouts, units.units[0].strides
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._graph.core import Graph, Node, Value, _freeze
from rushlight._prims.record import Primitive
from rushlight._types.layout import is_dense, numel

__all__ = ["Key", "Number", "Operand", "Unit", "Units", "cut", "graph_key", "layouts_of"]

Strides = tuple[int, ...]
Views = tuple[tuple[Primitive, dict[str, Any]], ...]


class Operand:
    """A view of a value in memory: `base` is an input of the program or a result of a call, `views` lead from it here.

    `offset` counts elements from where the base begins.
    """

    __slots__ = ("base", "key", "offset", "shape", "strides", "views")

    def __init__(self, base: Value, views: Views, shape: Strides, strides: Strides, offset: int) -> None:
        self.base, self.views, self.shape, self.strides, self.offset = base, views, shape, strides, offset
        self.key = (id(base), shape, strides, offset)


class Number:
    """A number that a call is given: an input of the program (`base`), or `content`."""

    __slots__ = ("base", "content", "key")

    def __init__(self, base: Value | None, content: Any = None) -> None:
        self.base, self.content = base, content
        self.key = (id(base),) if base is not None else ("number", _freeze(content))


class Key:
    """The key of a call: a tuple whose hash, that of all its nodes, is computed once."""

    __slots__ = ("_hash", "parts")

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Key) and self._hash == other._hash and self.parts == other.parts)


class Unit:
    """A call: `graph` over `operands`, whose strides are `layouts` (None: a number), gives `results`, which lie with
    `strides`.

    `lanes` fixes how many lanes and vectors sums along rows have, where those of another graph are to be kept.  `key`
    is that of a call that is alike, where one is known: both have the same graph then.
    """

    __slots__ = ("graph", "key", "lanes", "layouts", "operands", "results", "strides")

    def __init__(
        self,
        graph: Graph,
        operands: Sequence[Operand | Number],
        results: Sequence[Value],
        strides: Sequence[Strides],
        lanes: tuple[int, int] | None = None,
        key: Key | None = None,
    ) -> None:
        self.lanes = lanes
        self.graph, self.operands, self.results, self.strides = graph, tuple(operands), tuple(results), tuple(strides)
        self.layouts = layouts_of(operands)
        self.key = Key((*graph_key(graph, self.layouts, self.strides), lanes)) if key is None else key

    def __repr__(self) -> str:
        return f"Unit({', '.join(node.prim.name for node in self.graph.nodes) or 'copy'})"


class Units:
    """The calls of a program in order.  `outputs` are its results: inputs of the program, or results of calls."""

    __slots__ = ("inputs", "layouts", "outputs", "units")

    def __init__(
        self, inputs: Sequence[Value], layouts: Sequence[Any], units: Sequence[Unit], outputs: Sequence[Value]
    ) -> None:
        self.inputs, self.layouts, self.units, self.outputs = tuple(inputs), tuple(layouts), list(units), list(outputs)


def layouts_of(operands: Sequence[Operand | Number]) -> tuple[Strides | None, ...]:
    """The strides of operands, None for numbers."""
    return tuple([o.strides if isinstance(o, Operand) else None for o in operands])


def graph_key(graph: Graph, layouts: Sequence[Any], strides: Sequence[Any]) -> Any:
    """A key that graphs which compute the same over memory that lies the same have in common."""
    numbers: dict[int, int] = {id(v): k for k, v in enumerate(graph.inputs)}
    nodes = []
    for node in graph.nodes:
        params = tuple([(k, _freeze(v)) for k, v in node.params.items()])
        nodes.append((node.prim.name, tuple([numbers[id(v)] for v in node.inputs]), params))
        for v in node.outputs:
            numbers[id(v)] = len(numbers)
    inputs = tuple([(v.shape, v.dtype, v.weak) for v in graph.inputs])
    return inputs, tuple(nodes), tuple([numbers[id(v)] for v in graph.outputs]), tuple(layouts), tuple(strides)


def cut(graph: Graph, layouts: Sequence[Any], out_strides: Sequence[Strides], common: bool = True) -> Units:
    """The calls of a graph with borders; outputs that are no results of calls are copied, so that all are.

    `common`: calls of the same computation on the same memory are one.
    """
    cutter = _Cutter(graph, layouts, common)
    for node in graph.nodes:
        if node.prim.name == "border":
            cutter.call(node.inputs, node.outputs, node.params["strides"])
    outputs = []
    for value, strides in zip(graph.outputs, out_strides, strict=True):
        outputs.append(cutter.output(value, tuple(strides)))
    return Units(graph.inputs, layouts, cutter.units, outputs)


class _Cutter:
    """Collects calls.  `lies` has the strides of values that lie in memory, by id."""

    def __init__(self, graph: Graph, layouts: Sequence[Any], common: bool) -> None:
        self.common, self.inputs = common, set(graph.inputs)
        self.lies: dict[int, Strides | None] = {
            id(v): None if s is None else tuple(s) for v, s in zip(graph.inputs, layouts, strict=True)
        }
        self.order = {id(node): k for k, node in enumerate(graph.nodes)}
        self.units: list[Unit] = []
        self._same: dict[Any, Unit] = {}
        self._alike: dict[Any, tuple[Graph, Key]] = {}  # graphs and keys of calls that were met before
        self._now: dict[int, Value] = {}  # results of calls that were made before are those

    def call(self, wanted: Sequence[Value], results: Sequence[Value], strides: Sequence[Strides]) -> None:
        """Add the call that makes `wanted`, which lie in memory as `results`; what lies there already needs no call."""
        made: list[tuple[Value, Value, Strides]] = []
        for value, result, lies in zip(wanted, results, strides, strict=True):
            there = self._operand(value)
            whole = isinstance(there, Operand) and not there.views and there.strides == tuple(lies)
            if whole:
                assert isinstance(there, Operand)
                self._now[id(result)] = there.base
            else:
                made.append((value, result, tuple(lies)))
            self.lies[id(result)] = tuple(lies)
        if made:
            self._make(made)

    def _make(self, made: Sequence[tuple[Value, Value, Strides]]) -> None:
        unit = self._unit([value for value, _, _ in made], [r for _, r, _ in made], tuple([s for _, _, s in made]))
        key = unit.key, tuple([o.key for o in unit.operands])
        known = self._same.setdefault(key, unit) if self.common else unit
        if known is unit:
            self.units.append(unit)
        for (_, result, _), found in zip(made, known.results, strict=True):
            self._now[id(result)] = found

    def output(self, value: Value, strides: Strides) -> Value:
        """A result of a call for an output of the program, which has its memory; one that is an input is copied."""
        there = self._given(value)
        if isinstance(there, Operand) and there.base not in self.inputs and there.strides == strides:
            base, lies = there.base, self.lies[id(there.base)]
            assert lies is not None
            whole = not there.offset and numel(base.shape) == numel(value.shape) and is_dense(base.shape, lies)
            if whole or not there.views:
                return base
        result = Value(value.shape, value.dtype)
        self._make([(value, result, strides)])
        self.lies[id(result)] = strides
        return self._now[id(result)]

    def _unit(self, wanted: Sequence[Value], results: Sequence[Value], strides: tuple[Strides, ...]) -> Unit:
        """The call between operands and `wanted`."""
        nodes: dict[int, Node] = {}
        operands: dict[int, Operand | Number] = {}
        leaves: dict[int, Value] = {}
        todo = list(reversed(wanted))
        while todo:
            value = todo.pop()
            if id(value) in operands or (value.node is not None and id(value.node) in nodes):
                continue
            operand = self._operand(value)
            if operand is not None:
                operands[id(value)], leaves[id(value)] = operand, value
                continue
            node = value.node
            if node is None or node.prim.effect is not None:
                raise RuntimeError(f"{value!r} is neither computed nor an input of the program")
            nodes[id(node)] = node
            todo.extend(reversed(node.inputs))
        order = sorted(
            operands, key=lambda key: -1 if leaves[key].node is None else self.order.get(id(leaves[key].node), -1)
        )
        operands = {key: operands[key] for key in order}
        part = _Part(sorted(nodes.values(), key=lambda n: self.order[id(n)]), operands, leaves, wanted)
        key = part.structure(), layouts_of(part.operands), strides
        known = self._alike.get(key)
        if known is None:
            unit = Unit(part.graph(), part.operands, results, strides)
            known = self._alike[key] = self._alike.setdefault(unit.key, (unit.graph, unit.key))
        return Unit(known[0], part.operands, results, strides, key=known[1])

    def _operand(self, value: Value) -> Operand | Number | None:
        """The argument that a call gets for a value; None for values that it computes."""
        node = value.node
        if node is not None and node.prim.name == "operand":
            return self._given(node.inputs[0])
        return self._leaf(value)

    def _leaf(self, value: Value) -> Operand | Number | None:
        if id(value) not in self.lies:
            return None
        strides = self.lies[id(value)]
        if strides is None:
            return Number(value)
        return Operand(self._now.get(id(value), value), (), value.shape, strides, 0)

    def _given(self, value: Value) -> Operand | Number | None:
        """A view of memory, or a number."""
        chain: list[Node] = []
        while id(value) not in self.lies:
            node = value.node
            if node is None or node.prim.layout is None or len(node.inputs) != 1:
                if node is not None and node.prim.name == "full" and not value.shape and not chain:
                    return Number(None, node.params["value"])
                return None
            chain.append(node)
            value = node.inputs[0]
        if self.lies[id(value)] is None:
            return Number(value) if not chain else None
        layout: Any = (value.shape, self.lies[id(value)], 0)
        for node in reversed(chain):
            layout = node.prim.layout(*layout, **node.params)  # type: ignore[misc]
            if layout is None:
                return None
        views = tuple((node.prim, node.params) for node in reversed(chain))
        shape, strides, offset = layout
        return Operand(self._now.get(id(value), value), views, tuple(shape), tuple(strides), offset)


class _Part:
    """Some nodes of a graph between `operands`, by the ids of the values `leaves`, and the values that are `wanted`.

    Equal operands are one input of the part, unless it sums: how a kernel adds may depend on what it is given twice.
    """

    def __init__(
        self, nodes: Sequence[Node], operands: dict[int, Any], leaves: dict[int, Value], wanted: Sequence[Value]
    ) -> None:
        self.nodes, self.wanted = nodes, wanted
        self.operands: list[Operand | Number] = []  # of each input
        self.inputs: list[Value] = []  # values that are the same in the whole graph
        self.number: dict[int, int] = {}  # of the input that stands for a leaf
        known: dict[Any, int] = {}
        sums = any(node.prim.lower[0] == "reduce" for node in nodes)
        for key, operand in operands.items():
            leaf = leaves[key]
            number = known.setdefault((operand.key, leaf.dtype, key if sums else 0), len(self.inputs))
            if number == len(self.inputs):
                self.inputs.append(leaf)
                self.operands.append(operand)
            self.number[key] = number

    def structure(self) -> Any:
        """A key that is equal for parts of one graph that compute the same with the same parameter objects."""
        numbers = dict(self.number)
        count, nodes = len(self.inputs), []
        for node in self.nodes:
            if node.prim.name in ("operand", "stop_gradient"):
                numbers[id(node.outputs[0])] = numbers[id(node.inputs[0])]
                continue
            nodes.append((id(node.prim), id(node.params), *[numbers[id(v)] for v in node.inputs]))
            for v in node.outputs:
                numbers[id(v)] = count
                count += 1
        inputs = tuple([(v.shape, v.dtype, v.weak) for v in self.inputs])
        return inputs, tuple(nodes), tuple([numbers[id(v)] for v in self.wanted])

    def graph(self) -> Graph:
        """The part as a graph of its own."""
        inputs = [Value(v.shape, v.dtype, weak=v.weak) for v in self.inputs]
        values = {key: inputs[number] for key, number in self.number.items()}
        made = []
        for node in self.nodes:
            if node.prim.name in ("operand", "stop_gradient"):
                values[id(node.outputs[0])] = values[id(node.inputs[0])]
                continue
            twin = Node(
                node.prim,
                tuple([values[id(v)] for v in node.inputs]),
                node.params,
                [(v.shape, v.dtype) for v in node.outputs],
            )
            made.append(twin)
            values.update(zip(map(id, node.outputs), twin.outputs, strict=True))
        return Graph(inputs, made, [values[id(v)] for v in self.wanted])
