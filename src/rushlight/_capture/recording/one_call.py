"""One call as a graph of primitives, whatever it runs: an operator, a composite, a derivative, a change in place.

>>> import rushlight as torch
>>> from rushlight._capture.recording.one_call import graph_of_call
>>> x = torch.empty(4, 6)
>>> call = graph_of_call(lambda x: x.t().contiguous(), [x])
>>> [node.prim.name for node in call.graph.nodes], call.results
(['transpose'], [Result(number=0, spec=Spec(float32, cpu, [6, 4], strides=[4, 1]), view=False)])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight._capture.recording.assemble import Assembler, Restart
from rushlight._capture.recording.errors import RecordingError
from rushlight._capture.recording.log import Collective, Draw
from rushlight._capture.recording.recording import Recording
from rushlight._capture.recording.regions import RegionError
from rushlight._capture.recording.running.program import _Build
from rushlight._engine.core.tensor import Tensor
from rushlight._graph.core import Graph, GraphBuilder, Node, evaluate
from rushlight._prims.record import prim
from rushlight._types.spec import Spec

__all__ = ["CallGraph", "Result", "graph_of_call"]


class Result(NamedTuple):
    """A tensor that a call gives: which output of the graph, or input of the call where `number` is negative (-1 is
    input 0); how it lies; whether it shows memory of an input.
    """

    number: int
    spec: Spec
    view: bool


class CallGraph(NamedTuple):
    """The graph of one call.

    `reads` are the tensors whose values the graph takes, by number.  The graph's outputs are the values of `results`,
    then the new values of the tensors in `changed`.  `structure` is what the function returned, with numbers of results
    in place of tensors.
    """

    graph: Graph
    reads: list[int]
    results: list[Result]
    changed: list[int]
    structure: Any


def graph_of_call(function: Callable[..., Any], tensors: Sequence[Tensor]) -> CallGraph:
    """The graph of `function(*tensors)`, which is recorded and does not run.

    The function may return tensors in tuples and lists.  RecordingError for what depends on elements, draws random
    numbers, or asks for more than shapes.
    """
    try:
        return _graph_of_call(function, tensors)
    except (Restart, RegionError) as error:  # a view of a broadcast gradient, for example, which lies in fewer elements
        raise RecordingError("the call shows memory through a layout that is no view") from error


def _graph_of_call(function: Callable[..., Any], tensors: Sequence[Tensor]) -> CallGraph:
    recording = Recording()
    with recording:
        given = [recording.stand_in(x) for x in tensors]
        outputs: list[Tensor] = []
        structure = _numbered(function(*given), outputs)
        build = _Build(recording, outputs, None)
        assembler = _assembled(build)
        with assembler.builder:
            numbers = {id(x): i for i, x in enumerate(given)}
            results: list[Result] = []
            values: list[Any] = []
            for x in outputs:
                spec = Spec.of(x._spec.dtype, recording.host, x._spec.shape, x._spec.strides, x._spec.conj)
                if id(x) in numbers:
                    results.append(Result(-1 - numbers[id(x)], spec, True))
                    continue
                shows = recording.memory_at(x._ptr).real is not None
                results.append(Result(len(values), spec, shows))
                part = _part(x, assembler) if shows else None
                values.append(build._read(x, assembler) if part is None else part)
            changed = build._changed(assembler)
            values += [c.value for c in changed]
        if assembler.checks:
            raise RecordingError("the call checks elements of tensors")
        graph = assembler.builder.finish(values)
    graph, reads = _plain(graph, assembler)
    return CallGraph(graph, reads, results, [c.given.content for c in changed], structure)


def _numbered(value: Any, found: list[Tensor]) -> Any:
    """A result with the numbers of its tensors in their places."""
    if isinstance(value, Tensor):
        found.append(value)
        return len(found) - 1
    if isinstance(value, (tuple, list)):
        return [_numbered(v, found) for v in value]
    if value is not None:
        raise RecordingError(f"the call returns a {type(value).__name__}")
    return None


def _assembled(build: _Build) -> Assembler:
    recording = build.recording
    if any(type(entry) is Draw for entry in recording.log):
        raise RecordingError("the call draws random numbers")
    if any(type(entry) is Collective for entry in recording.log):
        raise RecordingError("the call communicates")
    try:
        assembler = Assembler(recording, build._roots(set()), lambda i: build._own(i).offset, set())
        assembler.run(recording.log)
    except (Restart, RegionError) as error:
        raise RecordingError("the call changes memory through a layout that is no view") from error
    return assembler


def _part(x: Tensor, assembler: Assembler) -> Any:
    """A view of an input as a slice of its dims, in some order; None where it is none, or the input was changed."""
    stretch = assembler.stretch(x._ptr)
    root = stretch.root
    if root is None or root.kind != "input" or stretch.value is not stretch.first or stretch.dtype is not x._spec.dtype:
        return None
    offset = assembler._offset(stretch, x._ptr, x._spec.dtype)
    held = stretch.layout
    taken = _dims_of(held.shape, held.strides, x._spec.shape, x._spec.strides, offset - held.offset)
    if taken is None:
        return None
    starts, stops, steps, order = taken
    value = stretch.value
    if (starts, stops, steps) != ((0,) * len(starts), held.shape, (1,) * len(starts)):
        value = prim.slice(value, starts=starts, stops=stops, steps=steps)
    rest = tuple(d for d in range(len(starts)) if d not in order)
    if (perm := (*order, *rest)) != tuple(range(len(perm))):
        value = prim.transpose(value, perm=perm)
    shape = tuple(x._spec.shape)
    return value if value.shape == shape else prim.reshape(value, shape=shape)


def _dims_of(
    shape: Sequence[int], strides: Sequence[int], to_shape: Sequence[int], to_strides: Sequence[int], start: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """Starts, stops and steps of the dims of an array, and their order, that give another layout of its memory: each of
    its dims steps along one of the array's, the others are at one index.
    """
    if start < 0 or 0 in shape or 0 in to_shape:
        return None
    starts = [0] * len(shape)
    for d in sorted(range(len(shape)), key=lambda d: -strides[d]):
        if shape[d] > 1 and strides[d]:
            starts[d] = min(start // strides[d], shape[d] - 1)
            start -= starts[d] * strides[d]
    if start:
        return None
    stops, steps, order = [a + 1 for a in starts], [1] * len(shape), []
    for n, stride in zip(to_shape, to_strides, strict=True):
        if n == 1:
            continue
        fits = [
            d for d in range(len(shape))
            if d not in order and shape[d] > 1 and strides[d] and stride and stride % strides[d] == 0
            and starts[d] + (n - 1) * (stride // strides[d]) < shape[d]
        ]  # fmt: skip
        if not fits:
            return None
        d = max(fits, key=lambda d: strides[d])
        order.append(d)
        steps[d] = stride // strides[d]
        stops[d] = starts[d] + (n - 1) * steps[d] + 1
    return tuple(starts), tuple(stops), tuple(steps), tuple(order)


def _plain(graph: Graph, assembler: Assembler) -> tuple[Graph, list[int]]:
    """The graph without the borders of its calls, and the numbers of the tensors that it takes."""
    used = {v for node in graph.nodes for v in node.inputs} | set(graph.outputs)
    inputs = [v for v in graph.inputs if v in used]
    if any(assembler.given[v].kind != "input" for v in inputs):
        raise RecordingError("the call depends on more than its tensors")
    reads = [assembler.given[v].content for v in inputs]

    def apply(node: Node, xs: list[Any]) -> Any:
        if node.prim.name == "operand":
            return xs[0]
        if node.prim.name == "reshape" and xs[0].node is not None and xs[0].node.prim.name == "full":
            return prim.full(**{**xs[0].node.params, "shape": node.params["shape"]})
        return tuple(xs) if node.prim.name == "border" else node.prim(*xs, **node.params)

    builder = GraphBuilder()
    new = [builder.input_like(v) for v in inputs]
    with builder:
        outputs = evaluate(Graph(inputs, graph.nodes, graph.outputs), new, apply)
    return builder.finish(outputs), reads
