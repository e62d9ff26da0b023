"""Graphs as plain data (numbers, texts, lists), such as JSON holds, and back: for what is kept on disk.

    >>> from rushlight._graph.core import trace
    >>> from rushlight._graph.packing import packed_graph, unpacked_graph
    >>> from rushlight._graph.printer import to_source
    >>> from rushlight._types.dtype import FLOAT32
    >>> graph = trace(lambda x: x * 2.0, [((3,), FLOAT32)])
    >>> to_source(unpacked_graph(packed_graph(graph))) == to_source(graph)
    True

Reading executes nothing and believes nothing: names are looked up in tables, places must exist, and whatever does not
fit is a `RecordError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._graph.core import Graph, Node, Reference, Value
from rushlight._prims.record import EFFECTS, PRIMITIVES
from rushlight._types.dtype import BY_NAME, DType
from rushlight._types.symbols import is_symbolic

__all__ = [
    "RecordError",
    "UnpackableError",
    "packed_graph",
    "packed_value",
    "unpacked_dtype",
    "unpacked_graph",
    "unpacked_ints",
    "unpacked_value",
]


class UnpackableError(TypeError):
    """Something that plain data cannot hold."""


class RecordError(ValueError):
    """Data that were not written by `packed_graph` and its like."""


# ***** parameters *****

_PLAIN = frozenset((int, float, bool, str, type(None)))
_INTS = frozenset((int,))


def packed_value(value: Any) -> Any:
    """A parameter as plain data: tuples as lists; lists, dtypes, complex numbers and dicts marked as what they are.

    Symbolic numbers stay what they are: they are filled in before the data are written.
    """
    kind = type(value)
    if kind in _PLAIN or is_symbolic(value):
        return value
    if kind is tuple:
        return [packed_value(v) for v in value]
    if kind is DType:
        return {"dtype": value.name}
    if kind is list:
        return {"list": [packed_value(v) for v in value]}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if kind is dict:
        return {"dict": [[packed_value(k), packed_value(v)] for k, v in value.items()]}
    raise UnpackableError(f"a parameter of type {kind.__name__}")


def unpacked_value(data: Any) -> Any:
    """The parameter."""
    kind = type(data)
    if kind in _PLAIN:
        return data
    if kind is list:
        return tuple([unpacked_value(v) for v in data])
    if kind is dict and len(data) == 1:
        ((mark, held),) = data.items()
        if mark == "dtype":
            return unpacked_dtype(held)
        if mark == "list" and type(held) is list:
            return [unpacked_value(v) for v in held]
        if mark == "complex" and type(held) is list and [type(n) for n in held] == [float, float]:
            return complex(*held)
        if mark == "dict" and type(held) is list:
            return _unpacked_dict(held)
    raise RecordError("a parameter of no known kind")


def _unpacked_dict(rows: list[Any]) -> dict[Any, Any]:
    made = {}
    for row in rows:
        if type(row) is not list or len(row) != 2:
            raise RecordError("a dict of something else than pairs")
        key = unpacked_value(row[0])
        try:
            made[key] = unpacked_value(row[1])
        except TypeError:
            raise RecordError("a key that has no hash") from None
    return made


def unpacked_dtype(name: Any) -> DType:
    """The dtype with this name."""
    found = BY_NAME.get(name) if type(name) is str else None
    if found is None:
        raise RecordError(f"no dtype is called {name!r}")
    return found


def unpacked_ints(data: Any, least: int = -(1 << 63)) -> tuple[int, ...]:
    """Whole numbers of 64 bits, none below `least`."""
    if type(data) is not list or not _INTS.issuperset(map(type, data)):
        raise RecordError("no list of whole numbers")
    if data and not (least <= min(data) and max(data) < 1 << 63):
        raise RecordError("a number that is too small, or too large")
    return tuple(data)


# ***** graphs *****


def packed_graph(graph: Graph, communicates: bool = False) -> list[Any]:
    """[inputs, nodes, places of the outputs].

    `UnpackableError` for effects, where a parameter is none that plain data can hold, and for collectives unless the
    graph may be one that `communicates`: it names groups by their numbers, so it is of use to a process that has traced
    it itself.
    """
    if any(type(v) is Reference for v in graph.inputs) or any(node.prim.effect is not None for node in graph.nodes):
        raise UnpackableError("a graph with effects")
    if not communicates and any(node.prim.family == "collective" for node in graph.nodes):
        raise UnpackableError("a graph that communicates: the numbers of groups are those of one job")
    places = {id(v): k for k, v in enumerate(graph.inputs)}
    nodes = []
    for node in graph.nodes:
        results = [[list(v.shape), v.dtype.name] for v in node.outputs]
        params = [[name, packed_value(value)] for name, value in node.params.items()]
        nodes.append([node.prim.name, [places[id(v)] for v in node.inputs], params, results])
        for v in node.outputs:
            places[id(v)] = len(places)
    inputs = [[list(v.shape), v.dtype.name, v.weak] for v in graph.inputs]
    return [inputs, nodes, [places[id(v)] for v in graph.outputs]]


def unpacked_graph(data: Any) -> Graph:
    """The graph; RecordError where the data are not those of one."""
    inputs, rows, outputs = _parts(data, 3)
    held = [_unpacked_input(row) for row in _list(inputs)]
    n, nodes = len(held), []
    for row in _list(rows):
        node = _unpacked_node(row, held)
        nodes.append(node)
        held += node.outputs
    return Graph(held[:n], nodes, _picked(held, outputs))


def _unpacked_input(row: Any) -> Value:
    shape, dtype, weak = _parts(row, 3)
    if type(weak) is not bool:
        raise RecordError("an input that may be a number, or may be none")
    return Value(unpacked_ints(shape, 0), unpacked_dtype(dtype), weak=weak)


def _unpacked_node(row: Any, held: Sequence[Value]) -> Node:
    name, operands, params, results = _parts(row, 4)
    prim = PRIMITIVES.get(name) or EFFECTS.get(name) if type(name) is str else None
    if prim is None or prim.effect is not None:
        raise RecordError(f"no primitive is called {name!r}")
    named: dict[str, Any] = {}
    for pair in _list(params):
        key, value = _parts(pair, 2)
        if type(key) is not str:
            raise RecordError("a parameter without a name")
        named[key] = unpacked_value(value)
    avals = []
    for result in _list(results):
        shape, dtype = _parts(result, 2)
        avals.append((unpacked_ints(shape, 0), unpacked_dtype(dtype)))
    if len(avals) != 1 and not prim.multiple:
        raise RecordError(f"{name} with {len(avals)} results")
    return Node(prim, tuple(_picked(held, operands)), named, avals)


def _picked(held: Sequence[Value], places: Any) -> list[Value]:
    """The values at these places."""
    found = unpacked_ints(places, 0)
    if found and max(found) >= len(held):
        raise RecordError("a value that is not made before it is read")
    return [held[k] for k in found]


def _list(data: Any) -> list[Any]:
    if type(data) is not list:
        raise RecordError("something else than a list")
    return data


def _parts(data: Any, count: int) -> list[Any]:
    if type(data) is not list or len(data) != count:
        raise RecordError(f"no list of {count}")
    return data
