"""Parts of control flow: from their logs to graphs of their own, and the gradients that go through them.

What a part reads of memory that it does not allocate is an operand of the primitive.  The backward of a branch is a
branch over the same condition, whose parts compute the forward again, from what that was given.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from rushlight._backends.reference import run as run_by_reference
from rushlight._capture.recording.assemble import Assembler, Given
from rushlight._capture.recording.backend import allocated
from rushlight._capture.recording.device import recorded
from rushlight._capture.recording.errors import RecordingError
from rushlight._capture.recording.log import Branch, Check, Collective, Copy, Draw, Loop, Move, Part, Read
from rushlight._capture.recording.memory import InputBackward, OpenPart
from rushlight._capture.recording.regions import Layout
from rushlight._capture.recording.running.host_numbers import HostNumber
from rushlight._engine.autograd.engine import run_backward
from rushlight._engine.autograd.node import AccumulateGrad, GradientEdge, Node
from rushlight._engine.core.hooks import OPS
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor, make, meta_of
from rushlight._graph.core import Graph, GraphBuilder, evaluate, live_nodes
from rushlight._prims import branches, build
from rushlight._prims.effects import prim
from rushlight._transforms.vjp import vjp
from rushlight._types.dtype import BOOL, UINT8, DType
from rushlight._types.layout import contiguous_strides
from rushlight._types.spec import Spec

__all__ = ["ONE_SIDED", "BranchBackward", "ControlFlow", "behind", "closed", "one_sided", "results_of"]


ONE_SIDED = (
    "one function of cond has a gradient for a tensor with a history for which the other has none: that history would get "
    "zeros, and eager calls leave it out"
)


class PartAssembler(Assembler):
    """Writes the graph of a part.  `captured` has, by what was read of memory from outside, the graph's input and the
    value of the outer graph that it gets; `known` are such values of an earlier time.
    """

    def __init__(self, outer: Assembler, own: frozenset[int], known: dict[Any, Any]) -> None:
        super().__init__(outer.recording, {}, outer.place, outer.flattened)
        self.outer, self.own, self.known = outer, own, known
        self.captured: dict[Any, tuple[Any, Any]] = {}
        self.control_flow = outer.control_flow

    def carry(self, address: int, spec: Spec) -> None:
        """Let memory be an input of the graph, row-major."""
        self.own |= {address}
        stretch = self.stretch(address)
        stretch.value = self.builder.input(tuple(spec.shape), spec.dtype)
        stretch.layout, stretch.dtype = Layout(tuple(spec.shape), contiguous_strides(tuple(spec.shape))), spec.dtype

    def run(self, log: Sequence[Any]) -> None:
        """Go through the log; RecordingError for what a part cannot do."""
        for entry in log:
            if isinstance(entry, (Check, Collective, Draw, Move, Read)):
                raise RecordingError(f"control flow with a part that {_DOES[type(entry)]}")
        super().run(log)

    def read(self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: DType) -> Any:
        """As `Assembler.read`; memory from outside is captured."""
        shape, strides = tuple(shape), tuple(strides)
        if 0 in shape or self.recording.memory_at(address).address in self.own:
            return super().read(address, shape, strides, dtype)
        key = address, shape, strides, dtype
        return self._captured(key, shape, dtype, lambda: self.outer.read(address, shape, strides, dtype))

    def _captured(self, key: Any, shape: tuple[int, ...], dtype: DType, outer: Any) -> Any:
        found = self.captured.get(key)
        if found is None:
            value = self.known.get(key)
            if value is None:
                with self.outer.builder:
                    value = outer()
            found = self.captured[key] = self.builder.input(shape, dtype), value
        return found[0]

    def _given(self, given: Given) -> Any:
        key = given.kind, given.content, given.dtype
        return self._captured(key, given.layout.shape, given.dtype, lambda: self.outer._given(given))

    def number(self, number: Any, dtype: DType) -> Any:
        """As `Assembler.number`."""
        if isinstance(number, HostNumber) and not number.computed:
            raise RecordingError("control flow with a part that is given a number of the host")
        return super().number(number, dtype)

    def _copy(self, entry: Copy) -> None:
        if self.recording.memory_at(entry.source).address in self.own or not entry.nbytes:
            super()._copy(entry)
            return
        dtype = self._dtype_outside(entry.source)
        count = entry.nbytes // dtype.itemsize
        self.write(entry.address, (count,), (1,), self.read(entry.source, (count,), (1,), dtype))

    def _dtype_outside(self, address: int) -> DType:
        outer = self.outer
        while isinstance(outer, PartAssembler) and self.recording.memory_at(address).address not in outer.own:
            outer = outer.outer
        dtype: DType = outer.stretch(address).dtype or UINT8
        return dtype


_DOES: dict[type, str] = {
    Check: "checks elements", Collective: "communicates", Draw: "draws random numbers", Read: "gives numbers to the host",
    Move: "copies numbers of the host",
}  # fmt: skip


class ControlFlow:
    """Writes branches and loops into a graph."""

    def __init__(self) -> None:
        self._known: dict[int, list[dict[Any, Any]]] = {}  # what the parts of an entry have captured

    def write(self, assembler: Assembler, entry: Branch | Loop) -> None:
        """Add the primitive of an entry."""
        carried = list(entry.carried) if isinstance(entry, Loop) else []
        parts, outputs = [], []
        for number, part in enumerate(entry.parts):
            made, results = self._part(assembler, entry, number, part, carried)
            parts.append(made)
            outputs.append(results)
        self._known[id(entry)] = [{key: value for key, (_, value) in made.captured.items()} for made in parts]
        union = list(dict.fromkeys(key for made in parts for key in made.captured))
        places = {key: len(carried) + k for k, key in enumerate(union)}
        values = {key: value for made in parts for key, (_, value) in made.captured.items()}
        found = tuple(
            branches.Part(
                Graph(made.builder.inputs, live_nodes(made.builder.nodes, results), results),
                [*range(len(carried)), *[places[key] for key in made.captured]],
                run_by_reference,
                _pulled,
            )
            for made, results in zip(parts, outputs, strict=True)
        )
        first = (
            [assembler.read(entry.condition, (), (), BOOL)]
            if isinstance(entry, Branch)
            else [
                assembler.read(address, spec.shape, contiguous_strides(tuple(spec.shape)), spec.dtype)
                for address, (_, spec) in zip(entry.first, carried, strict=True)
            ]
        )
        assembler.calls += 1
        operands = [assembler.operand(value) for value in (*first, *[values[key] for key in union])]
        if isinstance(entry, Branch):
            made_values = prim.conditional(*operands, parts=found)
        else:
            made_values = prim.loop(*operands, count=len(carried), parts=found)
        strides = tuple(contiguous_strides(value.shape) for value in made_values)
        for address, value, lies in zip(entry.fresh, prim.border(*made_values, strides=strides), strides, strict=True):
            assembler.write(address, value.shape, lies, value)

    def _part(
        self, assembler: Assembler, entry: Branch | Loop, number: int, part: Part, carried: Sequence[tuple[int, Spec]]
    ) -> tuple[PartAssembler, list[Any]]:
        base = entry.base if isinstance(entry, Branch) else None
        own = part.own if base is None else part.own | base.parts[number].own
        known = {} if base is None else self._known[id(base)][number]
        made = PartAssembler(assembler, own, known)
        with made.builder:
            for address, spec in carried:
                made.carry(address, spec)
            if base is not None:
                made.run(base.parts[number].log)
            made.run(part.log)
            results = [made.read(a, spec.shape, spec.strides, spec.dtype) for a, spec in part.results]
            return made, [x if x.node is not None else build.reshape(x, x.shape) for x in results]


# ***** gradients *****


def _pulled(part: branches.Part, xs: Sequence[Any], mask: Sequence[bool]) -> branches.Part:
    """The backward of a part that computes everything again; see `Part`."""
    graph = part.graph
    wrt = [i for i, v in enumerate(graph.inputs) if branches.has_derivative(v)]
    gradient = vjp(graph, wrt, mask, only=[("input", i) for i in range(len(graph.inputs))])
    order = [part.picks[i] for _, i in gradient.saved]
    order += range(len(xs), len(xs) + sum(mask))
    numbers: dict[int, int] = {}  # of operands of the primitive: the number of the gradient
    for i, number in zip(wrt, gradient.grads, strict=True):
        if number is not None:
            numbers[part.picks[i]] = number
    builder = GraphBuilder()
    inputs = [builder.input(v.shape, v.dtype) for v in gradient.backward.inputs]
    with builder:
        found = evaluate(gradient.backward, inputs)
        results = [
            found[numbers[k]] if k in numbers else build.full(x.shape, 0, x.dtype)
            for k, x in enumerate(xs)
            if branches.has_derivative(x)
        ]
    return branches.Part(builder.finish(results), order, run_by_reference, _pulled)


def closed(part: OpenPart, results: Sequence[Tensor]) -> Part:
    """A part that gives these tensors."""
    return Part(part.log, [(x._ptr, x._spec) for x in results], frozenset(part.own))


def results_of(specs: Sequence[Spec]) -> list[Tensor]:
    """Recorded tensors over new memory, row-major."""
    made = []
    for spec in specs:
        storage = allocated(spec.nbytes, recorded(spec.device))
        made.append(make(storage, Spec.of(spec.dtype, spec.device, spec.shape), storage.ptr))
    return made


class BranchBackward(Node):
    """The history of a branch's results: a branch of the backwards of both parts.

    `results` are those of each part, with the histories that they have in it.  The sums of gradients are those of
    calls one by one: what has arrived for an input before goes through the parts.  With `zeros` a history that one part
    alone reaches gets zeros where the other one ran.
    """

    __slots__ = ("count", "entry", "recording", "results", "zeros")

    def __init__(
        self, recording: Any, entry: Branch, results: Sequence[Sequence[Tensor]], before: int, zeros: bool = False
    ) -> None:
        self.recording, self.entry, self.results, self.count = recording, entry, results, len(entry.fresh)
        self.zeros = zeros
        edges: dict[tuple[Any, int], None] = {}
        for part in results:
            edges |= dict.fromkeys(_edges_from(part, before))
        self._start(list(edges))

    @property
    def _n_outputs(self) -> int:  # type: ignore[override]
        return self.count

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """Gradients of what both parts read."""
        if STATE.word & GRAD:
            raise RecordingError("second derivatives of control flow cannot be part of a recorded program yet")
        task = STATE.task
        wanted = [k for k, (node, _) in enumerate(self._edges) if task.runs(node)]
        # Who asks for gradients one by one gets them so; elsewhere what has arrived goes through the parts.
        single = [k for k in wanted if task.apart is None or self._edges[k][0] not in task.captures]
        held = {k: _taken_out(task, self._edges[k]) if k in single else None for k in wanted}
        parts = [OpenPart(), OpenPart()]
        found = []
        for part, results in zip(parts, self.results, strict=True):
            with self.recording.part(part):
                found.append(self._through(results, grads, held, single))
        slots = []  # (edge, which of its gradients, spec)
        for k in wanted:
            both = [each[k] for each in found]
            leaf = isinstance(self._edges[k][0], AccumulateGrad)
            if any(both) and not all(both) and not (leaf or self.zeros):
                raise RecordingError(ONE_SIDED)
            spec = next((each[0]._spec for each in both if each), None)
            slots += [] if spec is None else [(k, n, spec) for n in range(max(len(each) for each in both))]
        ends = []
        for part, each, base in zip(parts, found, self.entry.parts, strict=True):
            with self.recording.part(part):
                own = part.own | base.own
                closing = [self._owned(each[k], n, spec, own) for k, n, spec in slots]
            ends.append(closed(part, closing))
        made = results_of([spec for _, _, spec in slots])
        self.recording.note(Branch(self.entry.condition, (ends[0], ends[1]), [x._ptr for x in made], self.entry))
        answer: list[Tensor | None] = [None] * len(self._edges)
        for (k, _, _), x in zip(slots, made, strict=True):
            if answer[k] is not None:
                task.add(self._edges[k], answer[k])
            answer[k] = x
        return answer

    def _through(
        self, results: Sequence[Tensor], grads: Sequence[Tensor | None], held: dict[int, Any], single: Sequence[int]
    ) -> dict[int, list[Tensor]]:
        """The gradients of one part, by the number of the edge: what is to be added up, or the sum for `single`."""
        roots: list[Any] = []
        given: list[Any] = []
        for x, grad in zip(results, grads, strict=True):
            if grad is not None and x._node is not None:
                roots.append(x)
                given.append(grad)
        for k, grad in held.items():
            if grad is not None:
                roots.append(GradientEdge(*self._edges[k]))
                given.append(grad)
        if not roots or not held:
            return {k: [] for k in held}
        inputs = [GradientEdge(*self._edges[k]) for k in held]
        found: dict[int, list[Tensor]] = {}
        ends = [node for node, _ in self._edges]
        for k, each in zip(held, run_backward(roots, given, True, False, inputs, False, True, ends), strict=True):
            gradients = [] if each is None else list(each) if isinstance(each, tuple) else [each]
            if k in single and gradients:
                gradients = [functools.reduce(OPS["add"], gradients)]
            found[k] = gradients
        return found

    def _owned(self, gradients: Sequence[Tensor], number: int, spec: Spec, own: set[int]) -> Tensor:
        """A gradient in memory of the part; zeros where the part has none, of the sign that changes no sum."""
        if number >= len(gradients):
            zeros: Tensor = OPS["zeros"](tuple(spec.shape), dtype=spec.dtype, device=spec.device)
            return -zeros
        grad = gradients[number]
        if self.recording.memory_at(grad._ptr).address in own and grad._spec.contiguous and not grad._spec.conj:
            return grad
        found: Tensor = OPS["clone"](grad.contiguous())
        return found


def _edges_from(results: Sequence[Tensor], before: int) -> list[tuple[Any, int]]:
    """Where histories leave a part: edges to nodes that are older than it, or of leaves."""
    found: list[tuple[Any, int]] = []
    todo = [x._node for x in results if x._node is not None]
    seen: set[int] = set()
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        for edge in node._edges:
            if edge is None:
                continue
            after, number = edge if type(edge) is tuple else (edge, 0)
            if isinstance(after, (AccumulateGrad, InputBackward)) or after._seq < before:
                found.append((after, number))
            else:
                todo.append(after)
    return found


def one_sided(parts: Sequence[Sequence[Tensor]], before: int) -> bool:
    """Whether a history that is no leaf's is reached from the results of one part alone."""
    first, second = (set(_edges_from(results, before)) for results in parts)
    return any(not isinstance(node, AccumulateGrad) for node, _ in first ^ second)


def _taken_out(task: Any, edge: tuple[Any, int]) -> Tensor | None:
    """Take the gradient at an edge so far in a backward call; the engine gets it back as a part of the sum."""
    node, number = edge
    buffer = task.buffers.get(node)
    if buffer is None or number >= len(buffer) or buffer[number] is None:
        return None
    found: Tensor = buffer[number]
    buffer[number] = None
    return found


def behind(results: Sequence[Tensor], node: Node) -> None:
    """Give results a node."""
    for number, x in enumerate(results):
        if x._spec.dtype.is_floating_point or x._spec.dtype.is_complex:
            x._node, x._rg = node, True
            if number:
                meta_of(x).output_nr = number
