"""Sharding: from a graph over whole arrays to the graph that one process of a group runs on its parts.

`strategies` finds the ways in which a graph can be computed on parts: what each process must have of every input, and
what it then has of every output.  Inside, processes talk only to reduce terms (a row's maximum, its sum) that the rest
needs whole.  `localize` writes the graph of one process, `stages` cuts it at such reductions.  All follows from the
options of the primitives (`sharding_rules`), so an operator needs no rule of its own.

>>> from rushlight._graph.core import trace
>>> from rushlight._prims import build
>>> from rushlight._types.dtype import FLOAT32
>>> graph = trace(lambda x, w: build.dot(x, w), [((8, 4), FLOAT32), ((4, 6), FLOAT32)])
>>> for strategy in strategies(graph, 2):
...     print(strategy.inputs, "->", strategy.outputs)
(None, None) -> (None,)
(0, None) -> (0,)
(1, 0) -> ('sum',)
(None, 1) -> (1,)
>>> half = localize(graph, strategies(graph, 2)[1], 2, 0)
>>> half.inputs[0].shape, half.outputs[0].shape
((4, 4), (4, 6))

A mesh of several axes is sharded one axis after the other: the graph of a process along the first axis is a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight._graph.core import Graph, GraphBuilder, Node, Value, live_nodes
from rushlight._prims.record import prim
from rushlight._transforms.sharding_rules import Option, Part, Placement, options_of

__all__ = ["Stage", "Strategy", "follow", "local_shape", "localize", "stages", "strategies"]

Dim = tuple[Value, int]


class Strategy(NamedTuple):
    """Placements of inputs and outputs, how each node is computed on parts, and of which values
    the processes reduce their terms, with the kind of the reduction.
    """

    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    choices: dict[Node, Option]
    reduced: dict[Value, str]


class Stage(NamedTuple):
    """The work of one process between two reductions.

    The graph takes those of the graph's inputs, and of the values that earlier stages reduced, that `reads` numbers, in
    this order.  `reductions` says for each output along which axis its terms are reduced, and by which kind; the last
    stage has none, and gives the outputs.
    """

    graph: Graph
    reads: tuple[int, ...]
    reductions: tuple[tuple[int, str], ...]


def strategies(graph: Graph, size: int) -> list[Strategy]:
    """The ways to compute a graph in a group of `size` processes, the one where every process computes the whole first.

    Each divides one group of dims that belong together, in all inputs that have one of them.
    """
    found: dict[Any, Strategy] = {}
    whole = follow(graph, size, (None,) * len(graph.inputs))
    assert whole is not None
    for strategy in (whole, *_divided(graph, size)):
        found.setdefault((strategy.inputs, strategy.outputs), strategy)
    return list(found.values())


def follow(
    graph: Graph, size: int, inputs: Sequence[Placement], wanted: dict[Value, int] | None = None
) -> Strategy | None:
    """How a graph is computed where its inputs are placed like this; None where an input, or a part of a value, would
    have to be placed otherwise.

    `wanted` gives the dim along which a value should be divided that no input divides, as a constant.
    """
    placed: dict[Value, Placement] = dict(zip(graph.inputs, inputs, strict=True))
    choices: dict[Node, Option] = {}
    reduced: dict[Value, str] = {}
    for node in graph.nodes:
        option = _effect(node, placed) if node.prim.effect else _choose(node, size, placed, wanted or {})
        if option is None:
            terms = {v: p for v in node.inputs if isinstance(p := placed[v], str)}
            placed.update(dict.fromkeys(terms))
            option = _choose(node, size, placed, wanted or {}) if terms else None
            if option is None:
                return None
            reduced.update(terms)
        choices[node] = option
        placed.update(zip(node.outputs, option.outputs, strict=True))
    return Strategy(tuple(inputs), tuple(placed[v] for v in graph.outputs), choices, reduced)


def localize(graph: Graph, strategy: Strategy, size: int, coordinate: int, axis: int = 0) -> Graph:
    """The graph that the process `coordinate` of `size` runs on its parts of the inputs.

    Where processes reduce their terms it has a node `reduce_terms` with the number of the `axis`; `stages` cuts it
    there.
    """
    part, builder = Part(size, coordinate), GraphBuilder()
    placed: dict[Value, Placement] = dict(zip(graph.inputs, strategy.inputs, strict=True))
    local: dict[Value, Any] = {}

    def note(value: Value, item: Any, placement: Placement) -> None:
        kind = strategy.reduced.get(value)
        local[value] = item if kind is None else prim.reduce_terms(item, axis=axis, kind=kind)
        placed[value] = placement if kind is None else None

    for value in graph.inputs:
        shape = local_shape(value.shape, placed[value], part)
        same = shape == value.shape
        local[value] = builder.input_like(value) if same else builder.input(shape, value.dtype, value.weak)
    with builder:
        for value in graph.inputs:
            note(value, local[value], placed[value])
        for node in graph.nodes:
            option = strategy.choices[node]
            inputs = [_cut(local[v], placed[v], want, part) for v, want in zip(node.inputs, option.inputs, strict=True)]
            result = option.build(part, node, inputs) if option.build else node.prim(*inputs, **node.params)
            results = result if node.prim.multiple else (result,)
            for value, item, placement in zip(node.outputs, results, option.outputs, strict=True):
                _check(node, value, item, local_shape(value.shape, placement, part))
                note(value, item, placement)
    return builder.finish([local[v] for v in graph.outputs])


def stages(graph: Graph) -> list[Stage]:
    """A graph of one process, cut where terms are reduced.

    A stage computes what it needs from its inputs, although an earlier one may have computed some of it.
    """
    builder = GraphBuilder()
    levels = dict.fromkeys(graph.inputs, 0)  # after how many reductions a value is known
    cut: dict[Value, Value] = {v: builder.input_like(v) for v in graph.inputs}
    terms: dict[int, list[tuple[Value, Value, tuple[int, str]]]] = {}
    with builder:
        for node in graph.nodes:
            level = max((levels[v] for v in node.inputs), default=0)
            if node.prim.name == "reduce_terms":
                level += 1
                results = (builder.input_like(node.outputs[0]),)
                how = node.params["axis"], node.params["kind"]
                terms.setdefault(level, []).append((cut[node.inputs[0]], results[0], how))
            else:
                result = node.prim(*[cut[v] for v in node.inputs], **node.params)
                results = result if node.prim.multiple else (result,)
            for value, item in zip(node.outputs, results, strict=True):
                levels[value], cut[value] = level, item
    order, found = [cut[v] for v in graph.inputs], []
    for level in sorted(terms):
        found.append(_stage(builder, [x for x, _, _ in terms[level]], order, [how for _, _, how in terms[level]]))
        order += [y for _, y, _ in terms[level]]
    return [*found, _stage(builder, [cut[v] for v in graph.outputs], order, ())]


def _stage(
    builder: GraphBuilder, outputs: list[Any], order: list[Value], reductions: Sequence[tuple[int, str]]
) -> Stage:
    nodes = live_nodes(builder.nodes, outputs)
    used = {v for node in nodes for v in node.inputs} | set(outputs)
    reads = tuple(k for k, v in enumerate(order) if v in used)
    return Stage(Graph([order[k] for k in reads], nodes, outputs), reads, tuple(reductions))


def local_shape(shape: Sequence[int], placement: Placement, part: Part) -> tuple[int, ...]:
    """The shape of a process's part of an array."""
    if not isinstance(placement, int):
        return tuple(shape)
    return tuple(part.length(n) if d == placement else n for d, n in enumerate(shape))


