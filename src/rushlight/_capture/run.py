"""Running programs: the parts without effects as plans, draws by the engine's kernels, and what is written copied to
its memory at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rushlight._base.errors import MissingFeatureError
from rushlight._base.pytree import tree_map
from rushlight._capture.record import Place, RecordedProgram, tensors_of
from rushlight._engine.core.memory import empty_spec
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.graph_calls import graph_caller
from rushlight._engine.indexing.view import as_strided
from rushlight._engine.random import random as streams
from rushlight._graph.core import Graph, Node, Value, rebuilt
from rushlight._prims.memory import Views
from rushlight._prims.record import PRIMITIVES
from rushlight._transforms.functionalize import functionalize
from rushlight._types.dtype import FLOAT64
from rushlight._types.spec import Spec

__all__ = ["program_caller"]


def program_caller(recorded: RecordedProgram) -> Callable[..., Any]:
    """A function of tensors that does what the program does: results, numbers drawn from the same streams, memory
    changed in place.

    It takes the arguments of the callable that was recorded, with tensors of the same specs.  Gradients flow through it
    as through one operator.  RuntimeError for arguments of other specs, and for those that share memory which the
    program changes.
    """
    return _Caller(recorded)


class _Part:
    """Nodes without effects as one graph, and what runs it."""

    __slots__ = ("call", "graph")

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.call = graph, graph_caller(rebuilt(graph), name)


class _Caller:
    """See `program_caller`."""

    def __init__(self, recorded: RecordedProgram) -> None:
        self.recorded, program = recorded, recorded.program
        made = functionalize(program.graph)
        self.graph, self.written = made.graph, made.written
        self.parts = _divided(self.graph, recorded.name)
        self.__name__ = self.__qualname__ = recorded.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = tensors_of((args, kwargs))
        inputs = self._inputs(given)
        held: dict[Value, Any] = dict(zip(self.graph.inputs, inputs, strict=True))
        for part in self.parts:
            if isinstance(part, Node):
                held.update(zip(part.outputs, _draw(part, [held[v] for v in part.inputs]), strict=True))
            else:
                held.update(zip(part.graph.outputs, part.call(*[held[v] for v in part.graph.inputs]), strict=True))
        outputs = self._apart(inputs, [held[v] for v in self.graph.outputs])
        self._write(inputs, outputs)
        results = [self._result(k, inputs, outputs) for k in range(len(self.recorded.kept))]
        return tree_map(lambda x: results[x.number] if isinstance(x, Place) else x, self.recorded.result)

    # ***** what goes in *****

    def _inputs(self, given: Sequence[Tensor]) -> list[Any]:
        recorded = self.recorded
        if len(given) != len(recorded.specs):
            raise RuntimeError(
                f"{recorded.name}: the program was recorded for {len(recorded.specs)} tensors, got {len(given)}"
            )
        for i, (x, spec) in enumerate(zip(given, recorded.specs, strict=True)):
            if x._spec is not spec:
                raise RuntimeError(f"{recorded.name}: tensor {i} is {x._spec}, the program was recorded for {spec}")
        inputs: list[Any] = []
        for source, value in zip(recorded.program.inputs, self.graph.inputs, strict=True):
            if source.source == "group":
                raise MissingFeatureError(
                    f"{recorded.name}: calls in process group {source.content} cannot run: there are no process groups yet"
                )
            found = given[source.content] if source.source == "argument" else source.content
            if source.source == "constant" and (found._spec.shape, found._spec.dtype) != (value.shape, value.dtype):
                raise RuntimeError(f"{recorded.name}: a tensor that the program holds has become {found._spec}")
            inputs.append(found)
        if (
            STATE.word & GRAD
            and not recorded.differentiable
            and any(isinstance(x, Tensor) and x.requires_grad for x in inputs)
        ):
            raise MissingFeatureError(
                f"{recorded.name}: the program reads a tensor that wants a gradient after it was written without one; run it under no_grad"
            )
        self._check_memory(inputs)
        return inputs

    def _check_memory(self, inputs: Sequence[Any]) -> None:
        """RuntimeError where memory that is written is that of another input too."""
        for i, _ in self.written:
            storage = inputs[i]._storage
            if any(j != i and isinstance(x, Tensor) and x._storage is storage for j, x in enumerate(inputs)):
                raise RuntimeError(f"{self.recorded.name}: the program changes memory that two of its tensors share")

    # ***** what comes out *****

    @staticmethod
    def _apart(inputs: Sequence[Any], outputs: list[Any]) -> list[Any]:
        """The outputs, each with memory of its own."""
        seen = {id(x._storage) for x in inputs if isinstance(x, Tensor)}
        apart = []
        for x in outputs:
            if isinstance(x, Tensor):
                x = x.clone() if id(x._storage) in seen else x
                seen.add(id(x._storage))
            apart.append(x)
        return apart

    def _write(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        for i, j in self.written:
            if self.recorded.written[i]:
                inputs[i].copy_(outputs[j])
            else:
                _quietly(partial(inputs[i].copy_, outputs[j]))

    def _result(self, number: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> Tensor:
        place, (spec, wants) = self.recorded.program.results[number], self.recorded.kept[number]
        found: Any = (inputs if place.source == "input" else outputs)[place.number]
        if place.source == "output" and not place.views and found._spec is not spec:
            found = empty_spec(Spec.of(spec.dtype, found._spec.device, spec.shape, spec.strides)).copy_(found)
        found = _shown(found, place.views) if place.views else found
        return found if wants or not found.requires_grad else found.detach()


def _quietly(function: Callable[[], Any]) -> Any:
    """What `function` gives outside of any graph."""
    word = STATE.word
    STATE.word = word & ~GRAD
    try:
        return function()
    finally:
        STATE.word = word


def _shown(x: Tensor, views: Views) -> Tensor:
    """The views of a tensor."""
    start = x.storage_offset()
    shape, strides, offset = tuple(x._spec.shape), tuple(x._spec.strides), start
    for name, params in views:
        rule = PRIMITIVES[name].layout
        assert rule is not None
        layout = rule(shape, strides, offset, **dict(params))
        if layout is None:
            raise RuntimeError(f"a result of the program is no view of its memory: {name} of strides {strides}")
        shape, strides, offset = layout
    made: Tensor = as_strided(x, shape, strides, offset)
    return made


# ***** parts *****


def _divided(graph: Graph, name: str) -> list[_Part | Node]:
    """Effects as early as what they need is there, and between them graphs that are as large as can be."""
    parts: list[_Part | Node] = []
    ready, todo = set(graph.inputs), list(graph.nodes)
    while todo:
        effects = [n for n in todo if n.prim.effect is not None and all(v in ready for v in n.inputs)]
        if effects:
            parts.append(effects[0])
            ready.update(effects[0].outputs)
            todo.remove(effects[0])
            continue
        inside: list[Node] = []
        for node in todo:
            if node.prim.effect is None and all(v in ready for v in node.inputs):
                inside.append(node)
                ready.update(node.outputs)
        todo = [n for n in todo if n not in set(inside)]
        parts.append(_part(graph, inside, todo, name))
    return parts


def _part(graph: Graph, nodes: Sequence[Node], later: Sequence[Node], name: str) -> _Part:
    made = {v for node in nodes for v in node.outputs}
    reads = list(dict.fromkeys(v for node in nodes for v in node.inputs if v not in made))
    wanted = {v for node in later for v in node.inputs}.union(graph.outputs)
    return _Part(
        Graph(reads, nodes, [v for v in dict.fromkeys(v for n in nodes for v in n.outputs) if v in wanted]), name
    )


# ***** draws *****


def _draw(node: Node, inputs: Sequence[Any]) -> tuple[Any, Tensor]:
    """The stream, which is a generator that goes on, and numbers from it."""
    generator, *operands = inputs
    numbers = node.outputs[1]
    drawn = empty_spec(Spec.of(numbers.dtype, generator.device, numbers.shape))
    given = {k: v for k, v in node.params.items() if k not in ("shape", "dtype")}
    fill = _FILLS.get(node.prim.name)
    if fill is None:
        raise MissingFeatureError(f"prim.{node.prim.name} cannot run in a program")
    if drawn._spec.numel:
        fill(generator, drawn, *operands, **given)
    return generator, drawn


def _normal(generator: Any, x: Tensor, mean: float, std: float, serial: bool) -> None:
    fill = streams.fill_normal_serial if serial else streams.fill_normal
    fill(generator, x._ptr, x._spec.numel, x._spec.dtype, mean, std)


def _bernoulli_each(generator: Any, x: Tensor, chances: Any) -> None:
    chances = _quietly(lambda: chances.detach().contiguous())
    double = chances._spec.dtype is FLOAT64
    if not streams.fill_bernoulli_each(generator, x._ptr, x._spec.numel, x._spec.dtype, chances._ptr, double):
        raise RuntimeError("bernoulli: expected every probability to be in [0, 1]")


_FILLS: dict[str, Callable[..., Any]] = {
    "draw_uniform": lambda g, x, low, high: streams.fill_uniform(g, x._ptr, x._spec.numel, x._spec.dtype, low, high),
    "draw_normal": _normal,
    "draw_exponential": lambda g, x, rate: streams.fill_exponential(g, x._ptr, x._spec.numel, x._spec.dtype, rate),
    "draw_bernoulli": lambda g, x, p, value: streams.fill_bernoulli(g, x._ptr, x._spec.numel, x._spec.dtype, p, value),
    "draw_bernoulli_each": _bernoulli_each,
    "draw_integers": lambda g, x, low, high: streams.fill_integers(g, x._ptr, x._spec.numel, x._spec.dtype, low, high),
    "draw_permutation": lambda g, x: streams.fill_permutation(g, x._ptr, x._spec.numel, x._spec.dtype),
}
