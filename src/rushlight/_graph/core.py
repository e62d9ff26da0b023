"""Values, nodes and graphs.

>>> from rushlight._graph.core import trace
>>> from rushlight._types.dtype import FLOAT32
>>> graph = trace(lambda x: x * 2.0, [((3,), FLOAT32)])
>>> [node.prim.name for node in graph.nodes]
['full', 'mul']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.errors import OperandError
from rushlight._prims import build
from rushlight._prims.record import Aval, EffectPrimitive, Primitive, building
from rushlight._types.dtype import DType
from rushlight._types.symbols import key_of

__all__ = ["EffectOrderError", "Graph", "GraphBuilder", "Node", "Reference", "Value", "evaluate", "rebuilt", "trace"]


class EffectOrderError(RuntimeError):
    """A program would use a reference that an effect has replaced, or lose an effect."""


class Value:
    """One array in a graph: `shape`, `dtype`, and the node that computes it (None for an input).

    `weak` marks a Python number given at run time: it takes the dtype of what it meets.  Operators (`+`, `<`, ...) are
    the kind layer for operator bodies: they broadcast and accept Python numbers.  `==` stays identity; use `build.eq`
    for comparison.
    """

    __slots__ = ("dtype", "index", "node", "shape", "weak")

    def __init__(
        self, shape: tuple[int, ...], dtype: DType, node: Node | None = None, index: int = 0, weak: bool = False
    ) -> None:
        self.shape, self.dtype, self.node, self.index, self.weak = shape, dtype, node, index, weak

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        source = self.node.prim.name if self.node is not None else "input"
        return f"Value({self.dtype.name}{list(self.shape)} from {source})"

    def __bool__(self) -> bool:
        raise TypeError(
            "a traced value has no truth: an operator's body may branch on shapes, dtypes and static arguments alone"
        )

    def __add__(self, other: Any) -> Any:
        return build.binary("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return build.binary("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return build.binary("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return build.binary("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return build.binary("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return build.binary("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return build.binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return build.binary("div", other, self)

    def __neg__(self) -> Any:
        return build.unary("neg", self)

    def __lt__(self, other: Any) -> Any:
        return build.binary("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return build.binary("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return build.binary("lt", other, self)

    def __ge__(self, other: Any) -> Any:
        return build.binary("le", other, self)

    def __and__(self, other: Any) -> Any:
        return build.binary("bitwise_and", self, other)

    def __or__(self, other: Any) -> Any:
        return build.binary("bitwise_or", self, other)

    def __xor__(self, other: Any) -> Any:
        return build.binary("bitwise_xor", self, other)

    def __invert__(self) -> Any:
        return build.invert(self)


class Reference(Value):
    """State that effects change, between two of them: `kind` is "memory" or "stream".

    Only primitives with effects take one (see `_prims.record.Effect`).  The one that replaces it gives the reference to
    use from then on.
    """

    __slots__ = ("kind",)

    def __init__(
        self, kind: str, shape: tuple[int, ...], dtype: DType, node: Node | None = None, index: int = 0
    ) -> None:
        super().__init__(shape, dtype, node, index)
        self.kind = kind

    def __repr__(self) -> str:
        return f"Reference({self.kind}){super().__repr__().removeprefix('Value')}"


class Node:
    """One application of a primitive."""

    __slots__ = ("inputs", "outputs", "params", "prim")

    def __init__(
        self, prim: Primitive, inputs: tuple[Value, ...], params: dict[str, Any], avals: Sequence[Aval]
    ) -> None:
        self.prim, self.inputs, self.params = prim, inputs, params
        outputs = [Value(tuple(shape), dtype, self, i) for i, (shape, dtype) in enumerate(avals)]
        if prim.effect is not None and prim.effect.makes_reference:
            outputs[0] = Reference(prim.effect.reference, outputs[0].shape, outputs[0].dtype, self)
        self.outputs = tuple(outputs)

    def __repr__(self) -> str:
        return f"Node({self.prim.name}, {list(self.inputs)}, {self.params})"


class Graph:
    """Inputs, nodes in an order in which each comes after what it reads, and outputs.  Not changed once made.

    Effects happen in the order of the nodes.  Every effect is reached from an output through the references that it
    replaces, so that a pass which follows data alone neither drops an effect nor changes the order of two.
    """

    __slots__ = ("inputs", "nodes", "outputs")

    def __init__(self, inputs: Sequence[Value], nodes: Sequence[Node], outputs: Sequence[Value]) -> None:
        self.inputs, self.nodes, self.outputs = tuple(inputs), tuple(nodes), tuple(outputs)

    def __repr__(self) -> str:
        return f"Graph({len(self.inputs)} inputs, {len(self.nodes)} nodes, {len(self.outputs)} outputs)"


def _freeze(value: Any) -> Any:
    """A key that distinguishes values which `==` does not: True, 1 and 1.0; 0.0 and -0.0."""
    if isinstance(value, (tuple, list)):
        return tuple([_freeze(item) for item in value])
    if isinstance(value, (float, complex)):
        return (value.__class__, key_of(value))
    return (value.__class__, value)  # of a symbolic size: int


def call_key(primitive: Primitive, inputs: Sequence[Value], params: dict[str, Any]) -> Any:
    """A key: two calls with equal keys compute the same."""
    return primitive, tuple(map(id, inputs)), tuple(sorted([(k, _freeze(v)) for k, v in params.items()]))


class GraphBuilder:
    """Receives primitive calls and writes them down; equal calls become one node, unless they have effects."""

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self._known: dict[Any, Node] = {}
        self._outputs: list[Value] = []
        self._replaced: dict[Value, Value] = {}  # references that an effect has used up, and what took their places

    def input(self, shape: Sequence[int], dtype: DType, weak: bool = False) -> Value:
        """A new graph input."""
        value = Value(tuple(shape), dtype, weak=weak)
        self.inputs.append(value)
        return value

    def reference(self, kind: str, shape: Sequence[int], dtype: DType) -> Reference:
        """A new graph input that effects may change: "memory" or a "stream"."""
        value = Reference(kind, tuple(shape), dtype)
        self.inputs.append(value)
        return value

    def input_like(self, value: Value) -> Value:
        """A new graph input of the shape, dtype and kind of a value."""
        if type(value) is Reference:
            return self.reference(value.kind, value.shape, value.dtype)
        return self.input(value.shape, value.dtype, value.weak)

    def bind(self, primitive: Primitive, inputs: Sequence[Any], params: dict[str, Any]) -> Any:
        """Add (or find) the node for this call."""
        for item in inputs:
            if type(item) is not Value:
                raise _no_array(primitive, item)
        key = call_key(primitive, inputs, params)
        node = self._known.get(key)
        if node is None:
            try:
                avals = primitive.spec(*inputs, **params)
            except ValueError as error:
                raise OperandError(str(error)) from error
            node = Node(primitive, tuple(inputs), params, avals if primitive.multiple else [avals])
            self._known[key] = node
            self.nodes.append(node)
        return node.outputs if primitive.multiple else node.outputs[0]

    def effect(self, primitive: EffectPrimitive, inputs: Sequence[Any], params: dict[str, Any]) -> Any:
        """Add a node with an effect, after all effects that were added before.

        EffectOrderError where an effect has replaced the reference that it is given.
        """
        effect, rest = primitive.effect, inputs
        assert effect is not None
        if effect.takes_reference:
            target, *rest = inputs
            if type(target) is not Reference or target.kind != effect.reference:
                raise TypeError(
                    f"primitive {primitive.name!r} takes a reference to a {effect.reference}, got {target!r}"
                )
            if target in self._replaced:
                raise EffectOrderError(f"prim.{primitive.name} uses {target!r}, which a later effect has replaced")
        for item in rest:
            if type(item) is not Value:
                raise _no_array(primitive, item)
        try:
            avals = primitive.spec(*inputs, **params)
        except ValueError as error:
            raise OperandError(str(error)) from error
        node = Node(primitive, tuple(inputs), params, avals if primitive.multiple else [avals])
        self.nodes.append(node)
        if effect.replaces:
            self._replaced[inputs[0]] = node.outputs[0]
        return node.outputs if primitive.multiple else node.outputs[0]

    def constant(self, content: Any, shape: Sequence[int], dtype: DType) -> Any:
        """An array whose elements are all this number."""
        with self:
            return build.full(shape, content, dtype)

    def call(self, graph: Graph, operands: Sequence[Any]) -> list[Any]:
        """The outputs of a graph, which is written into this one."""
        with self:
            return evaluate(graph, operands)

    def output(self, value: Value) -> None:
        """Let the next output of the graph be this value."""
        self._outputs.append(value)

    def latest(self, reference: Value) -> Value:
        """The reference that replaces this one after the effects so far."""
        while reference in self._replaced:
            reference = self._replaced[reference]
        return reference

    def forget(self, node: Node) -> None:
        """Let the next equal call make a node of its own."""
        self._known.pop(call_key(node.prim, node.inputs, node.params), None)

    def finish(self, outputs: Sequence[Value] | None = None) -> Graph:
        """The graph of what `outputs` (by default those that were noted) need.

        EffectOrderError where they do not hold the last state of a reference that effects have changed.
        """
        outputs = self._outputs if outputs is None else outputs
        if self._replaced:
            self._check_effects(outputs)
        return Graph(self.inputs, live_nodes(self.nodes, outputs), outputs)

    def _check_effects(self, outputs: Sequence[Value]) -> None:
        given = set(outputs)
        for j, value in enumerate(outputs):
            if value in self._replaced:
                raise EffectOrderError(f"output {j} is {value!r}, which a later effect has replaced")
        for i, value in enumerate(self.inputs):
            if isinstance(value, Reference) and value in self._replaced and self.latest(value) not in given:
                raise EffectOrderError(
                    f"no output holds what effects make of input {i} ({value.kind}): they would be lost"
                )

    def __enter__(self) -> GraphBuilder:
        building.builders.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        building.builders.pop()


def _no_array(primitive: Primitive, item: Any) -> TypeError:
    """The error for an operand that is no array."""
    if isinstance(item, Reference):
        return TypeError(
            f"primitive {primitive.name!r} takes arrays, got a reference to a {item.kind}; `prim.read` gives what memory holds"
        )
    return TypeError(f"primitive {primitive.name!r} takes traced values, got {type(item).__name__}: {item!r}")


def live_nodes(nodes: Sequence[Node], outputs: Sequence[Value]) -> list[Node]:
    """Those of `nodes` that `outputs` depend on, in order."""
    wanted = {id(v.node) for v in outputs if v.node is not None}
    kept = []
    for node in reversed(nodes):
        if id(node) in wanted:
            kept.append(node)
            wanted.update(id(v.node) for v in node.inputs if v.node is not None)
    kept.reverse()
    return kept


def trace(function: Callable[..., Any], avals: Sequence[tuple[Any, ...]]) -> Graph:
    """The graph of the primitive calls that `function` makes on new values.

    `avals` holds (shape, dtype) or (shape, dtype, weak) for each argument; the function returns a value or a sequence
    of them.
    """
    builder = GraphBuilder()
    arguments = [builder.input(*aval) for aval in avals]
    with builder:
        result = function(*arguments)
    for value in result if isinstance(result, (tuple, list)) else (result,):
        builder.output(value)
    return builder.finish()


def evaluate(
    graph: Graph, arguments: Sequence[Any], apply: Callable[[Node, list[Any]], Any] | None = None
) -> list[Any]:
    """Walk `graph` with `arguments` for its inputs; `apply(node, inputs)` computes each node.

    The default gives every primitive to the current builder, which copies the graph into it.  `apply` returns a tuple
    for primitives with several results.
    """
    if len(arguments) != len(graph.inputs):
        raise TypeError(f"the graph has {len(graph.inputs)} inputs, got {len(arguments)} arguments")
    values: dict[int, Any] = {id(v): a for v, a in zip(graph.inputs, arguments, strict=True)}
    for node in graph.nodes:
        inputs = [values[id(v)] for v in node.inputs]
        result = node.prim(*inputs, **node.params) if apply is None else apply(node, inputs)
        for value, item in zip(node.outputs, result if node.prim.multiple else (result,), strict=True):
            values[id(value)] = item
    return [values[id(v)] for v in graph.outputs]


def rebuilt(
    graph: Graph, apply: Callable[[Node, list[Any]], Any] | None = None, builder: GraphBuilder | None = None
) -> Graph:
    """A copy of `graph` with new inputs.  `apply(node, inputs)` gives the values that replace each node's results, as
    in `evaluate`.

    Equal calls become one node; dead nodes are dropped.
    """
    builder = GraphBuilder() if builder is None else builder
    inputs = [builder.input_like(v) for v in graph.inputs]
    with builder:
        outputs = evaluate(graph, inputs, apply)
    return builder.finish(outputs)
