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
from rushlight._capture.recording.log import Draw
from rushlight._capture.recording.recording import Recording
from rushlight._capture.recording.regions import RegionError
from rushlight._capture.recording.running.program import _Build
from rushlight._engine.core.tensor import Tensor
from rushlight._graph.core import Graph, GraphBuilder, Node, evaluate
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
    """What a call computes.

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
    recording = Recording()
    with recording:
        given = [recording.stand_in(x) for x in tensors]
        outputs: list[Tensor] = []
        structure = _numbered(function(*given), outputs)
        build = _Build(recording, outputs, None)
        assembler = _assembled(build)
        with assembler.builder:
            numbers = {id(x): i for i, x in enumerate(given)}
            results, values = [], []
            for x in outputs:
                spec = Spec.of(x._spec.dtype, recording.host, x._spec.shape, x._spec.strides, x._spec.conj)
                if id(x) in numbers:
                    results.append(Result(-1 - numbers[id(x)], spec, True))
                    continue
                results.append(Result(len(values), spec, recording.memory_at(x._ptr).real is not None))
                values.append(build._read(x, assembler))
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
    try:
        assembler = Assembler(recording, build._roots(set()), lambda i: build._own(i).offset, set())
        assembler.run(recording.log)
    except (Restart, RegionError) as error:
        raise RecordingError("the call changes memory through a layout that is no view") from error
    return assembler


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
        return tuple(xs) if node.prim.name == "border" else node.prim(*xs, **node.params)

    builder = GraphBuilder()
    new = [builder.input_like(v) for v in inputs]
    with builder:
        outputs = evaluate(Graph(inputs, graph.nodes, graph.outputs), new, apply)
    return builder.finish(outputs), reads