def _check(node: Node, value: Value, item: Any, shape: tuple[int, ...]) -> None:
    if item.shape != shape or item.dtype is not value.dtype:
        raise AssertionError(
            f"the sharding rule of prim.{node.prim.name} gave {item.dtype.name}{list(item.shape)}, "
            f"expected {value.dtype.name}{list(shape)}"
        )


def _cut(x: Any, has: Placement, want: Placement, part: Part) -> Any:
    """A process's part of a value that it has whole."""
    if has == want or not isinstance(want, int):
        return x
    start, stop = part.span(x.shape[want])
    starts, stops = [0] * len(x.shape), list(x.shape)
    starts[want], stops[want] = start, stop
    return prim.slice(x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * len(x.shape))


# ***** choosing an option *****


def _effect(node: Node, placed: dict[Value, Placement]) -> Option | None:
    """Effects happen to whole arrays."""
    return None if any(placed[v] is not None for v in node.inputs) else _whole(node)


def _whole(node: Node) -> Option:
    return Option((None,) * len(node.inputs), (None,) * len(node.outputs))


def _choose(node: Node, size: int, placed: dict[Value, Placement], wanted: dict[Value, int]) -> Option | None:
    """The option of a node that goes with what its operands are; None where there is none."""
    has = [placed[v] for v in node.inputs]
    divided = any(p is not None for p in has)
    aims = [wanted.get(v) for v in node.outputs]
    if not divided and not any(aim is not None for aim in aims):
        return _whole(node)
    best, fewest = (None if divided else _whole(node)), (1, len(has) + 1)
    for option in options_of(node, size):
        cuts = _cuts(node, has, option)
        if cuts is None or (not divided and (cuts or list(option.outputs) != aims)):
            continue
        score = (int(any(a is not None and a != o for a, o in zip(aims, option.outputs, strict=True))), cuts)
        if score < fewest:
            best, fewest = option, score
    return best


