"""Patterns: what one function computes is replaced by another function, wherever a graph computes it.

    >>> from rushlight._graph.core import trace
    >>> from rushlight._prims import build, prim
    >>> from rushlight._transforms.patterns import Pattern, replaced
    >>> from rushlight._types.dtype import FLOAT32
    >>> logs = Pattern(
    ...     lambda x, y: prim.log(x) + prim.log(y), lambda x, y: prim.log(x * y), [((3,), FLOAT32), ((3,), FLOAT32)]
    ... )
    >>> graph = trace(lambda x: prim.log(x) + prim.log(prim.exp(x)), [((2, 5), FLOAT32)])
    >>> made, count = replaced(graph, [logs])
    >>> [node.prim.name for node in made.nodes], count
    (['exp', 'mul', 'log'], 1)

Both functions are written over primitives, for any shapes; the example says which operands there are.  An operand
without dims stands for a number, too: it is found where the graph has a constant.  Borders of calls are looked through,
so that a pattern may reach over several calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._graph.core import Graph, GraphBuilder, Node, Value, _freeze, live_nodes, trace
from rushlight._prims import build
from rushlight._prims.samples import any_dtype

__all__ = ["Match", "Pattern", "PatternError", "replaced"]

_SEAMS = ("border", "operand")
_COMMUTATIVE = frozenset(("add", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor", "eq", "ne"))


class PatternError(ValueError):
    """Two functions of a pattern that do not compute the same."""


class Constant:
    """A number that a graph has where a pattern has an operand without dims."""

    __slots__ = ("content", "dtype", "shape")

    def __init__(self, content: Any, dtype: Any) -> None:
        self.content, self.dtype, self.shape = content, dtype, ()

    @property
    def key(self) -> Any:
        return _freeze(self.content), self.dtype


Bound = dict[int, Any]  # the number of an operand -> a value of the graph, or a constant


class Pattern:
    """Replace the computation `search` by `replace`; `example` has shape and dtype of each operand.

    `exact` promises the same bits; other patterns are applied where sums may be added in another order.
    `accepts(*operands)` may refuse operands by their shapes and dtypes.
    """

    def __init__(
        self,
        search: Callable[..., Any],
        replace: Callable[..., Any],
        example: Sequence[tuple[Any, ...]],
        *,
        name: str = "",
        exact: bool = False,
        accepts: Callable[..., bool] | None = None,
    ) -> None:
        self.search, self.replace, self.example = search, replace, list(example)
        self.name, self.exact, self.accepts = name or getattr(replace, "__name__", "pattern"), exact, accepts
        self.skeleton = trace(search, self.example)
        if len(self.skeleton.outputs) != 1:
            raise PatternError(f"pattern {self.name!r}: a pattern computes one array, not {len(self.skeleton.outputs)}")
        root = self.skeleton.outputs[0].node
        if root is None:
            raise PatternError(f"pattern {self.name!r}: a pattern that computes nothing is found everywhere")
        self.root = root

    def __repr__(self) -> str:
        return f"Pattern({self.name!r})"

    def check(self, seeds: Sequence[int] = (0, 1, 2), tolerance: float = 1e-4) -> None:
        """Compute both functions on random operands by the references; PatternError where shapes, dtypes or values
        differ.
        """
        graphs = [trace(function, self.example) for function in (self.search, self.replace)]
        first, second = (graph.outputs[0] for graph in graphs)
        if (first.shape, first.dtype) != (second.shape, second.dtype):
            raise PatternError(
                f"pattern {self.name!r}: {first.dtype.name}{list(first.shape)} would become {second.dtype.name}{list(second.shape)}"
            )
        for seed in seeds:
            operands = [_random(shape, dtype, seed * 101 + k) for k, (shape, dtype, *_) in enumerate(self.example)]
            a, b = (_reference(graph, operands)[0] for graph in graphs)
            same = np.array_equal(a, b, equal_nan=True) if self.exact else np.allclose(a, b, tolerance, tolerance, True)
            if not same:
                raise PatternError(
                    f"pattern {self.name!r}: the functions differ by {np.max(np.abs(a - b))} (seed {seed})"
                )

    def find(self, value: Value, users: dict[int, list[Node]], kept: set[int]) -> Match | None:
        """The match whose result is `value`; None where there is none, or where others need what is inside."""
        for bound, inside in _unified(self.skeleton.outputs[0], value, {}, frozenset(), self._numbers()):
            match = Match(self, value, [bound.get(k) for k in range(len(self.example))], inside)
            if None not in match.operands and self._is_exactly(match) and not match.is_needed(users, kept):
                return match
        return None

    def _numbers(self) -> dict[int, int]:
        return {id(v): k for k, v in enumerate(self.skeleton.inputs)}

    def _is_exactly(self, match: Match) -> bool:
        """Whether the pattern, for operands of these shapes and dtypes, is what the graph computes there."""
        if self.accepts is not None and not self.accepts(*match.operands):
            return False
        try:
            graph = trace(self.search, [(x.shape, x.dtype) for x in match.operands])
        except (TypeError, ValueError):
            return False
        wanted: Bound = dict(enumerate(match.operands))
        numbers = {id(v): k for k, v in enumerate(graph.inputs)}
        found = _unified(graph.outputs[0], match.value, wanted, frozenset(), numbers, True)
        return next(found, None) is not None


class Match:
    """A place where a graph computes a pattern's `value` from `operands`, by the nodes `inside`."""

    __slots__ = ("inside", "operands", "pattern", "value")

    def __init__(self, pattern: Pattern, value: Value, operands: list[Any], inside: frozenset[Node]) -> None:
        self.pattern, self.value, self.operands, self.inside = pattern, value, operands, inside

    def is_needed(self, users: dict[int, list[Node]], kept: set[int]) -> bool:
        """Whether others than the pattern read what is computed inside."""
        return any(
            id(v) in kept or any(user not in self.inside for user in users.get(id(v), ()))
            for node in self.inside
            for v in node.outputs
            if v is not self.value
        )


