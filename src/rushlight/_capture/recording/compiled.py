"""`CompiledProgram`: a recorded program as one executable, and the calls of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight._backends.registry import backend_of
from rushlight._capture.recording.assemble import Given
from rushlight._capture.recording.backward import NAME, ProgramBackwardSpec
from rushlight._capture.recording.errors import RecordingError
from rushlight._capture.recording.evaluation import Evaluation
from rushlight._capture.recording.host_numbers import HostNumber
from rushlight._capture.recording.log import Draw
from rushlight._engine.autograd.node import RELEASED, Node
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.memory import MEMORY, own
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor, add_view, make, meta_of
from rushlight._engine.dispatch.lower import Backward
from rushlight._engine.dispatch.node_recording import record
from rushlight._engine.random.random import _draw
from rushlight._graph.core import Graph, Value
from rushlight._types.device import CPU
from rushlight._types.spec import Spec

__all__ = ["Changed", "CompiledProgram", "Made"]


class Made(NamedTuple):
    """How an output is made: the input `number` itself ("same"), a view of its storage ("view"), a tensor without elements ("empty"), or one over the
    memory of a stretch ("storage"); `offset` is in bytes from the input's first element, or from the beginning of the memory."""

    kind: str
    number: int
    spec: Spec
    offset: int
    stretch: Any = None
    base: tuple[str, int] | None = None  # what it is a view of: an input, or a result
    creation: str = ""


class Changed(NamedTuple):
    """An input of the graph that holds `value` at the end."""

    given: Given
    value: Value