def _cuts(node: Node, has: Sequence[Placement], option: Option) -> int | None:
    """How many operands must be cut for an option; None where it asks for what would need communication."""
    cuts = 0
    for value, p, want in zip(node.inputs, has, option.inputs, strict=True):
        if p == want:
            continue
        if p is not None or want is None or (isinstance(want, str) and not (want == "sum" and _is_zero(value))):
            return None
        cuts += isinstance(want, int)
    return cuts


def _is_zero(value: Value) -> bool:
    """Whether a value is 0 everywhere: a term of it, too, in every process."""
    node = value.node
    while node is not None and node.prim.name in ("broadcast", "reshape", "convert"):
        node = node.inputs[0].node
    return node is not None and node.prim.name == "full" and not node.params["value"]


# ***** which dims belong together *****


class _Classes:
    """Dims of values that are divided together, by union and find."""

    def __init__(self) -> None:
        self.parents: dict[Dim, Dim] = {}

    def find(self, dim: Dim) -> Dim:
        self.parents.setdefault(dim, dim)
        while self.parents[dim] != dim:
            self.parents[dim] = self.parents[self.parents[dim]]
            dim = self.parents[dim]
        return dim

    def join(self, dims: Sequence[Dim]) -> None:
        first = self.find(dims[0])
        for dim in dims[1:]:
            self.parents[self.find(dim)] = first


def _divided(graph: Graph, size: int) -> list[Strategy]:
    """The strategies that divide one class of dims each."""
    classes = _Classes()
    for node in graph.nodes:
        for option in options_of(node, size) if node.prim.effect is None else ():
            dims = [
                (v, p)
                for v, p in zip((*node.inputs, *node.outputs), (*option.inputs, *option.outputs), strict=True)
                if isinstance(p, int)
            ]
            if len(dims) > 1:
                classes.join(dims)
    members: dict[Dim, dict[Value, list[int]]] = {}
    values = [*graph.inputs, *(v for node in graph.nodes for v in node.outputs)]
    for value in values:
        for d in range(len(value.shape)):
            members.setdefault(classes.find((value, d)), {}).setdefault(value, []).append(d)
    found = []
    for dims in members.values():
        inputs = [dims.get(v, [None]) for v in graph.inputs]
        if any(len(ds) > 1 for ds in inputs) or all(ds == [None] for ds in inputs):
            continue
        wanted = {v: ds[0] for v, ds in dims.items() if len(ds) == 1}
        strategy = follow(graph, size, [ds[0] for ds in inputs], wanted)
        if strategy is not None:
            found.append(strategy)
    return found