def replaced(graph: Graph, patterns: Sequence[Pattern]) -> tuple[Graph, int]:
    """The graph with every match of the patterns replaced, and how many there were; the outermost come first."""
    matches: dict[Node, Match] = {}
    taken: set[Node] = set()
    users: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for v in node.inputs:
            users.setdefault(id(v), []).append(node)
    kept = {id(v) for v in graph.outputs}
    by_root: dict[str, list[Pattern]] = {}
    for pattern in patterns:
        by_root.setdefault(pattern.root.prim.name, []).append(pattern)
    for node in reversed(graph.nodes):
        if node in taken or node.prim.multiple:
            continue
        for pattern in by_root.get(node.prim.name, ()):
            match = pattern.find(node.outputs[0], users, kept)
            if match is not None and not match.inside & taken:
                matches[node] = match
                taken |= match.inside
                break
    if not matches:
        return graph, 0
    return _rewritten(graph, matches), len(matches)


def _rewritten(graph: Graph, matches: dict[Node, Match]) -> Graph:
    builder = GraphBuilder()
    now: dict[int, Any] = {id(v): builder.input_like(v) for v in graph.inputs}
    with builder:
        for node in graph.nodes:
            match = matches.get(node)
            if match is not None:
                given = [
                    build.full((), x.content, x.dtype) if isinstance(x, Constant) else now[id(x)]
                    for x in match.operands
                ]
                made = match.pattern.replace(*given)
                if (made.shape, made.dtype) != (match.value.shape, match.value.dtype):
                    raise PatternError(f"pattern {match.pattern.name!r} gives {made!r} for {match.value!r}")
                now[id(match.value)] = made
                continue
            made = node.prim(*[now[id(v)] for v in node.inputs], **node.params)
            now.update(zip(map(id, node.outputs), made if node.prim.multiple else (made,), strict=True))
    outputs = [now[id(v)] for v in graph.outputs]
    return Graph(builder.inputs, live_nodes(builder.nodes, outputs), outputs)


# ***** unification *****

Found = tuple[Bound, frozenset[Node]]


