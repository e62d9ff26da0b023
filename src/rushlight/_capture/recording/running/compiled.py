"""`CompiledProgram`: a recorded program as one executable, and the calls of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.lazy import LazyModule
from rushlight._capture.recording.assemble import Given
from rushlight._capture.recording.derivatives.released import released_node
from rushlight._capture.recording.derivatives.specs import ProgramBackwardSpec
from rushlight._capture.recording.errors import CheckFailed, RecordingError
from rushlight._capture.recording.log import Draw
from rushlight._capture.recording.replaced import release, replaced_gradients
from rushlight._capture.recording.running.evaluation import Evaluation
from rushlight._capture.recording.running.host_numbers import HostNumber
from rushlight._capture.recording.running.host_part import HostPart, without_host
from rushlight._capture.recording.running.kept import Laid, graph_of, kept_executable, program_key, text_of
from rushlight._capture.recording.running.results import Changed, Dress, Made
from rushlight._capture.recording.running.updating import updating
from rushlight._engine.autograd.hooks import retain
from rushlight._engine.autograd.node import next_sequence
from rushlight._engine.core.hooks import HOOKS, OPS
from rushlight._engine.core.memory import MEMORY, own
from rushlight._engine.core.state import ANOMALY, GRAD, SAVED_HOOKS, STATE, STREAMED
from rushlight._engine.core.tensor import CHANGED, Tensor, add_view, alias, edge_of, make, meta_of
from rushlight._engine.dispatch.lower import Backward
from rushlight._engine.dispatch.plans.node_recording import NOT_SAVED, watch
from rushlight._engine.indexing.inplace import follow_program, give_history
from rushlight._engine.random.random import _draw
from rushlight._graph.core import Graph, Value
from rushlight._types.device import CPU, Device
from rushlight._types.dtype import BOOL
from rushlight._types.layout import is_dense, numel
from rushlight._types.spec import Spec

trial: Any = LazyModule("rushlight._capture.recording.trial")

__all__ = ["CompiledProgram"]


_address = attrgetter("_ptr")


class CompiledProgram:
    """A function of the recording's `inputs` that gives a list of tensors.

    It takes tensors of the same specs, as the recording was given; whoever calls it answers for that, and for that they
    share memory as those did.  It draws from the generators, writes to the inputs, and sets `.grad` where the recorded
    program did.
    """

    graph_at: Callable[[], Graph] | None = None  # what makes the graph of a program with other sizes

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
        self.device: Device = recording.host  # where all its memory lies
        self.specs = build.specs
        places = {id(s): k for k, s in enumerate(stretches)}
        self._host_part: HostPart | None = build.host_part
        without_host(recording, graph, assembler.given, build.standing)
        self.made = [m if m.stretch is None else m._replace(number=places[id(m.stretch)], stretch=None) for m in made]
        self._graph: Graph | None
        self._key: bytes | None  # of the record of its executable
        self._text: str | None  # the graph as text, while the program is young
        self.graph = graph
        self.grads, self.histories = build.grads, build.histories
        self.n_outputs = build.n_outputs
        draws = [(k, e) for k, e in enumerate(recording.log) if type(e) is Draw and e.first is None]
        self.draws: list[Draw] = [e for _, e in draws]
        if any(k >= build.forward_end for k, _ in draws):
            raise RecordingError("the backward of the program draws random numbers")
        self._n_stored = len(stretches)
        self._failed: int | None = (
            self._n_stored - 1 if assembler.checks else None
        )  # which result says that a check fails
        self._layouts = [layout.strides for layout in layouts]
        self._changed = list(changed)
        self._place(build, assembler)
        self._versions = build.versions()
        self.released = build.released
        self._options = build.options
        self.communicates: bool = build.communicates
        self.output_grads, self.flags = build.output_grads, build.flags
        made_versions = [(j, x._storage.version) for j, x in enumerate([*build.outputs, *build.hidden])]
        self._result_versions = [(j, n) for j, n in made_versions if n and self.made[j].kind in ("storage", "host")]
        self._begin()

    @classmethod
    def kept(cls, fields: dict[str, Any]) -> CompiledProgram:
        """The program with these attributes, as `kept_compiled` reads them."""
        made = cls.__new__(cls)
        made.device = CPU
        made._graph, made._evaluation, made.draws, made.released = None, None, [], []
        made._number_places, made._number_words = [], 0
        made._host_part = None
        made.communicates = False
        for name, value in fields.items():
            setattr(made, name, value)
        made._begin()
        return made

    def _begin(self) -> None:
        """Set the fields that follow from the others, and empty ones for lazily made parts."""
        self._dressed = [j for j, each in enumerate(self.made) if each.dress is not None]
        self._views = [j for j, each in enumerate(self.made) if each.base is not None]
        self._exe: Any = None
        # Its executable from a linked program with symbolic sizes, None where there is none (see `sized_links`).
        self.links: Callable[[Laid, Callable[[], Any]], Any] | None = None
        self._direct: Any = None  # the executable over tensors, where it runs without Python
        self._further: list[tuple[str, int]] = []  # where words come from that are no addresses of inputs
        self._all_made = False  # it makes all results, and nothing is saved
        self._run: Callable[[Sequence[Tensor]], list[Any]] | None = None
        self._native: Callable[[Sequence[Tensor]], list[Any]] | None = None  # a program that only computes
        self._made_words = [k for k in range(len(self._results)) if k not in self._aliases]
        self._wrt: list[int] = []
        self._backward: ProgramBackwardSpec | None = None
        self._residuals: list[Spec] = []
        self._wanting: list[int] = []

    def forget_text(self) -> None:
        """Nobody will keep the program any more."""
        if self._graph is not None:
            self._text = None

    @property
    def graph(self) -> Graph:
        """The graph, which is made when it is asked for where the program was kept, or is for single sizes of many."""
        if self._graph is None:
            if self.graph_at is not None:
                self._graph = self.graph_at()
            else:
                assert self._text is not None
                self._graph = graph_of(self._text)
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        self._graph, self._text, self._key = graph, None, None
        self._results = [(v.dtype, v.shape) for v in graph.outputs]

    def _place(self, build: Any, assembler: Any) -> None:
        """Set the sources of the executable's arguments: (kind, number, bytes from the beginning), and their specs."""
        known = {id(assembler.given[v]): n for n, v in enumerate(self.graph.inputs)}
        self._steps = [  # bytes from the input's first element to the memory that is written
            (c.given.layout.offset - build._own(c.given.content).offset) * c.given.dtype.itemsize for c in self._changed
        ]
        aliases = {self._n_stored + k: known[id(c.given)] for k, c in enumerate(self._changed)}
        self._aliases = {} if self._failed is not None else aliases
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
            self._in_specs.append(Spec.of(given.dtype, self.device, given.layout.shape, given.layout.strides))
            if given.kind == "input":
                step = (given.layout.offset - build._own(given.content).offset) * given.dtype.itemsize
                self._sources.append(("input", given.content, step))
            elif given.kind == "draw":
                self._sources.append(("draw", numbers[id(given.content)], 0))
            else:
                self._sources.append(("constant", len(self._held), 0))
                self._held.append(_constant(given, self.device))
        used = {number for kind, number, _ in self._sources if kind == "input"}
        used |= {each.number for each in self.made if each.kind in ("same", "view")}
        used |= {each.base[1] for each in self.made if each.base is not None and each.base[0] == "input"}
        used |= {number for number, _ in [*build.versions(), *build.flags, *build.histories]}
        used |= set() if self._host_part is None else self._host_part.inputs
        self._replaced = replaced_gradients(build, used)
        self._number_places = [place for place, _ in build.numbers_made]
        self._number_words = len(numbers_of_host)
        numbers_of_host += [number for _, number in build.numbers_made]
        if self._host_part is not None:
            numbers_of_host += self._host_part.numbers
        self._evaluation = Evaluation(numbers_of_host, assembler) if numbers_of_host else None

    def differentiable(
        self, what: Backward, wrt: Sequence[int], residuals: Sequence[Value], level: Any, several: Sequence[int]
    ) -> None:
        """Let the outputs that `level` has get a node: the forward graph of `what` has an output for each output of the
        program, then residuals.
        """
        mask = [j in level.tensors for j in range(len(what.forward.outputs) - len(residuals))]
        self._backward = ProgramBackwardSpec(what, wrt, mask, self.device, level, several)
        self._residuals = [Spec.of(v.dtype, self.device, v.shape, _lies(v)) for v in residuals]
        self._wanting = list(level.tensors)
        self._wrt = [self._sources[n][1] for n in wrt]

    def run_backward_once(self) -> None:
        """Let backward free what was saved even where nothing was: eager nodes save numbers too."""
        assert self._backward is not None
        self._backward.run_once()

    @property
    def differentiates(self) -> set[int]:
        """The inputs to which the histories of its results lead."""
        return {*self._wrt, *[i for *_, origins in self.released for i in origins]}

    @property
    def checks(self) -> bool:
        """Whether a call may end with `CheckFailed`."""
        return self._failed is not None

    @property
    def changes_nothing_before_checks(self) -> bool:
        """Whether everything is as it was where a kernel raises an error, or a check fails."""
        return self.checks or not (self.draws or self._changed or self._host_part or self.communicates)

    # ***** compiling *****

    def compile(self) -> Any:
        """The executable, made by the first call."""
        if self._exe is None and self._results:
            laid = self.laid()
            strides = [strides for _, _, strides in laid.results]

            def compile_now() -> Any:
                return backend_of(self.device).compile(
                    self.graph, laid.in_layouts, strides, self.device, aliases=self._aliases, options=self._options
                )

            self._exe = None if self.links is None else self.links(laid, compile_now)
            if self._exe is None:
                if self._key is None and backend_of(self.device).keeps_programs:
                    self._text = text_of(self.graph)
                    self._key = None if self._text is None else program_key(self._text, laid)
                self._exe = compile_now() if self._key is None else kept_executable(self._key, laid, compile_now)
            self._direct = self._over_tensors()
        return self._exe

    def laid(self) -> Laid:
        """How the program lies in memory."""
        strides = [*self._layouts, *[c.given.layout.strides for c in self._changed]]
        strides += [s.strides for s in self._residuals]
        return Laid(self._in_specs, self._results, strides, self._aliases, self._options)

    def step_times(self, seconds: float = 0.2) -> list[Any]:
        """The time of each kernel, run on memory of its own (see `trial.step_times`).

        RuntimeError for a program that communicates.
        """
        if self.communicates:
            raise RuntimeError(
                "a program that communicates is not measured by itself: other processes would answer other calls"
            )
        found: list[Any] = trial.step_times(self, seconds)
        return found

    @property
    def backward_graph(self) -> Graph | None:
        """The backward graph; None for programs without one."""
        return None if self._backward is None else self._backward.graph

    @property
    def saved_values(self) -> list[tuple[str, Spec | None]]:
        """Values saved for backward: ("input", "output" or "residual", spec; None for a number)."""
        if self._backward is None:
            return []
        specs: dict[str, list[Any]] = {
            "input": self._in_specs,
            "output": [m.spec for m in self.made],
            "residual": self._residuals,
        }
        return [(kind, specs[kind][number]) for kind, number in self._backward.sources]

    def _over_tensors(self) -> Any:
        """The executable as a function of tensors and further words, which makes the tensors over its memory (see
        `over_tensors` of executables).
        """
        over = getattr(self._exe, "over_tensors", None)
        if over is None or (self._failed is not None and self._changed):
            return None
        count, sources = 0, []
        for kind, number, step in self._sources:
            sources.append((number, step) if kind == "input" else (-1 - count, 0))
            count += kind != "input"
        made = [(each.number, each.spec, each.offset) for each in self.made if each.kind == "storage"]
        if self._failed is not None:
            made.append((self._failed, _FLAG, 0))
        self._further = [(kind, number) for kind, number, _ in self._sources if kind != "input"]
        self._all_made = len(made) == len(self.made) and not self._residuals and self._failed is None
        first = len(self._results) - len(self._aliases) - len(self._residuals)
        return over(self.specs, sources, made + [(first + k, spec, 0) for k, spec in enumerate(self._residuals)])

    # ***** running *****

    def __call__(self, inputs: Sequence[Tensor]) -> list[Any]:
        """The outputs for these inputs."""
        run = self._run
        return run(inputs) if run is not None else self._first(inputs)

    def _first(self, inputs: Sequence[Tensor]) -> list[Any]:
        """The first call: compile, and leave out of later calls what this program never does."""
        for i, (x, spec) in enumerate(zip(inputs, self.specs, strict=True)):
            if x._spec is not spec:
                raise RuntimeError(f"input {i} of the program is {x._spec}, it was recorded for {spec}")
        self.compile()
        if (self._options or {}).get("packed_weights") and self._backward is None:
            self._pin(inputs)
        found = self._whole
        if not (
            self.draws
            or self._evaluation
            or self._versions
            or self._changed
            or self._host_part
            or self._views
            or self.released
            or self.grads
            or self.flags
            or self._dressed
            or self._result_versions
        ) and all(kind == "input" and not step for kind, _, step in self._sources):
            found = self._over(self._plain()) if self._failed is None else self._over_checked()
        else:
            found = updating(self) or found
        large = getattr(self._exe, "is_large", False)
        if large:
            backend_of(self.device).empty_cache(self.device)
        self._run = _settling(found, self.device) if large else found
        return found(inputs)

    def _pin(self, inputs: Sequence[Tensor]) -> None:
        """Let parameters stay packed that only products read; memory of others may be written to unseen."""
        wanted = getattr(self._exe, "pinnable", None)
        if not wanted:
            return
        for word, (kind, number, step) in zip(self._exe.wiring.words, self._sources, strict=True):
            x = inputs[number] if kind == "input" else None
            lasting = word in wanted and (getattr(x, "_lasting", False) or getattr(x, "_is_param", False))
            if x is not None and lasting and _own_memory(x._storage):
                self._exe.pin(word, x._ptr + step, x._storage)

    @property
    def entry(self) -> Callable[[Sequence[Tensor]], list[Any]]:
        """The fastest callable of the program, for tensors of the specs that it was recorded for."""
        return self._native or self._run or self

    def _over(self, plain: Callable[[Sequence[Tensor]], list[Any]]) -> Callable[[Sequence[Tensor]], list[Any]]:
        """Calls of a program that only computes, natively from tensors to tensors where that is possible."""
        direct, count, state = self._direct, len(self.made), STATE
        if direct is None or any(each.kind != "storage" for each in self.made):
            return plain
        if self._backward is None and not self._residuals:
            self._native = direct

            def run(inputs: Sequence[Tensor]) -> list[Any]:
                found: list[Any] | None = direct(inputs, ())
                return plain(inputs) if found is None else found

            return run

        def run_recorded(inputs: Sequence[Tensor]) -> list[Any]:
            results: list[Any] | None = direct(inputs, ())
            if results is None:
                return plain(inputs)
            residuals = results[count:]
            del results[count:]
            if state.word & GRAD:
                self._record(inputs, (), (), results, residuals)
            return results

        return run_recorded

    def _over_checked(self) -> Callable[[Sequence[Tensor]], list[Any]]:
        """Calls of a program that only computes, and looks at checks."""
        direct, whole, count, state = self._direct, self._whole, len(self.made), STATE
        if direct is None or any(each.kind != "storage" for each in self.made):
            return whole
        read = backend_of(self.device).reader(BOOL)

        def run(inputs: Sequence[Tensor]) -> list[Any]:
            try:
                results: list[Any] | None = direct(inputs, ())
            except Exception:  # of a kernel
                raise CheckFailed from None
            if results is None:
                return whole(inputs)
            if read(results[count]._ptr):
                raise CheckFailed
            residuals = results[count + 1 :]
            del results[count:]
            if self._backward is not None and state.word & GRAD:
                self._record(inputs, (), (), results, residuals)
            return results

        return run

    def _plain(self) -> Callable[[Sequence[Tensor]], list[Any]]:
        """Calls of a program that only computes."""
        exe, numbers = self._exe, [number for _, number, _ in self._sources]
        alone = exe is not None and numbers == list(range(len(self.specs)))
        pick: Any = itemgetter(*numbers) if len(numbers) > 1 else lambda inputs: [inputs[n] for n in numbers]
        several, wants = exe is not None and len(self._made_words) != 1, self._backward is not None
        state = STATE
        if several or exe is None or len(self.made) != 1 or self.made[0].kind != "storage" or wants:

            def run(inputs: Sequence[Tensor]) -> list[Any]:
                made = exe(*map(_address, inputs if alone else pick(inputs))) if exe is not None else ()
                found = made if several else (made,)
                results = [self._result(each, inputs, found) for each in self.made]
                if wants and state.word & GRAD:
                    self._record(inputs, (), (), results, self._saved(found))
                return results

            return run
        (only,) = self.made
        spec, offset = only.spec, only.offset

        def run_one(inputs: Sequence[Tensor]) -> list[Any]:
            storage = exe(*map(_address, inputs if alone else pick(inputs)))
            return [make(storage, spec, storage.ptr + offset)]

        return run_one

    def _whole(self, inputs: Sequence[Tensor]) -> list[Any]:
        """Calls of any program."""
        exe = self._exe
        if HOOKS.lazy_clones:
            for change in self._changed:
                own(inputs[change.given.content])
        before = [] if self._failed is None else [(d.generator, d.generator.get_state()) for d in self.draws]
        drawn = [self._drawn(draw) for draw in self.draws]
        numbers = () if self._evaluation is None else self._evaluation(inputs)
        found: tuple[Any, ...] = ()
        if self._replaced and not self.changes_nothing_before_checks:
            release(inputs, self._replaced)
        tensors = None
        if self._direct is not None and self._failed is None:
            tensors = self._direct(inputs, self._further_words(drawn, numbers))
        if self._failed is not None:
            found = self._checked(inputs, self._words(inputs, drawn, numbers), before)
        elif tensors is None and exe is not None:
            made = exe(*self._words(inputs, drawn, numbers))
            found = made if type(made) is tuple else () if made is None else (made,)
        if self._versions:
            place = HOOKS.user_code()
            for number, count in self._versions:
                storage = inputs[number]._storage
                storage.version += count
                storage.changed = place
        shown: Sequence[Any] = ()
        if self._host_part is not None:
            shown = self._host_part(inputs, numbers[self._number_words + len(self._number_places) :])
        if tensors is None:
            results = [self._result(each, inputs, shown if each.kind == "host" else found) for each in self.made]
            residuals = self._saved(found)
        elif self._all_made:
            results, residuals = tensors, []
        else:
            there = iter(tensors)
            results = [next(there) if each.kind == "storage" else self._result(each, inputs, ()) for each in self.made]
            residuals = list(there)
        for j, count in self._result_versions:
            results[j]._storage.version = count
        for j in self._views:
            self._link(j, inputs, results)
        for i, _ in self.flags:
            inputs[i]._rg = True  # when the result was computed
        if self._backward is not None and STATE.word & GRAD:
            self._record(inputs, drawn, numbers, results, residuals)
        if self.released and STATE.word & GRAD:
            for j, words, origins in self.released:
                edges = [edge_of(inputs[i]) for i in origins]
                give_history(results[j], released_node(words, edges))
        if self._dressed:
            self._dress(results)
        self._set_gradients(inputs, results)
        if len(results) > self.n_outputs:
            del results[self.n_outputs :]
        for place, number in zip(self._number_places, numbers[self._number_words :], strict=False):
            results.insert(place, number)
        return results

    def _checked(self, inputs: Sequence[Tensor], words: list[Any], before: Sequence[Any]) -> tuple[Any, ...]:
        """The storages that the executable gives; inputs are written once it is known that no check fails."""
        try:
            made = self._exe(*words)
            found: tuple[Any, ...] = made if type(made) is tuple else (made,)
            failed = bool(backend_of(self.device).reader(BOOL)(found[self._n_stored - 1].ptr))
        except Exception:  # of a kernel; the calls one by one raise it where they stand in the program
            failed = True
        if failed:
            for generator, state in reversed(before):
                generator.set_state(state)
            raise CheckFailed
        for k, change in enumerate(self._changed):
            _write_back(inputs[change.given.content], change.given, found[self._n_stored + k], self._steps[k])
        return found

    def _set_gradients(self, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        for i, j in self.grads:
            if j is not None:
                meta_of(inputs[i]).grad = results[j]
            elif (meta := inputs[i]._autograd_meta) is not None:
                meta.grad = None
        for j, k in self.output_grads:
            meta_of(results[j]).grad = results[k]
        for i, flag in self.flags:
            inputs[i]._rg = flag

    def _dress(self, results: Sequence[Tensor]) -> None:
        """Give results their classes, and what autograd knows of them."""
        for j in self._dressed:
            kind, leaf, retains, inference = self.made[j].dress or Dress()
            if kind is not None:
                results[j].__class__ = kind
            if leaf:
                results[j]._rg = True
            if retains:
                retain(results[j])
            if inference:
                meta_of(results[j]).inference = True

    def _drawn(self, draw: Draw) -> Any:
        storage = backend_of(self.device).allocate(draw.total * draw.itemsize, self.device)
        _draw(draw.name, draw.kind, draw.generator, storage.ptr, draw.total, *draw.parameters)
        return storage

    def _words(self, inputs: Sequence[Tensor], drawn: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        """Arguments of the executable: addresses and numbers, in the order of its sources."""
        words: list[Any] = []
        for kind, number, step in self._sources:
            if kind == "input":
                words.append(inputs[number]._ptr + step)
            elif kind == "number":
                words.append(numbers[number])
            else:
                words.append(drawn[number].ptr if kind == "draw" else self._held[number]._ptr)
        return words

    def _further_words(self, drawn: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        """The arguments that are no addresses of inputs."""
        return [
            numbers[number] if kind == "number" else drawn[number].ptr if kind == "draw" else self._held[number]._ptr
            for kind, number in self._further
        ]

    def _saved(self, found: Sequence[Any]) -> list[Tensor]:
        """Tensors saved for backward, over the last of the executable's storages."""
        first = len(found) - len(self._residuals)
        return [make(s, spec, s.ptr) for s, spec in zip(found[first:], self._residuals, strict=True)]

    def _result(self, made: Made, inputs: Sequence[Tensor], found: Sequence[Any]) -> Tensor:
        kind, number, spec, offset, *_ = made
        if kind in ("storage", "host"):
            storage = found[number]
            return make(storage, spec, storage.ptr + offset)
        if kind == "same":
            return inputs[number]
        if kind == "view":
            x = inputs[number]
            return make(x._storage, spec, x._ptr + offset)
        storage = backend_of(spec.device).allocate(0, spec.device)
        return make(storage, spec, storage.ptr)

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
        meta.base, meta.creation = base, "no_grad" if made.creation == "changed" else made.creation
        if meta.creation == "no_grad" and out._storage is not None:
            meta.since = CHANGED if made.creation == "changed" else out._storage.version
        add_view(base, out)

    # ***** gradients *****

    def _record(
        self,
        inputs: Sequence[Tensor],
        drawn: Sequence[Any],
        numbers: Sequence[Any],
        results: list[Tensor],
        residuals: Sequence[Tensor],
    ) -> None:
        """The node behind the outputs."""
        backward = self._backward
        assert backward is not None
        items: list[Any] = []
        versions: list[int | None] = []
        for kind, number in backward.sources:
            if kind == "input":
                item = self._operand(number, inputs, drawn, numbers)
                if isinstance(item, Tensor) and (meta := item._autograd_meta) is not None and meta.inference:
                    raise RuntimeError(NOT_SAVED)
            elif kind == "output":
                item = alias(results[number])
            else:
                item = residuals[number]
            items.append(item)
            versions.append(item._storage.stamp if isinstance(item, Tensor) else None)
        node = backward.cls.__new__(backward.cls)
        node.info, node._seq, node._extra = backward, next_sequence(), None
        node._edges = [edge_of(inputs[i]) for i in self._wrt]
        node.saved, node.versions, node.where = items, versions, HOOKS.user_code()
        if STATE.word & (ANOMALY | SAVED_HOOKS | STREAMED):
            watch(node)
        for j in self._wanting:
            give_history(results[j], node, j)  # an input that was written to had another
        for i, _ in self.histories:
            meta = inputs[i]._autograd_meta
            if meta is not None and meta.views:
                follow_program(inputs[i], results)

    def _operand(self, place: int, inputs: Sequence[Tensor], drawn: Sequence[Any], numbers: Sequence[Any]) -> Any:
        """An input of the graph as a tensor, or a number."""
        kind, number, step = self._sources[place]
        spec = self._in_specs[place]
        if spec is None:
            return numbers[number]
        if kind == "input":
            x = inputs[number]
            return x if x._spec is spec else make(x._storage, spec, x._ptr + step)
        if kind == "draw":
            return make(drawn[number], spec, drawn[number].ptr)
        return self._held[number]


def _settling(run: Callable[[Sequence[Tensor]], list[Any]], device: Device) -> Callable[[Sequence[Tensor]], list[Any]]:
    """The calls of a program of much memory after the first one: before they begin, what the pool keeps is given back.

    That is what other programs used, as the first step of a training, and what the trace held on to.
    """
    first = [True]

    def settled(inputs: Sequence[Tensor]) -> list[Any]:
        if first:
            first.clear()
            backend_of(device).empty_cache(device)
        return run(inputs)

    return settled


_FLAG = Spec.of(BOOL, CPU, ())


def _own_memory(storage: Any) -> bool:
    """Whether a storage has memory of the pool, or shows that of a storage which has: not an array's, nor a file's."""
    owner = storage.owner
    return owner is None or (type(owner) is type(storage) and owner.owner is None)


def _write_back(x: Tensor, given: Given, storage: Any, step: int) -> None:
    """Give an input's memory the contents that a program has put elsewhere, in the same layout."""
    layout, size = given.layout, given.dtype.itemsize
    if is_dense(layout.shape, layout.strides):
        device = x._spec.device
        backend_of(device).copy(x._ptr + step, storage.ptr, numel(layout.shape) * size, device)
        return
    spec = Spec.of(given.dtype, x._spec.device, layout.shape, layout.strides)
    target = make(x._storage, spec, x._ptr + step)
    OPS["copy_"](target, make(storage, spec, storage.ptr))
    x._storage.version -= 1  # the program counts its changes


def _lies(value: Value) -> tuple[int, ...] | None:
    """The strides of a value that is saved: a result of a call lies as that left it."""
    node = value.node
    if node is None or node.prim.name != "border":
        return None
    strides: tuple[int, ...] = node.params["strides"][value.index]
    return strides


def _constant(given: Given, device: Device) -> Tensor:
    found = MEMORY.alloc(len(given.content))
    memoryview(found).cast("B")[:] = given.content
    if not (backend := backend_of(device)).host_readable:
        source, found = found, backend.allocate(len(given.content), device)
        backend.copy_in(found.ptr, source.ptr, len(given.content))
    return make(found, Spec.of(given.dtype, device, given.layout.shape), found.ptr)