class CompiledProgram:
    """A function of the recording's `inputs` that gives a list of tensors.

    It takes tensors of the same specs, as the recording was given; whoever calls it answers for that, and for that they share memory as those did.
    It draws from the generators, writes to the inputs, and sets `.grad` where the recorded program did.
    """

    def __init__(
        self,
        build: Any,
        assembler: Any,
        graph: Graph,
        made: Sequence[Made],
        changed: Sequence[Changed],
        stretches: Sequence[Any],
        layouts: Sequence[Any],
    ) -> None:
        recording = build.recording
        self.specs = [x._spec for x in build.inputs]
        self.graph, self.made, self.grads, self.histories = graph, list(made), build.grads, build.histories
        self.n_outputs = build.n_outputs
        self.draws: list[Draw] = [e for e in recording.log[: build.forward_end] if type(e) is Draw]
        if any(type(e) is Draw for e in recording.log[build.forward_end :]):
            raise RecordingError("the backward of the program draws random numbers")
        self._stretches = {id(s): k for k, s in enumerate(stretches)}
        self._layouts = [layout.strides for layout in layouts]
        self._changed = list(changed)
        self._place(build, assembler)
        self._versions = build.versions()
        self.released = build.released
        self._options = build.options
        self._views = [j for j, each in enumerate(self.made) if each.base is not None]
        self._exe: Any = None
        self._backward: ProgramBackwardSpec | None = None
        self._residuals: list[Spec] = []
        self._wanting: list[int] = []

    def _place(self, build: Any, assembler: Any) -> None:
        """Where the words of the executable come from: (kind, number, bytes from the beginning), and their specs."""
        known = {id(assembler.given[v]): n for n, v in enumerate(self.graph.inputs)}
        self._aliases = {len(self._stretches) + k: known[id(c.given)] for k, c in enumerate(self._changed)}
        numbers = {id(d): k for k, d in enumerate(self.draws)}
        self._sources: list[tuple[str, int, int]] = []
        self._in_specs: list[Spec | None] = []
        self._held: list[Tensor] = []
        numbers_of_host: list[HostNumber] = []
        for value in self.graph.inputs:
            given = assembler.given[value]
            if given.kind == "number":
                self._sources.append(("number", len(numbers_of_host), 0))
                self._in_specs.append(None)
                numbers_of_host.append(given.content)
                continue
            self._in_specs.append(Spec.of(given.dtype, CPU, given.layout.shape, given.layout.strides))
            if given.kind == "input":
                step = (given.layout.offset - build._own(given.content).offset) * given.dtype.itemsize
                self._sources.append(("input", given.content, step))
            elif given.kind == "draw":
                self._sources.append(("draw", numbers[id(given.content)], 0))
            else:
                self._sources.append(("constant", len(self._held), 0))
                self._held.append(_constant(given))
        self._number_places = [place for place, _ in build.numbers_made]
        self._number_words = len(numbers_of_host)
        numbers_of_host += [number for _, number in build.numbers_made]
        self._evaluation = Evaluation(numbers_of_host, assembler) if numbers_of_host else None

    def differentiable(
        self,
        logical: Graph,
        backward: Graph,
        saved: Sequence[tuple[str, int]],
        wrt: Sequence[int],
        residuals: Sequence[Value],
        wanting: Sequence[int],
        count: int,
        variant: Any,
    ) -> None:
        """Let outputs `wanting` get a node: `logical` is the forward graph with an output for each output of the program, then residuals."""
        places = list(range(len(wrt)))
        what = Backward(logical, backward, list(saved), list(places))
        mask = [j in wanting for j in range(count)]
        self._backward = ProgramBackwardSpec(what, wrt, mask, variant)
        self._residuals = [Spec.of(v.dtype, CPU, v.shape, _lies(v)) for v in residuals]
        self._wanting = list(wanting)

    # ***** compiling *****

    def compile(self) -> Any:
        """The executable, made by the first call."""
        if self._exe is None and self.graph.outputs:
            layouts = [*self._layouts, *[c.given.layout.strides for c in self._changed]]
            layouts += [s.strides for s in self._residuals]
            self._exe = backend_of(CPU).compile(
                self.graph,
                [None if s is None else s.strides for s in self._in_specs],
                layouts,
                CPU,
                aliases=self._aliases,
                options=self._options,
            )
        return self._exe

    # ***** running *****

    def __call__(self, inputs: Sequence[Tensor]) -> list[Any]:
        """The outputs for these inputs."""
        exe = self.compile()
        for i, (x, spec) in enumerate(zip(inputs, self.specs, strict=True)):
            if x._spec is not spec:
                raise RuntimeError(f"input {i} of the program is {x._spec}, it was recorded for {spec}")
        if HOOKS.lazy_clones:
            for change in self._changed:
                own(inputs[change.given.content])
        drawn = [self._drawn(draw) for draw in self.draws]
        numbers = () if self._evaluation is None else self._evaluation(inputs)
        found: tuple[Any, ...] = ()
        if exe is not None:
            made = exe(*[self._word(source, inputs, drawn, numbers) for source in self._sources])
            found = made if type(made) is tuple else () if made is None else (made,)
        for number, count in self._versions:
            storage = inputs[number]._storage
            storage.version += count
            storage.changed = HOOKS.user_code()
        results = [self._result(made, inputs, found) for made in self.made]
        for j in self._views:
            self._link(j, inputs, results)
        if self._backward is not None and STATE.word & GRAD:
            self._record(inputs, drawn, numbers, results, found)
        if self.released and STATE.word & GRAD:
            for j in self.released:
                results[j]._node, results[j]._rg = _released_node(), True
        for i, j in self.grads:
            if j is not None:
                meta_of(inputs[i]).grad = results[j]
            elif inputs[i]._autograd_meta is not None:
                inputs[i]._autograd_meta.grad = None
        if self._number_places:
            results = results[: self.n_outputs]
            for place, number in zip(self._number_places, numbers[self._number_words :], strict=True):
                results.insert(place, number)
            return results
        return results[: self.n_outputs]

    def _drawn(self, draw: Draw) -> Any:
        storage = MEMORY.alloc(draw.total * draw.itemsize)
        _draw(draw.name, draw.kind, draw.generator, storage.ptr, draw.total, *draw.parameters)
        return storage

    def _word(
        self, source: tuple[str, int, int], inputs: Sequence[Tensor], drawn: Sequence[Any], numbers: Sequence[Any]
    ) -> Any:
        kind, number, step = source
        if kind == "number":
            return numbers[number]
        if kind == "input":
            return inputs[number]._ptr + step
        address: int = drawn[number].ptr if kind == "draw" else self._held[number]._ptr
        return address

    def _result(self, made: Made, inputs: Sequence[Tensor], found: Sequence[Any]) -> Tensor:
        if made.kind == "same":
            return inputs[made.number]
        if made.kind == "view":
            x = inputs[made.number]
            return make(x._storage, made.spec, x._ptr + made.offset)
        if made.kind == "empty":
            storage = MEMORY.alloc(0)
            return make(storage, made.spec, storage.ptr)
        storage = found[self._stretches[id(made.stretch)]]
        return make(storage, made.spec, storage.ptr + made.offset)

    def _link(self, j: int, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """Let a result be a view as it was in the recording."""
        made, out = self.made[j], results[j]
        assert made.base is not None
        kind, number = made.base
        base = inputs[number] if kind == "input" else results[number]
        held = base._autograd_meta
        if held is not None and held.base is not None:
            base = held.base
        meta = meta_of(out)
        meta.base, meta.creation = base, made.creation
        add_view(base, out)

    def _record(
        self,
        inputs: Sequence[Tensor],
        drawn: Sequence[Any],
        numbers: Sequence[Any],
        results: list[Tensor],
        found: Sequence[Any],
    ) -> None:
        """The node behind the outputs."""
        assert self._backward is not None
        first = len(found) - len(self._residuals)
        residuals = [make(s, spec, s.ptr) for s, spec in zip(found[first:], self._residuals, strict=True)]
        operands = [
            numbers[source[1]] if spec is None else self._operand(source, spec, inputs, drawn)
            for source, spec in zip(self._sources, self._in_specs, strict=True)
        ]
        node = record(self._backward, operands, [*results[: self._backward.n_results], *residuals])
        for j in self._wanting:
            out = results[j]
            out._node, out._rg = node, True
            if j:
                meta_of(out).output_nr = j

    def _operand(
        self, source: tuple[str, int, int], spec: Spec, inputs: Sequence[Tensor], drawn: Sequence[Any]
    ) -> Tensor:
        kind, number, step = source
        if kind == "input":
            x = inputs[number]
            return x if x._spec is spec else make(x._storage, spec, x._ptr + step)
        if kind == "draw":
            return make(drawn[number], spec, drawn[number].ptr)
        return self._held[number]


def _released_node() -> Node:
    """The history of an output through which the program has gone backward: what it saved is freed."""
    node = ReleasedBackward()
    node._start(())
    return node


class ReleasedBackward(Node):
    """See `_released_node`."""

    __slots__ = ()

    def name(self) -> str:
        """As that of other outputs."""
        return NAME

    def apply(self, grads: Any) -> Any:
        """RuntimeError: backward was called before."""
        raise RuntimeError(RELEASED)


def _lies(value: Value) -> tuple[int, ...] | None:
    """The strides of a value that is saved: a result of a call lies as that left it."""
    node = value.node
    if node is None or node.prim.name != "border":
        return None
    strides: tuple[int, ...] = node.params["strides"][value.index]
    return strides


def _constant(given: Given) -> Tensor:
    storage = MEMORY.alloc(len(given.content))
    memoryview(storage).cast("B")[:] = given.content
    return make(storage, Spec.of(given.dtype, CPU, given.layout.shape), storage.ptr)
