"""Passes on a graph before it is written: calls without use go, calls of constants are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._interface.base import LazyModule
from rushlight.onnx.exporting.build import Model
from rushlight.onnx.exporting.values import Graph, Node, OnnxTensor, Value, numpy_dtype

__all__ = ["fold", "prune"]

np: Any = LazyModule("numpy")


def prune(model: Model) -> None:
    """Take out calls and constants that nothing reads."""
    _prune(model.graph)
    used = model.graph.used()
    model.graph.constants = {v: t for v, t in model.graph.constants.items() if v in used}


def _prune(graph: Graph) -> None:
    needed: set[Value] = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not any(v in needed for v in node.outputs):
            continue
        kept.append(node)
        needed.update(v for v in node.inputs if v is not None)
        for attr in node.attrs.values():
            if isinstance(attr, Graph):
                _prune(attr)
                needed |= attr.used()
    graph.nodes = kept[::-1]


# ***** constants *****


def _sliced(x: Any, start: Any, end: Any, axes: Any = None, steps: Any = None) -> Any:
    places = [slice(None)] * x.ndim
    axes = range(len(start)) if axes is None else axes
    steps = [1] * len(start) if steps is None else steps
    for s, e, a, t in zip(start, end, axes, steps, strict=True):
        stop: int | None = int(e)
        if t < 0 and int(e) < -x.shape[int(a)]:
            stop = None
        places[int(a)] = slice(int(s), stop, int(t))
    return x[tuple(places)]


def _squeezed(x: Any, axes: Any) -> Any:
    return np.squeeze(x, tuple(int(a) for a in axes))


_RULES: dict[str, Callable[..., Any]] = {
    "Transpose": lambda x, perm: np.ascontiguousarray(np.transpose(x, perm)),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(int(a) for a in axes)),
    "Squeeze": _squeezed,
    "Concat": lambda *xs, axis: np.concatenate(xs, axis),
    "Slice": lambda *given: np.ascontiguousarray(_sliced(*given)),
    "Gather": lambda x, i, axis=0: np.take(x, i, axis),
    "Identity": lambda x: x,
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Neg": lambda x: -x,
    "Sqrt": lambda x: np.sqrt(x),
    "Reciprocal": lambda x: np.reciprocal(x),
    "Expand": lambda x, shape: x * np.ones(tuple(int(s) for s in shape), x.dtype),
}
# Results that are greater than this are computed only where they take the place of what they are made of.
_SMALL = 1 << 12


def _reshaped(x: Any, shape: Any, allowzero: int = 0) -> Any:
    dims = [int(s) for s in shape]
    return x.reshape([x.shape[d] if s == 0 and not allowzero else s for d, s in enumerate(dims)])


_RULES["Reshape"] = _reshaped


class _Constants:
    """Calls that constants alone go into, and what the rest of the graph reads of them."""

    def __init__(self, model: Model) -> None:
        self.graph, self.constants = model.graph, model.graph.constants
        self.nodes: list[Node] = []
        known: set[Value] = set(self.constants)
        for node in self.graph.nodes:
            fits = node.op in _RULES and not node.domain and len(node.outputs) == 1 and node.inputs
            if fits and all(v in known for v in node.inputs if v is not None):
                self.nodes.append(node)
                known.add(node.outputs[0])
        mine = set(map(id, self.nodes))
        self.read: set[Value] = set(self.graph.outputs)
        for node in self.graph.nodes:
            if id(node) not in mine:
                self.read.update(v for v in node.inputs if v is not None)
            for attr in node.attrs.values():
                if isinstance(attr, Graph):
                    self.read |= attr.used()

    def groups(self) -> list[list[Node]]:
        """Calls that lead to one another, or from the same weights, together."""
        parent = list(range(len(self.nodes)))

        def root(i: int) -> int:
            while parent[i] != i:
                parent[i] = i = parent[parent[i]]
            return i

        first: dict[Value, int] = {}
        for i, node in enumerate(self.nodes):
            for value in (*node.inputs, *node.outputs):
                if value is not None and (value not in self.constants or self.constants[value].nbytes > _SMALL):
                    parent[root(i)] = root(first.setdefault(value, i))
        found: dict[int, list[Node]] = {}
        for i, node in enumerate(self.nodes):
            found.setdefault(root(i), []).append(node)
        return list(found.values())

    def computed(self, nodes: list[Node]) -> dict[Value, Any] | None:
        """The results of a group; None where the model would grow by them."""
        own = {n.outputs[0] for n in nodes}
        roots = {v for n in nodes for v in n.inputs if v is not None and v in self.constants}
        large = [v for v in roots if self.constants[v].nbytes > _SMALL]
        if any(v in self.read for v in large) and not all(_bytes(v) <= _SMALL for v in own):
            return None
        values: dict[Value, Any] = {v: self.constants[v].numpy() for v in roots}
        for node in nodes:
            given = [values[v] for v in node.inputs if v is not None]
            out = node.outputs[0]
            try:
                values[out] = np.asarray(_RULES[node.op](*given, **node.attrs), dtype=numpy_dtype(out.dtype))
            except (ValueError, IndexError, TypeError):
                return None  # the runtime says what is wrong with it
        made = {v: values[v] for v in own if v in self.read}
        before = sum(self.constants[v].nbytes for v in roots)
        if sum(a.nbytes for a in made.values()) > max(before, _SMALL):
            return None
        return made


def _bytes(value: Value) -> int:
    if value.shape is None or any(type(s) is not int for s in value.shape):
        return _SMALL + 1
    return int(np.prod(value.shape)) * value.dtype.itemsize


def fold(model: Model) -> None:
    """Compute calls of constants, where the model does not grow by it."""
    graph = model.graph
    constants = _Constants(model)
    gone: set[int] = set()
    for nodes in constants.groups():
        made = constants.computed(nodes)
        if made is None or any(v in graph.outputs for v in made):
            continue
        gone.update(map(id, nodes))
        for value, array in made.items():
            graph.constants[value] = OnnxTensor(array=array)
            source = _weight(value)
            value.producer, value.shape = None, array.shape
            if source is not None and len(made) == 1:
                value.name = source.name
    graph.nodes = [n for n in graph.nodes if id(n) not in gone]


def _weight(value: Value) -> Value | None:
    """The weight that a value is another arrangement of; None where it comes from several."""
    while value.producer is not None:
        given = [v for v in value.producer.inputs if v is not None and v.const is None]
        if len(given) != 1:
            return None
        value = given[0]
    return value
