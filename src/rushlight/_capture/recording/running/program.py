"""From a recording to a `CompiledProgram`: its graphs, its executables, and what they are given and give."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rushlight._base.collector import uncollected
from rushlight._capture.recording.assemble import Assembler, Given, Restart, laid_out
from rushlight._capture.recording.control_flow import ControlFlow
from rushlight._capture.recording.derivatives.histories import history_of, keeps
from rushlight._capture.recording.derivatives.levels import Point, ProgramLevel
from rushlight._capture.recording.derivatives.saved_memory import SavedMemory
from rushlight._capture.recording.errors import BackwardWriteError, RecordingError
from rushlight._capture.recording.log import Branch, Call, Draw, Loop
from rushlight._capture.recording.memory import InputBackward, Memory
from rushlight._capture.recording.regions import Layout, path_to, shown
from rushlight._capture.recording.running.compiled import CompiledProgram
from rushlight._capture.recording.running.host_numbers import HostNumber
from rushlight._capture.recording.running.host_part import HostPart
from rushlight._capture.recording.running.results import Changed, Dress, Made
from rushlight._engine.autograd.engine import run_backward
from rushlight._engine.autograd.node import RELEASED, GradientEdge, split_edge
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.tensor import Tensor, edge_of, was_changed
from rushlight._engine.dispatch.lower import Backward
from rushlight._graph.core import Graph, Value, live_nodes
from rushlight._transforms.partition import Joint, partition
from rushlight._types.layout import contiguous_strides, is_dense, memory_order
from rushlight._types.spec import Spec
from rushlight._types.symbols import hint

__all__ = ["compiled_program"]


def compiled_program(recording: Any, outputs: Sequence[Any], options: Mapping[str, Any] | None) -> CompiledProgram:
    """See `Recording.finish`."""
    flattened: set[int] = set()
    if HOOKS.operators_compiled is not None:
        HOOKS.operators_compiled({f"aten::{each.exe.operator}" for each in recording.log if type(each) is Call})
    with uncollected():
        build = _Build(recording, outputs, options)
        while True:
            try:
                return build.program(flattened)
            except Restart as error:
                flattened.add(error.address)


class _Build:
    """One program in the making."""

    def __init__(self, recording: Any, outputs: Sequence[Any], options: Mapping[str, Any] | None) -> None:
        self.recording, self.inputs, self.options = recording, recording.inputs, options
        self.standing = [recording.stand_in(x) for x in self.inputs]
        self.first_grads = list(recording.first_grads)
        self.numbers_made = [(place, x) for place, x in enumerate(outputs) if isinstance(x, HostNumber)]
        self.outputs = [x for x in outputs if not isinstance(x, HostNumber)]
        for x in self.outputs:
            if not recording.is_recorded(x):
                raise RecordingError("a program returns recorded tensors")
        self.n_outputs = len(self.outputs)
        self.numbers = {id(x): i for i, x in enumerate(self.standing)}
        self._note_wrapped()
        self._note_grads()
        self._note_histories()
        self._note_output_grads()
        self._note_bases()
        recording.streams.check_ends()
        if any(type(entry) is Draw and recording.is_beside(entry.address) for entry in recording.log):
            raise RecordingError("the host draws random numbers in a program of another device")
        self.forward_end = len(recording.log)
        self.cotangents: list[Tensor] = []
        self.saved_memory = SavedMemory(self)
        self.gradients: list[Tensor | None] = []
        self.wrt: list[int] = []
        changed = {j for _, j in self.histories}
        self.wanting = [
            j
            for j, x in enumerate(self.outputs)
            if x._node is not None and x._rg and (id(x) not in self.numbers or j in changed)
        ]
        # Outputs without a backward: (output, the error that it raises, the inputs that it comes from)
        self.released = [(j, RELEASED, self._origins(j)) for j in self.wanting if _is_released(self.outputs[j])]
        if any(_has_hooks(self.outputs[j]) for j, *_ in self.released):  # some of them run before the error
            raise RecordingError("a hook was put on a tensor whose backward is an error")
        self._leave_out([j for j, *_ in self.released])
        if self.wanting:
            self._record_backward()
        self.host_part: HostPart | None = None
        self.specs = list(recording.specs)
        self.inputs = []  # a program that is kept does not keep its first inputs

    # ***** what the program leaves behind beside its outputs *****

    def _note_wrapped(self) -> None:
        """Inputs inside of tensors that want gradients: number -> the outer tensor."""
        self.wrapped: dict[int, Any] = {}
        self._parts: dict[Any, Any] = {}  # by the nodes at which their gradients arrive
        numbers = {id(x): i for i, x in enumerate(self.inputs)}
        for given in self.recording.wrapped:
            number = None if given.inside is None else numbers.get(id(given.inside))
            if number is None:
                continue
            if number in self.wrapped:
                raise RecordingError("two tensors that want gradients are made of the same one")
            self.wrapped[number] = given
            self._parts[split_edge(edge_of(given.made))[0]] = given.part

    def _edge(self, i: int) -> Any:
        """Where the gradient of an input arrives in the recorded history."""
        if i in self.wrapped:
            return edge_of(self.wrapped[i].made)
        return self.recording.first_edges.get(i) or edge_of(self.standing[i])

    def _note_grads(self) -> None:
        """Gradients that were set are further outputs: (input, output or None)."""
        self.grads: list[tuple[int, int | None]] = []
        for i, x in enumerate(self.standing):
            held = None if x._autograd_meta is None else x._autograd_meta.grad
            if held is self.first_grads[i]:
                continue
            if held is None:
                self.grads.append((i, None))
            elif not self.recording.is_recorded(held):
                raise RecordingError("a tensor that was not recorded became a gradient")
            else:
                self.grads.append((i, self._output(held)))

    def _note_output_grads(self) -> None:
        """Outputs that have gradients, which are further outputs: (output, output of its gradient)."""
        self.output_grads: list[tuple[int, int]] = []
        for j, x in enumerate(self.outputs):  # grows while it is walked
            held = None if x._autograd_meta is None or id(x) in self.numbers else x._autograd_meta.grad
            if held is not None:
                if not self.recording.is_recorded(held):
                    raise RecordingError("a tensor that was not recorded became a gradient")
                self.output_grads.append((j, self._output(held)))

    def _note_histories(self) -> None:
        """Inputs that got a history, or left theirs: (input, output)."""
        self.histories: list[tuple[int, int]] = []
        self.flags: list[tuple[int, bool]] = []  # leaves that want gradients from now on, or none any longer
        for i, x in enumerate(self.standing):
            node, meta = x._node, x._autograd_meta
            if self._is_hooked(i, node, meta):
                raise RecordingError("a hook was put on a tensor that the program was given")
            if (node is None) is not (self.inputs[i]._node is None) and node is None:
                raise RecordingError("a tensor that the program was given was detached in place")
            if node is None and x._rg is not self.inputs[i]._rg:
                self.flags.append((i, x._rg))
            if node is not None and type(node) is not InputBackward:
                if self.inputs[i]._autograd_meta is not None and self.inputs[i]._autograd_meta.base is not None:
                    raise RecordingError("a view that the program was given got another history")
                self.histories.append((i, self._output(x)))

    def _is_hooked(self, i: int, node: Any, meta: Any) -> bool:
        """Whether an input has other hooks than it came with; those are taken away: its own tensor has them."""
        held = self.inputs[i]._autograd_meta
        hooks = 0 if held is None else len(held.hooks or ())
        extra = node._extra if type(node) is InputBackward else None
        now = extra.tensor_hooks.get(0, ()) if extra is not None and extra.tensor_hooks else ()
        if meta is not None:
            if meta.retains or len(meta.post_hooks or ()) != min(
                1 if not self.recording.keeps_hooks else 99, len((held and held.post_hooks) or ())
            ):
                return True
            now = now or meta.hooks or ()
            meta.hooks = meta.post_hooks = None
        if extra is not None:
            if extra.pre_hooks or extra.post_hooks or extra.retain:
                return True
            extra.tensor_hooks = None
        return len(now) != hooks

    def _note_bases(self) -> None:
        """Note the bases of outputs that are views: inputs, outputs, or tensors that the program keeps for itself,
        which are made after the outputs.
        """
        self.hidden: list[Tensor] = []
        self.bases: dict[int, tuple[tuple[str, int], str]] = {}
        for x in list(self.outputs):
            meta = x._autograd_meta
            if meta is None or meta.base is None or id(x) in self.numbers:
                continue
            base = meta.base
            if id(base) in self.numbers:
                place = ("input", self.numbers[id(base)])
            elif any(other is base for other in self.outputs):
                place = ("result", next(j for j, other in enumerate(self.outputs) if other is base))
            elif (x._rg or base._rg) and not meta.creation:
                continue  # its history would not be known behind the view
            elif x._rg or base._rg:
                place = ("result", self._output(base))  # or the view could be changed in place, which it refuses
            else:
                if not any(other is base for other in self.hidden):
                    self.hidden.append(base)
                number = next(k for k, other in enumerate(self.hidden) if other is base)
                place = ("result", len(self.outputs) + number)
            self.bases[id(x)] = place, "changed" if was_changed(x) else meta.creation

    def _output(self, x: Tensor) -> int:
        for j, other in enumerate(self.outputs):
            if other is x:
                return j
        self.outputs.append(x)
        return len(self.outputs) - 1

    # ***** backward *****

    def _leave_out(self, numbers: Sequence[int]) -> None:
        self.wanting = [j for j in self.wanting if j not in numbers]

    def _refused(self, edges: Sequence[GradientEdge]) -> list[tuple[int, str, list[int]]]:
        """The outputs through which backward does not run, and what it says: that a saved tensor was changed, for
        example.
        """
        found = []
        for k, j in enumerate(self.wanting):
            try:
                self._gradients_of([k], edges)
            except RecordingError:
                raise
            except RuntimeError as error:
                found.append((j, str(error), self._origins(j)))
        return found

    def _origins(self, j: int) -> list[int]:
        """The inputs to which the history of an output leads."""
        history = set(map(id, history_of([self.outputs[j]])))
        found = []
        for i in range(len(self.standing)):
            edge = self._edge(i)
            if id(edge[0] if isinstance(edge, tuple) else edge) in history:
                found.append(i)
        return found

    def _record_backward(self) -> None:
        """Run the engine's backward on the recorded tensors, with stand-ins for the gradients of the outputs that want
        one.
        """
        recording = self.recording
        edges: list[tuple[int, GradientEdge]] = []
        with recording.continued():
            for j in self.wanting:
                spec = self.outputs[j]._spec
                strides = spec.strides if is_dense(spec.shape, spec.strides) else None  # as most eager gradients lie
                self.cotangents.append(recording.cotangent(Spec.of(spec.dtype, spec.device, spec.shape, strides)))
            wants = {i for i, flag in self.flags if flag}.union(self.wrapped)
            for i, x in enumerate(self.inputs):
                edge = self._edge(i) if x._rg or i in wants else None
                if edge is not None:
                    edges.append((i, GradientEdge(*(edge if isinstance(edge, tuple) else (edge, 0)))))
            try:
                found = self._gradients_of(range(len(self.wanting)), [edge for _, edge in edges])
            except RecordingError:
                raise
            except RuntimeError:
                refused = self._refused([edge for _, edge in edges])
                kept = [k for k, j in enumerate(self.wanting) if j not in [j for j, *_ in refused]]
                self.released += refused
                self._leave_out([j for j, *_ in refused])
                self.cotangents = [self.cotangents[k] for k in kept]
                chosen = range(len(self.wanting))
                found = self._gradients_of(chosen, [edge for _, edge in edges]) if chosen else [None] * len(edges)
        reached = [k for k, g in enumerate(found) if g is not None]
        self.wrt, self.edges = [edges[k][0] for k in reached], [edges[k][1] for k in reached]
        self.gradients = [found[k] for k in reached]
        self.several = self._reached_by_several()
        self.frees = any(keeps(node) for node in history_of([self.outputs[j] for j in self.wanting]))

    def _reached_by_several(self) -> list[int]:
        """The edges to inputs (numbers in `edges`) to which more than one edge of the recorded history leads."""
        count = {edge.node: 0 for edge in self.edges}
        stack = [self.outputs[j]._node for j in self.wanting]
        seen = set(stack)
        while stack:
            for edge in stack.pop()._edges:
                if edge is None:
                    continue
                node = edge[0] if type(edge) is tuple else edge
                if node in count:
                    count[node] += 1
                elif node not in seen:
                    seen.add(node)
                    stack.append(node)
        return [k for k, edge in enumerate(self.edges) if count[edge.node] > 1]

    def _joined(self) -> dict[int, frozenset[int]]:
        """Of each output those that have what they saved in common with it, itself among them unless it has saved
        nothing; nothing where all have.
        """
        if len(self.wanting) < 2:
            return {}
        saved = {j: {id(n) for n in history_of([self.outputs[j]]) if keeps(n)} for j in self.wanting}
        found = {j: frozenset(k for k in saved if saved[k] & saved[j]) for j in saved}
        return {} if all(len(each) == len(saved) for each in found.values()) else found

    def _gradients_of(self, chosen: Sequence[int], edges: Sequence[GradientEdge]) -> list[Any]:
        """Recorded gradients that come from some of the outputs that want one."""
        roots = [self.outputs[self.wanting[k]] for k in chosen]
        found = self.backward(roots, [self.cotangents[k] for k in chosen], edges)
        return [self.plain(edge.node, g) for edge, g in zip(edges, found, strict=True)]

    def backward(
        self,
        roots: Sequence[Any],
        gradients: Sequence[Tensor],
        edges: Sequence[GradientEdge],
        apart: bool = False,
        ends: Collection[Any] = (),
        history: bool = False,
    ) -> list[Any]:
        """The engine's backward on the recorded tensors (see `run_backward`), which gets a `history` if that is asked."""
        self.saved_memory.idle = idle = set[Any]()
        start = len(self.recording.log)
        found = run_backward(roots, gradients, True, history, edges, False, apart, ends, idle)
        self.check_writes(start)
        return found

    def check_writes(self, start: int) -> None:
        """RecordingError where a backward that was recorded since `start` changes what was there before: it gives
        gradients alone, so the change would be lost.
        """
        fresh = min((x._ptr for x in self.cotangents), default=0)  # addresses only grow
        for address, entries in self.recording.writers.items():
            memory = self.recording.memory_at(address)
            if entries[-1] >= start and (memory.real is not None or memory.address < fresh):
                raise BackwardWriteError("the backward of the program changes a tensor in place")

    def plain(self, node: Any, found: Any) -> Any:
        """The gradient, or gradients, of an input: those of a tensor made of it are taken apart."""
        part = self._parts.get(node)
        if part is None or found is None:
            return found
        return tuple(map(part, found)) if type(found) is tuple else part(found)

    def versions(self) -> list[tuple[int, int]]:
        """Inputs whose storages were changed, one for each storage, and how often."""
        found: dict[int, tuple[int, int]] = {}
        for i, (x, first) in enumerate(zip(self.standing, self.recording.first_versions, strict=True)):
            if x._storage.version != first:
                found.setdefault(id(x._storage), (i, x._storage.version - first))
        return list(found.values())

    # ***** graphs *****

    def _roots(self, flattened: set[int]) -> dict[int, Given]:
        """In which form the graph gets the memory of inputs: as the largest of them, or as one row from the first to
        the last element.
        """
        roots: dict[int, Given] = {}
        places: dict[int, list[tuple[int, Layout]]] = {}
        for i, x in enumerate(self.standing):
            memory = self.recording.memory_at(x._ptr)
            offset, rest = divmod(x._ptr - memory.address, x._spec.dtype.itemsize)
            if rest:
                raise RecordingError("an input that does not begin at a multiple of its elements' size")
            places.setdefault(memory.address, []).append((i, Layout(tuple(x._spec.shape), x._spec.strides, offset)))
        for address, found in places.items():
            number, layout = max(found, key=lambda pair: self.standing[pair[0]]._spec.numel)
            dtype = self.standing[number]._spec.dtype
            if address in flattened:
                alike = [l for i, l in found if self.standing[i]._spec.dtype is dtype]
                start, stop = min(l.offset for l in alike), max(l.end for l in alike)
                layout = Layout((stop - start,), (1,), start)
            roots[address] = Given("input", number, layout, dtype)
        for k, x in enumerate(self.cotangents):
            layout = Layout(tuple(x._spec.shape), x._spec.strides)
            roots[x._ptr] = Given("cotangent", k, layout, x._spec.dtype)
        return roots

    def program(self, flattened: set[int]) -> CompiledProgram:
        recording = self.recording
        roots = self._roots(flattened)
        assembler = Assembler(recording, roots, lambda i: self._own(i).offset, flattened)
        assembler.control_flow = ControlFlow()
        assembler.run(recording.log[: self.forward_end])
        with assembler.builder:
            made = [self._made(x, assembler) for x in self.outputs]
            made += [self._made(x, assembler) for x in self.hidden]
            changed = self._changed(assembler)
        self._set_apart(assembler, made, changed)
        with assembler.builder:
            values = [self._read(x, assembler) for x in self.outputs] if self.wanting else []
        storages: list[Any] = []  # stretches that become outputs
        for each in made:
            if each.stretch is not None and each.stretch not in storages:
                storages.append(each.stretch)
        if assembler.orders and assembler.checks:  # calls one by one would communicate again
            raise RecordingError("a program that communicates checks elements of tensors")
        self.communicates = bool(assembler.orders)
        storages += assembler.last_calls()
        if assembler.checks:
            storages.append(assembler.failed())
        stored = [s.value for s in storages]
        layouts = [s.layout for s in storages]
        if not self.wanting:
            forward = _graph(assembler, [*stored, *[c.value for c in changed]], changed)
            return CompiledProgram(self, assembler, forward, made, changed, storages, layouts)
        checks, count = len(assembler.checks), len(assembler.builder.nodes)
        assembler.run(recording.log[self.forward_end :])
        if len(assembler.checks) > checks:
            raise RecordingError("the backward of the program checks elements of tensors")
        with assembler.builder:
            gradients = [self.gradient_value(g, assembler) for g in self.gradients]
        gradients += [made.value for made in assembler.last_calls()]
        self.late_calls = [node for node in assembler.builder.nodes[count:] if node.prim.family == "collective"]
        return self._joint(assembler, made, changed, storages, layouts, values, gradients)

    def _set_apart(self, assembler: Assembler, made: list[Made], changed: list[Changed]) -> None:
        """Take from outputs and changes what the host computes beside a program of another device."""
        recording = self.recording
        beside = [c for c in changed if recording.is_beside(self.standing[c.given.content]._ptr)]
        results: list[Any] = []
        for k, each in enumerate(made):
            if each.stretch is not None and recording.is_beside(each.stretch.address):
                if each.stretch not in results:
                    results.append(each.stretch)
                made[k] = each._replace(kind="host", number=results.index(each.stretch), stretch=None)
        if self.wanting and any(each.spec.device is not recording.host for each in made):
            raise RecordingError("a program whose results want gradients returns a tensor of the host")
        changed[:] = [c for c in changed if c not in beside]
        if beside or results:
            self.host_part = HostPart(self, assembler, results, beside)

    def _joint(
        self,
        assembler: Assembler,
        made: list[Made],
        changed: list[Changed],
        storages: list[Any],
        layouts: list[Layout],
        values: list[Value],
        gradients: list[Value],
    ) -> CompiledProgram:
        """The program whose outputs want gradients: the joint graph is divided, and what backward reads is saved."""
        given = assembler.given
        ends = {v: g for v, g in given.items() if g.kind == "cotangent"}
        cotangents = [self._cotangent(k, ends) for k in range(len(self.cotangents))]
        builder = assembler.builder
        inputs = [v for v in builder.inputs if v not in ends and v not in cotangents]
        inputs += self._differentiated(assembler, inputs)
        written, held = {c.given for c in changed}, self.saved_memory.of_all()
        overwritten = [
            i
            for i, v in enumerate(inputs)
            if v in given
            and given[v].kind == "input"
            and (given[v] in written or not self.saved_memory.stays(given[v], held))
        ]
        unheld = [
            j for j, x in enumerate(self.outputs) if held is not None and self.saved_memory.address(x) not in held
        ]
        physical = [*[s.value for s in storages], *[c.value for c in changed]]
        nodes = live_nodes(builder.nodes, [*values, *physical, *gradients])
        joint = Joint(inputs, values, nodes, cotangents, gradients)
        overwritten += self.saved_memory.overwritten_by_others(joint, given)
        logical, backward, saved = partition(joint, overwritten, unheld=unheld, after=self.late_calls)
        still = [i for i in self.saved_memory.inputs(inputs, given, held) if given[inputs[i]] not in written]
        backward, saved = self.saved_memory.with_changes_noticed(backward, saved, (inputs, values), held, still)
        residuals = list(logical.outputs[len(values) :])
        used = _used(builder, [*values, *physical, *residuals])  # `values`: outputs that are inputs, or views of such
        used.update(self.kept, _targets(assembler, changed), [inputs[i] for k, i in saved if k == "input"])
        order = _numbers_last(assembler, [v for v in inputs if v in used])
        number = {v: n for n, v in enumerate(order)}
        saved = [(k, number[inputs[i]] if k == "input" else i) for k, i in saved]
        logical = Graph(order, logical.nodes, logical.outputs)
        tensors = {j: self.outputs[j] for j in self.wanting}
        ends = [Point(edge, self.standing[i]._spec) for i, edge in zip(self.wrt, self.edges, strict=True)]
        self.level = ProgramLevel(self, assembler, (logical, saved), tensors, ends)
        forward = Graph(order, live_nodes(builder.nodes, [*physical, *residuals]), [*physical, *residuals])
        program = CompiledProgram(self, assembler, forward, made, changed, storages, layouts)
        what = Backward(logical, backward, saved, [*range(len(self.kept))])
        program.differentiable(what, [number[v] for v in self.kept], residuals, self.level, self.several)
        assert program._backward is not None
        program._backward.lies = {
            j: tuple(memory_order([hint(n) for n in x._spec.shape], [hint(n) for n in x._spec.strides]))
            for j, x in zip(self.wanting, self.cotangents, strict=True)
        }
        program._backward.joined = self._joined()
        if inner := self.level.inner():
            program._backward.let_in_stages(inner)
        if self.frees:
            program.run_backward_once()
        return program

    def _differentiated(self, assembler: Assembler, inputs: Sequence[Value]) -> list[Value]:
        """The graph's inputs that are the tensors with gradients; those that the graph does not have are added."""
        self.kept: list[Value] = []
        more: list[Value] = []
        for i in self.wrt:
            x = self.standing[i]
            found = None
            for value in inputs:
                given = assembler.given.get(value)
                if given is not None and given.kind == "input" and given.content == i and value not in self.kept:
                    found = value
            if found is None:
                layout = Layout(tuple(x._spec.shape), x._spec.strides)
                found = Value(tuple(x._spec.shape), x._spec.dtype)
                assembler.given[found] = Given("input", i, self._own(i), x._spec.dtype)
                more.append(found)
                del layout
            self.kept.append(found)
        return more

    def _own(self, i: int) -> Layout:
        x = self.standing[i]
        memory = self.recording.memory_at(x._ptr)
        return Layout(tuple(x._spec.shape), x._spec.strides, (x._ptr - memory.address) // x._spec.dtype.itemsize)

    def _cotangent(self, k: int, ends: dict[Value, Given]) -> Value:
        for value, given in ends.items():
            if given.content == k:
                return value
        spec = self.cotangents[k]._spec
        return Value(tuple(spec.shape), spec.dtype)

    def _read(self, x: Tensor | None, assembler: Assembler) -> Value:
        assert x is not None
        value: Value = assembler.read(x._ptr, x._spec.shape, x._spec.strides, x._spec.dtype)
        return value

    def gradient_value(self, x: Tensor | None, assembler: Assembler) -> Value:
        """The value of a gradient, which lies in memory as that of eager calls: other sums begin with its strides."""
        value = self._read(x, assembler)
        assert x is not None
        spec = x._spec
        alike = all(held._spec.contiguous for held in self.standing if held._spec.shape == spec.shape)
        usual = alike and tuple(spec.strides) == contiguous_strides(spec.shape)
        if usual or not is_dense(spec.shape, spec.strides):
            return value
        base = value
        while base.node is not None and base.node.prim.layout is not None and len(base.node.inputs) == 1:
            base = base.node.inputs[0]
        # Views of what comes in lie as that does.
        return value if base.node is None or base.node.prim.name != "border" else laid_out(value, spec.strides)

    def _made(self, x: Tensor, assembler: Assembler) -> Made:
        """How an output is made at run time."""
        made = self._memory_of(x, assembler)
        if id(x) not in self.numbers:
            dress = _dress_of(x)
            made = made if dress == Dress() else made._replace(dress=dress)
        base = self.bases.get(id(x))
        return made if base is None else made._replace(base=base[0], creation=base[1])

    def _memory_of(self, x: Tensor, assembler: Assembler) -> Made:
        """Over which memory an output is made."""
        spec = x._spec
        real = Spec.of(spec.dtype, spec.device.real, spec.shape, spec.strides, spec.conj)
        number = self.numbers.get(id(x))
        if number is not None:
            return Made("same", number, real, 0)
        memory = self._memory_at(x)
        if memory.real is not None:
            root = next(i for i, y in enumerate(self.standing) if self._memory_at(y) is memory)
            return Made("view", root, real, x._ptr - self.standing[root]._ptr)
        if not spec.numel:
            return Made("empty", 0, real, 0)
        stretch = assembler.stretch(x._ptr)
        assembler._hold(stretch, spec.dtype if stretch.dtype is None else stretch.dtype)
        return Made("storage", 0, real, x._ptr - memory.address, stretch)

    def _memory_at(self, x: Tensor) -> Memory:
        """The memory in which a tensor lies; a view without elements may begin behind it."""
        empty = x._storage is not None and not x._spec.numel
        return self.recording.memory_at(x._storage.ptr if empty else x._ptr)

    def _changed(self, assembler: Assembler) -> list[Changed]:
        """Inputs whose memory holds something else at the end."""
        changed = []
        parts = any(isinstance(entry, (Branch, Loop)) for entry in self.recording.log)
        for stretch in list(assembler.stretches.values()):
            root = stretch.root
            if root is None or root.kind != "input" or stretch.value is stretch.first:
                continue
            if not parts and not self.recording.writers.get(self.saved_memory.address(self.standing[root.content])):
                continue  # it was read as another dtype: a view of the same elements
            if stretch.value is None:
                assembler._hold(stretch, root.dtype)
            if stretch.dtype is not root.dtype:
                assembler._retype(stretch, root.dtype)
            value = shown(stretch.value, path_to(*stretch.layout, *root.layout))
            if value is not stretch.first:
                changed.append(Changed(root, value))
        return changed


def _is_released(x: Tensor) -> bool:
    """Whether a backward call of the program has freed what the history of a tensor saved."""
    return any(getattr(node, "saved", ()) is None for node in history_of([x]))


def _has_hooks(x: Tensor) -> bool:
    """Whether the program put a hook on the history of a tensor."""
    extras = [getattr(node, "_extra", None) for node in history_of([x]) if not isinstance(node, InputBackward)]
    return any(extra is not None and (extra.tensor_hooks or extra.pre_hooks or extra.post_hooks) for extra in extras)


def _dress_of(x: Tensor) -> Dress:
    """Attributes of an output beside its memory."""
    meta = x._autograd_meta
    return Dress(
        None if type(x) is Tensor else type(x),
        x._node is None and x._rg,
        meta is not None and meta.retains,
        meta is not None and meta.inference,
    )


def _used(builder: Any, outputs: Sequence[Value]) -> set[Value]:
    """The inputs that outputs are computed from."""
    used = {v for node in live_nodes(builder.nodes, outputs) for v in node.inputs if v.node is None}
    return used | {v for v in outputs if v.node is None}


def _targets(assembler: Assembler, changed: Sequence[Changed]) -> list[Value]:
    """The inputs whose memory is written."""
    written = {id(c.given) for c in changed}
    return [v for v, given in assembler.given.items() if id(given) in written]


def _numbers_last(assembler: Assembler, inputs: Sequence[Value]) -> list[Value]:
    """Inputs in the order of an executable's words."""
    return sorted(inputs, key=lambda v: assembler.given[v].kind == "number")


def _graph(assembler: Assembler, outputs: Sequence[Value], changed: Sequence[Changed]) -> Graph:
    """The graph of these outputs over the inputs that they need, and those that are written."""
    used = _used(assembler.builder, outputs)
    used.update(_targets(assembler, changed))
    inputs = _numbers_last(assembler, [v for v in assembler.builder.inputs if v in used])
    return Graph(inputs, live_nodes(assembler.builder.nodes, outputs), outputs)