def _unified(
    wanted: Value, value: Any, bound: Bound, inside: frozenset[Node], numbers: dict[int, int], params: bool = False
) -> Iterator[Found]:
    """The ways in which `value` is what a pattern's value `wanted` is; with `params` parameters must be equal, too."""
    number = numbers.get(id(wanted))
    if number is not None:
        yield from _bound(number, value, bound, inside)
        return
    through = inside
    node, pattern = value.node, wanted.node
    assert pattern is not None
    while node is not None and node.prim.name in _SEAMS:
        through |= {node}
        value = node.inputs[value.index]
        node = value.node
    if node is None:
        return
    if node.prim is not pattern.prim:
        if node.prim.name == "full" and pattern.prim.name in ("broadcast", "reshape", "convert"):
            constant = _constant_behind(pattern, numbers)
            if constant is not None and (not params or wanted.shape == value.shape):
                content = Constant(node.params["value"], value.dtype)
                yield from _bound(constant, content, bound, through | {node})
        return
    if value.index != wanted.index or (params and not _same(pattern, node)):
        return
    orders = [node.inputs]
    if pattern.prim.name in _COMMUTATIVE:
        orders.append(node.inputs[::-1])
    for inputs in orders:
        if len(inputs) == len(pattern.inputs):
            yield from _all(list(zip(pattern.inputs, inputs, strict=True)), bound, through | {node}, numbers, params)


def _all(
    pairs: list[tuple[Value, Value]], bound: Bound, inside: frozenset[Node], numbers: dict[int, int], params: bool
) -> Iterator[Found]:
    if not pairs:
        yield bound, inside
        return
    (wanted, value), *rest = pairs
    for now, through in _unified(wanted, value, bound, inside, numbers, params):
        yield from _all(rest, now, through, numbers, params)


def _bound(number: int, value: Any, bound: Bound, inside: frozenset[Node]) -> Iterator[Found]:
    known = bound.get(number)
    if known is None:
        yield {**bound, number: value}, inside
    elif _seamless(known) is _seamless(value) or (
        isinstance(known, Constant) and isinstance(value, Constant) and known.key == value.key
    ):
        yield bound, inside
    elif isinstance(known, Constant) and isinstance(value, Value) and value.node is not None:
        if value.node.prim.name == "full" and Constant(value.node.params["value"], value.dtype).key == known.key:
            yield bound, inside


def _seamless(value: Any) -> Any:
    """A value of a graph as the calls before left it."""
    while isinstance(value, Value) and value.node is not None and value.node.prim.name in _SEAMS:
        value = value.node.inputs[value.index]
    return value


def _constant_behind(node: Node, numbers: dict[int, int]) -> int | None:
    """The operand without dims that a node of a pattern spreads."""
    x = node.inputs[0]
    while id(x) not in numbers and x.node is not None and x.node.prim.name in ("broadcast", "reshape", "convert"):
        x = x.node.inputs[0]
    return numbers.get(id(x)) if not x.shape else None


def _same(pattern: Node, node: Node) -> bool:
    """Whether two nodes have equal parameters and results."""
    if [(v.shape, v.dtype) for v in pattern.outputs] != [(v.shape, v.dtype) for v in node.outputs]:
        return False
    return all(_freeze(pattern.params[k]) == _freeze(v) for k, v in node.params.items())


# ***** checking *****


def _random(shape: Sequence[int], dtype: Any, seed: int) -> Any:
    name = dtype.numpy_name
    if name is None:
        raise PatternError(f"a pattern over {dtype.name} has no references: give an example of another dtype")
    return any_dtype(tuple(shape), name, seed)


def _reference(graph: Graph, operands: Sequence[Any]) -> list[Any]:
    values: dict[int, Any] = {id(v): a for v, a in zip(graph.inputs, operands, strict=True)}
    for node in graph.nodes:
        made = node.prim.reference(*[values[id(v)] for v in node.inputs], **node.params)
        values.update(zip(map(id, node.outputs), made if node.prim.multiple else (made,), strict=True))
    return [values[id(v)] for v in graph.outputs]
