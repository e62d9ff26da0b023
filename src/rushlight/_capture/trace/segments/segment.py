"""Segments: one stretch of a function as generated Python around a program, and how a trace becomes one.

A segment takes the state that its trace began with, a sequence of values.  It checks what the trace read, runs the
program, changes outside what the trace changed, and gives the result of the function, or `Stopped` with the frames as
they are where the trace ended.
"""

from __future__ import annotations

import functools
import re
import sys
import traceback
import types
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight._backends.current_streams import CURRENT_STREAMS
from rushlight._backends.precision import FP32_PRECISION
from rushlight._base.knobs import PLANNED
from rushlight._capture.bytecode import Enter, Frame, Interpreter
from rushlight._capture.bytecode.interpreter import EnterLink
from rushlight._capture.bytecode.real_frames import HERE
from rushlight._capture.recording import CheckFailed, CompiledProgram, Recording, RecordingError
from rushlight._capture.recording.dynamic.sized import SizedProgram, SizedValues, holds_sizes
from rushlight._capture.recording.errors import BackwardWriteError
from rushlight._capture.recording.log import Call, Read
from rushlight._capture.trace import wrappers
from rushlight._capture.trace.documents.documenting import DocumentingTracer
from rushlight._capture.trace.guards.asking import ERRORS, Conditions
from rushlight._capture.trace.guards.guards import Guard, NativeRun, guarded
from rushlight._capture.trace.guards.identities import guard_identities, guard_memory
from rushlight._capture.trace.guards.sources import Reads, Source
from rushlight._capture.trace.guards.varying import NOTHING_VARIES, Changes, SizesNow, SizesRead, Varying
from rushlight._capture.trace.numbers.numbers import Passed
from rushlight._capture.trace.outside import Instead, grad_condition
from rushlight._capture.trace.process_settings import REPLACED, replaced_operators
from rushlight._capture.trace.repeats import Following
from rushlight._capture.trace.reports.events import Break, Unbuildable
from rushlight._capture.trace.reports.failures import TracerError
from rushlight._capture.trace.segments.fronts import calls_methods_alone
from rushlight._capture.trace.segments.generated import MISS, compiled_text, defined
from rushlight._capture.trace.segments.rebuild import Rebuild
from rushlight._capture.trace.settings import HOOKS, CompileSettings
from rushlight._capture.trace.tracer import Tracer
from rushlight._engine.autograd.node import holds_changed, split_edge
from rushlight._engine.core.state import AUTOCAST, GRAD, INFERENCE, STATE, restore_state, saved_state
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.determinism import MODE as DETERMINISM
from rushlight._engine.dispatch.override import WATCH
from rushlight._engine.functorch.transformed import LEVELS
from rushlight._host.guard_native import AS_IT_IS
from rushlight._types.device import _DEFAULTS as DEFAULT_DEVICES
from rushlight._types.promotion import _DEFAULT as DEFAULT_DTYPE
from rushlight._types.symbols import SpecializationError, is_symbolic

__all__ = [
    "ERRORS",
    "MISS",
    "Retry",
    "Segment",
    "Stopped",
    "called_with_state",
    "instead_of",
    "is_clean",
    "linked",
    "trace",
]


_MAX_FRAMES = 900


_LONGEST_VALUE = 60


class Stopped:
    """Where a segment ended before the function did: frames without values, and the values of each."""

    __slots__ = ("templates", "values")

    def __init__(self, templates: Sequence[Frame], values: Sequence[Any]) -> None:
        self.templates, self.values = templates, values

    def take(self) -> list[Frame]:
        """The frames with their values, which this object holds no more: they live as long as the program's own."""
        frames = []
        for template, (places, stack, link) in zip(self.templates, self.values, strict=True):
            frame = template.copy()
            frame.locals, frame.stack, frame.link = places, stack, link
            frames.append(frame)
        self.values = ()
        return frames


class Retry(Exception):
    """The trace has to end before its instruction of this number."""

    def __init__(self, count: int, reason: str, kind: str, line: tuple[Any, int], error: BaseException | None) -> None:
        super().__init__(reason)
        self.count, self.reason, self.kind, self.line, self.error = count, reason, kind, line, error


class OpenRegion(Unbuildable):
    """A region (casts, modes, defaults) begins in the trace and ends elsewhere, or the other way round."""


class Segment:
    """See the module's text."""

    def __init__(
        self, run: Callable[[Any], Any], slow: Callable[[Any], Any], body: str, program: Any, reason: str, guard: Guard
    ) -> None:
        self.run, self.slow, self.body = run, slow, body
        self.program, self.reason, self.guard = program, reason, guard
        self.space = guard.space  # constants by the names that conditions have for them
        self.inputs = 0
        self.finished = False
        self.graph_module: Any = None
        self.numbers: dict[str, float] = {}  # that it is guarded by, by their places
        self.changes = Changes(guard.reads, self.space)
        self.origin: SizedSegment | None = None  # of which it is the one for single sizes
        self.known: Callable[[Any, tuple[Any, ...]], Any] | None = None  # `slow` where the conditions are known to hold
        self.native: NativeRun | None = None  # what `run` needs to stay alive
        self.unkept = ""  # why it cannot be kept for other processes
        self.only_calls: Ending | None = None  # set where it does nothing but to call its program
        self.plain = False  # whether native code calls the function as it is
        self.alone = False  # whether the function may take its place, conditions and all
        self.most_bytes = -1

    @property
    def text(self) -> str:
        """All of it as Python, its conditions in the place where they are asked."""
        return _text(self.body, self.guard.checked)

    def why(self, state: Sequence[Any]) -> str:
        """The first condition that does not hold, with the value that was found if it is a number or a text; empty
        where all hold.
        """
        reads = self.guard.reads
        found = self.guard.checked.first_failing(state)
        if found is None:
            return ""
        number, part, value = found
        text = reads.told(number, part)
        shown = (
            type(value) in (int, float, str, bool)
            and not text.startswith("type(")
            and len(repr(value)) < _LONGEST_VALUE
        )
        return f"{text}, found {value!r}" if shown else text


DEFAULTS: tuple[list[Any], ...] = (DEFAULT_DTYPE, DEFAULT_DEVICES, FP32_PRECISION.state, PLANNED)


def process_states() -> tuple[list[Any], ...]:
    """Lists whose last items a trace depends on."""
    return (*DEFAULTS, REPLACED, *HOOKS.states)


# State that the recording of a trace sets, and restores itself.
_OF_RECORDING = frozenset(("word", "recording", "observers"))
# The dicts keep what is off, too.
_APART = _OF_RECORDING | {"casts", "cast_dtypes"}


def _regions() -> list[Any]:
    """Open regions of this thread, besides those in the state word."""
    state = {name: list(v) if type(v) is list else v for name, v in vars(STATE).items() if name not in _APART}
    casts = sorted(place for place, on in STATE.casts.items() if on)
    return [state, casts, len(LEVELS.stack), *[list(each) for each in process_states()]]


def trace(
    settings: CompileSettings,
    state: Sequence[Any],
    start: Callable[[Interpreter, list[Any]], None],
    internal: Callable[[Any], bool],
    stop_at: int | None,
    reason: str,
    resume: Callable[[Stopped], Any] | None,
    again: Callable[[Any], Any],
    varying: Varying = NOTHING_VARIES,
    plain: types.FunctionType | None = None,
) -> Segment | SizedSegment:
    """Follow a function from `state`; `start` puts its frames, with the wrapped state, into the interpreter.

    Where sizes vary the segment is one with symbolic sizes.  Retry where it has to end earlier.  `resume`, if given,
    goes on where the segment stops; else it gives `Stopped`.  `again` runs the function from a state as it is: where a
    check of the program fails.  `plain` is the function itself, if the items of the state are its arguments.
    """
    outer, thread, passed = STATE.word, _ThreadState(), Passed()
    with Recording() as rec:
        tracer = (
            Tracer(settings, rec, internal) if settings.backend is None else DocumentingTracer(settings, rec, internal)
        )
        try:
            with thread:
                word = STATE.word
                tracer.begin(start)
                tracer.begun_word, tracer.begun_regions = word, _regions()
                _let_vary(tracer, varying, passed.hosting(rec))
                if settings.repeats and settings.backend is None and not rec.captures_elements and varying.nothing():
                    tracer.repeat_calls(_regions)
                _guard_state(tracer, outer)
                interpreter = tracer.interpreter()
                tracer.interpreters.append(interpreter)
                _begin(tracer, interpreter, start, state)
                steps = _follow(interpreter, tracer, stop_at)
                tracer.closed, tracer.repeats, tracer.outside.repeats = True, None, None
                try:
                    written, program = _finish(tracer, rec, interpreter, word, resume, again, passed)
                    written.reason = reason
                except (Unbuildable, RecordingError) as error:
                    reason, found = f"{error}", tracer.made_at.get(id(getattr(error, "value", None)))
                    if isinstance(error, OpenRegion):  # it is opened and closed between programs
                        found = tracer.even_at
                    elif isinstance(error, BackwardWriteError):
                        found = tracer.applied_at
                    if found is None:
                        if tracer.hooked_at is None:
                            raise
                        reason, found = f"puts a hook where the trace cannot run it: {error}", tracer.hooked_at
                    raise Retry(found[0], reason, "break", found[1], None) from None
                sizes = tracer.outside.varying.read(tracer.reads, tracer.constants.space)
                if plain is not None and steps <= _FEW_STEPS and _only_calls(tracer, program):
                    _note_plain(tracer, written, plain, sizes is not None)
                if sizes is not None:
                    return SizedSegment(written, tracer.constants.space, program, sizes)
        finally:
            tracer.release()
            rec.release()
    return written.segment(tracer.constants.space, program)


class _ThreadState:
    """This thread's state, which a `with` statement puts back: what a trace entered and did not leave (modes, casts,
    devices) is entered again when its segment runs.
    """

    def __init__(self) -> None:
        self._hooks, self._levels = list(STATE.saved_hooks), len(LEVELS.stack)
        self._state, self._defaults = saved_state(), [(each, list(each)) for each in process_states()]
        self._word = STATE.word

    def __enter__(self) -> None:
        self._word = STATE.word  # of the recording, which puts back the one before it

    def __exit__(self, *_: object) -> None:
        open_modes = len(STATE.function_modes)
        while len(LEVELS.stack) > self._levels:
            LEVELS.stack[-1].__exit__()
        restore_state(self._state, _OF_RECORDING)
        CURRENT_STREAMS.announce()
        for _ in range(len(STATE.function_modes), open_modes):
            WATCH.leave()
        for each, values in self._defaults:  # a package that was loaded meanwhile may have added its own
            each[:] = values
        STATE.word, STATE.saved_hooks[:] = self._word, self._hooks
        HERE.frame = None  # a frame that was there may be over, and would live on


def _let_vary(tracer: Tracer, varying: Varying, host_number: Callable[..., Any]) -> None:
    """Take the numbers and sizes that change from call to call as such."""
    outside = tracer.outside
    outside.changing, outside.host_number = varying.numbers, host_number
    outside.varying = varying.tracing(isinstance(tracer, DocumentingTracer))
    if isinstance(tracer, DocumentingTracer):
        outside.host_number = tracer.passed_number
        tracer.watch_sizes()
    outside.varying.marked.stack = functools.partial(user_stack, tracer)


def _guard_state(tracer: Tracer, outer: int) -> None:
    """Conditions on the state of the thread and of the process."""
    reads = tracer.reads
    held = reads.constant(STATE)
    reads.check(held, f"{{}}.word == {outer}")
    reads.check(held, "not {}.overrides_off")
    reads.check(reads.constant(DETERMINISM), f"{{}}.on is {DETERMINISM.on}")
    for state_of_process in process_states():
        place = reads.source("{}[-1]", reads.constant(state_of_process))
        reads.check(place, f"{{}} is {tracer.constants.name(state_of_process[-1])}")


def user_stack(tracer: Tracer) -> str:
    """The lines of the program that run now, outermost first."""
    frames = [frame for interpreter in tracer.interpreters for frame in interpreter.frames]
    found = [traceback.FrameSummary(f.code.co_filename, f.line, f.code.co_name) for f in frames]
    return "".join(traceback.format_list(found))


def _begin(
    tracer: Tracer, interpreter: Interpreter, start: Callable[[Interpreter, list[Any]], None], state: Sequence[Any]
) -> None:
    """Put the frames with the wrapped state into the interpreter."""
    try:
        if found := replaced_operators():
            raise Break(f"Tensor.{found[0]} is a program's own function")
        start(interpreter, [tracer.outside.lazy(x, tracer.reads.source(f"s[{i}]")) for i, x in enumerate(state)])
    except (Break, RecordingError) as error:
        raise Retry(0, f"{error}", "state", (_begin.__code__, 0), None) from None


_FEW_STEPS = 48  # instructions
_MANY = 0x2C  # flags of code: it takes `*args` or `**kwargs`, or makes a generator


def called_with_state(function: types.FunctionType) -> types.FunctionType | None:
    """The function, if the state that it begins with are its arguments as they stand; else None."""
    code = function.__code__
    return None if code.co_flags & _MANY or code.co_kwonlyargcount else function


def _only_calls(tracer: Tracer, program: Any) -> bool:
    """Whether the function, as it is, does no more than to call what was recorded."""
    if not isinstance(program, CompiledProgram) or program.checks:
        return False
    return not (tracer.differs or tracer.unkept or tracer.settings.options or tracer.last_effects)


# On how many bytes one operator works in less time than a guard's is worth a thought, and how many operators that leave
# a history do so on how many bytes: with a node of a program's, its call takes as long as several of theirs.
_FEW_BYTES = 1 << 15
_FEW_NODES, _FEW_BYTES_OF_NODES = 4, 1 << 12


def _note_plain(tracer: Tracer, written: Written, plain: types.FunctionType, sized: bool) -> None:
    """Note whether a call costs less as it is than as a program, which fuses nothing: one operator that leaves a
    history or changes its input, or views alone.

    Note, too, on how many bytes the function may work as it is with its conditions no longer asked.  Whatever it is
    given, it has to call a few methods and no more, so that programs could do no better: they know the attributes that
    it would search for.
    """
    fuses_nothing = tracer.only_reads or tracer.recorded == 1
    if fuses_nothing and not sized and (tracer.only_reads or tracer.leaves_traces):
        written.plain = plain
    if tracer.settings.fullgraph or HOOKS.strict() or not calls_methods_alone(plain.__code__):
        return
    if fuses_nothing:
        if tracer.searched:  # a search for an attribute costs more than all conditions
            return
        written.most_bytes = sys.maxsize if tracer.only_reads else _FEW_BYTES
    elif tracer.wants_history and tracer.recorded <= _FEW_NODES:
        written.most_bytes = _FEW_BYTES_OF_NODES


def _follow(interpreter: Interpreter, tracer: Tracer, stop_at: int | None) -> int:
    """Follow until the end, or up to an instruction; how many were followed."""
    count, clean, step, frames = 0, 0, interpreter.step, interpreter.frames
    depth, clean_below = 0, True
    begun = STATE.word, STATE.overrides_off, len(DEFAULT_DEVICES)
    while not interpreter.finished:
        count += interpreter.advance(-1 if stop_at is None else stop_at - count)
        if count == stop_at:
            return count
        if count >= tracer.budget:
            raise Retry(clean, "the trace is too long", "budget", _place(interpreter), None)
        if len(frames) > _MAX_FRAMES:
            raise Retry(clean, "calls are too deep", "recursion", _place(interpreter), None)
        top = frames[-1]
        if len(frames) != depth:  # only the top frame changes while it is the top
            depth, clean_below = len(frames), is_clean(frames[:-1])
        if clean_below and top.generator is None and top.handled is None and top.names is None:
            clean = count
        count += 1
        place = top.code, top.ip
        tracer.place = clean, place
        if (
            clean == count - 1
            and begun == (STATE.word, STATE.overrides_off, len(DEFAULT_DEVICES))
            and not tracer.caught
        ):
            tracer.even_at = tracer.place
        try:
            step()
        except Break as found:
            ended, where = found.at or (clean, place)
            raise Retry(ended, found.reason, found.kind, where, None) from None
        except TracerError as found:
            found.place = place
            raise
        except RecursionError as error:
            raise Retry(clean, "calls are too deep", "recursion", place, error) from None
        except Exception as error:
            raise Retry(clean, _told(error), "exception", place, error) from None
        if tracer.interrupted is not None:
            raise Retry(clean, tracer.interrupted.reason, "break", place, None)
    return count


def _told(error: Exception) -> str:
    """An exception in words; its class alone where it holds tensors, whose elements are not known."""
    try:
        return f"{type(error).__name__}: {error}"
    except RecordingError:
        return type(error).__name__


def _place(interpreter: Interpreter) -> tuple[Any, int]:
    frame = interpreter.frames[-1]
    return frame.code, frame.ip


def _finish(
    tracer: Tracer, rec: Recording, interpreter: Interpreter, word: int, resume: Any, again: Any, passed: Passed
) -> tuple[Written, Any]:
    if tracer.caught:
        raise OpenRegion("filters of warnings change here and are put back elsewhere")
    after = STATE.word
    rebuild = Rebuild(tracer)
    tracer.sharded.check_closed()
    rebuild.leaves = interpreter.finished
    if interpreter.finished:
        result = rebuild.value(interpreter.result)
    else:
        result = _stopped(rebuild, interpreter.frames)
    rebuild.effects()
    rebuild.check_generators()
    _settle_state(tracer, rebuild, word, after)
    program, graph_module, inputs = _program(tracer, rec, rebuild)
    going_on = None if interpreter.finished or resume is None else tracer.constants.name(resume)
    written = _assemble(tracer, rebuild, program, inputs, Ending(result, going_on, again), passed)
    written.finished, written.graph_module = interpreter.finished, graph_module
    written.unkept = tracer.unkept
    return written, program


def _settle_state(tracer: Tracer, rebuild: Rebuild, word: int, after: int) -> None:
    """Put the thread's state word back to `word`; let the segment write what the program has changed in it."""
    if (after ^ word) & (GRAD | INFERENCE):
        keep = ~(GRAD | INFERENCE)
        rebuild.lines.append(
            f"{tracer.constants.name(STATE)}.word = {tracer.constants.name(STATE)}.word & {keep} | {after & ~keep}"
        )
    elif after != word:
        kept = (after ^ word) & AUTOCAST and after & GRAD and STATE.cast_keeps
        # Casts of weights are kept in a region: the parts of a function would add their gradients in another order.
        raise (Unbuildable if kept else OpenRegion)("automatic casts or the like begin here and end elsewhere")
    if _regions() != tracer.begun_regions:
        raise OpenRegion("a mode, a default or the like begins here and ends elsewhere")
    STATE.word = word


class Ending(NamedTuple):
    """Result of a segment, as expressions: `result`, passed to the function named `resume` if there is one."""

    result: str
    resume: str | None
    again: Callable[[Any], Any]

    def lines(self, lines: Sequence[str]) -> list[str]:
        """Statements at the end of a segment of these lines.  Its variables are cleared before the program goes on, or
        they would hold what the program lets go of meanwhile.
        """
        if self.resume is None:
            return [f"    return {self.result}"]
        names = {found[1] for line in lines if (found := _ASSIGNED.match(line))}
        cleared = " = ".join(["s", "g", *sorted(names)])
        return [f"    stopped = {self.result}", f"    {cleared} = None", f"    return {self.resume}(stopped)"]


_ASSIGNED = re.compile(r" +([vr]\d+|o) = ")


def _program(tracer: Tracer, rec: Recording, rebuild: Rebuild) -> tuple[Any, Any, list[str]]:
    """The program that computes the outputs, and expressions for its inputs."""
    if tracer.settings.backend is not None:
        _check_views(tracer, rebuild)
        guard_identities(tracer.reads, tracer.outside.identities())
        return _foreign(tracer, rebuild)
    for x in rebuild.outputs:
        if isinstance(x, Tensor) and rec.streams.shows(x._ptr):
            raise Unbuildable("the state of a random generator", x)
    for x in tracer.strided:
        if rec.is_recorded(x) and not rec.is_given(x):
            raise Unbuildable("as_strided() shows elements of a storage that no tensor of the program shows", x)
    try:
        left = [*rebuild.outputs, *rec.changed()]
        _check_histories(left)
        wrappers.check_histories(rebuild, left)
        _note_size(tracer, rec, left)
        rec.leave_out(lambda x: id(x) in tracer.outside.sources, left)
        program = rec.finish(rebuild.outputs, tracer.settings.options)
    except Break as error:  # in code that backward calls
        raise Unbuildable(f"backward {error.reason}") from None
    sources: list[Source] = []
    for x, origin in zip(rec.inputs, rec.origins, strict=True):
        sources.append(_input(tracer, x, origin, sources))
    expressions = [tracer.reads.variable(source) for source in sources]
    apart = guard_memory(tracer.reads, rec.inputs, sources)
    guard_identities(tracer.reads, tracer.outside.identities(), apart)
    _guard_autograd(tracer, rec.inputs, sources, program)
    wrappers.give_histories(rebuild, rec.inputs, program)
    return program, None, expressions


def _check_views(tracer: Tracer, rebuild: Rebuild) -> None:
    """Refuse to give views of leaves made under `no_grad`: a graph that is traced ahead of time gives them a history."""
    for x in rebuild.outputs:
        view = isinstance(x, Tensor) and x._rg and x._node is None and x._base is not None
        if view and id(x) not in tracer.outside.tensors:
            raise Unbuildable("gives a view of a leaf made without gradients, in a graph for another backend", x)


def _note_size(tracer: Tracer, rec: Recording, left: Sequence[Any]) -> None:
    """Note what a trace wrote down and leaves behind."""
    tracer.recorded, tracer.only_reads = len(rec.log), all(type(entry) is Read for entry in rec.log)
    in_place = any(type(entry) is Call and not entry.fresh for entry in rec.log)
    tracer.wants_history = any(isinstance(x, Tensor) and x._rg for x in left)
    tracer.leaves_traces = in_place or bool(rec.changed()) or tracer.wants_history


def _guard_autograd(tracer: Tracer, inputs: Sequence[Tensor], sources: Sequence[Source], program: Any) -> None:
    """Require that inputs whose gradient the program sets have one or none as they had, and that those that get a
    history are no views.
    """
    for number in {i for i, _ in program.grads if not tracer.rec.is_unseen(i)}:
        if (meta := inputs[number]._autograd_meta) is None or meta.grad is None:
            tracer.reads.check(sources[number], grad_condition(inputs[number]))
    for number, _ in program.histories:
        tracer.reads.check(sources[number], "{}._autograd_meta is None or {}._autograd_meta.base is None")


def _check_histories(outputs: Sequence[Any]) -> None:
    """Unbuildable where a history leads to another output that is a leaf made by the trace, since what is returned for
    that would get no gradient, and where it holds a tensor that was changed since, since its backward is an error.
    """
    tensors = [x for x in outputs if isinstance(x, Tensor)]
    leaves = {id(x): x for x in tensors if x._rg and x._node is None}
    waiting = [x._node for x in tensors if x._node is not None]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        leaf = leaves.get(id(getattr(node, "variable", None)))
        if leaf is not None:
            raise Unbuildable("a leaf made here is part of a history that leaves the trace", leaf)
        if holds_changed(node):
            raise Unbuildable("a tensor is changed in place that backward needs as it was")
        waiting += [split_edge(edge)[0] for edge in node._edges if edge is not None]


def _input(tracer: Tracer, x: Tensor, origin: tuple[str, int | None], sources: Sequence[Source]) -> Source:
    """Where an input of the program comes from.  What nobody read by name is the same tensor at every call."""
    known = tracer.outside.sources.get(id(x))
    if known is not None:
        return known
    kind, owner = origin
    if kind != "grad":
        raise Unbuildable(f"native code used a tensor that the trace did not read, of shape {list(x.shape)}")
    assert owner is not None
    source = tracer.reads.source("{}.grad", sources[owner])
    tracer.reads.check(source, f"{{}} is not None and {{}}._spec is {tracer.constants.name(x._spec)}")
    return source


def _foreign(tracer: Tracer, rebuild: Rebuild) -> tuple[Any, Any, list[str]]:
    """The program of a backend that takes an fx graph."""
    assert HOOKS.document is not None and tracer.settings.backend is not None and isinstance(tracer, DocumentingTracer)
    if not rebuild.outputs and not tracer.document.has_calls():
        return None, None, []
    tracer.end()
    graph_module, examples, sources = HOOKS.document(tracer, rebuild.outputs)
    env: Any = tracer.outside.varying.sizes.env
    env.watch, env.asked_by_backend = None, True
    try:
        compiled = tracer.outside_of_trace(tracer.settings.backend, graph_module, examples)
    except Exception as error:
        if tracer.numbered or env.unbacked_names:
            tracer.settings.numbers = False
            raise SpecializationError(f"the backend takes no numbers of tensors: {error}") from error
        if not any(map(is_symbolic, examples)):
            raise
        raise SpecializationError(f"the backend takes no symbolic sizes: {error}") from error
    finally:
        env.asked_by_backend = False
    inputs = [tracer.reads.variable(s) if isinstance(s, Source) else _size_of(tracer, *s) for s in sources]
    return (lambda inputs: compiled(*inputs)), graph_module, inputs


def _size_of(tracer: Tracer, source: Source, text: str) -> str:
    """The variable for a size: an expression of a source."""
    return tracer.reads.variable(source if text == "{}" else tracer.reads.source(text, source))


def _stopped(rebuild: Rebuild, frames: Sequence[Frame]) -> str:
    values = []
    for frame in frames:
        places, stack = rebuild.frame_values(frame)
        values.append(f"({places}, {stack}, {_link(rebuild, frame.link)})")
    templates = [frame.template() for frame in frames]
    return f"{rebuild.constant(Stopped)}({rebuild.constant(templates)}, [{', '.join(values)}])"


def _link(rebuild: Rebuild, link: Any) -> str:
    if link is None or type(link) is Following:
        return "None"
    kept = instead_of(link)
    if kept is None:
        raise Unbuildable("a call is in progress whose result is made by native code")
    return f"{rebuild.constant(linked)}({rebuild.value(kept)}, {link.drop})"


def instead_of(link: Any) -> Instead | None:
    """The substitute that a link puts in place of its frame's result; None for other links."""
    if type(link) is EnterLink and type(link.answer.then) is Instead and link.answer.caught is None:
        return link.answer.then
    return None


def linked(then: Instead, drop: bool) -> EnterLink:
    """The link of a call in the place of whose result `then` gives another value."""
    return EnterLink(Enter(_nothing, then=then), drop)


def _nothing() -> None:
    """Stands where a call in progress had its function."""


def _running(tracer: Tracer, program: Any, run: str, again: Any) -> list[str]:
    """Lines that run the program; where a call of it has to end without a result, the frames run as they are."""
    if not getattr(program, "changes_nothing_before_checks", False):
        return [f"    {run}"]
    name, word = tracer.constants.name, f"{tracer.constants.name(STATE)}.word"
    kinds = name(CheckFailed if program.checks else Exception)
    lines = [f"    w = {word}", f"    try: {run}", f"    except {kinds}:", f"        {word} = w"]
    return [*lines, f"        return {name(again)}(s)"]


def _settle(space: dict[str, Any], calls: list[Any], program: Any) -> None:
    """Let a segment call its program without what only the first call needs."""
    space["program"] = calls[0] = getattr(program, "entry", program)


_ONE = re.compile(r"o\[(\d+)\]")


def _chosen(result: str, program: Any) -> int | None:
    """Which output of the program a result is; -1 for the tuple of all in their order, -2 for None, None for others."""
    if result == "None":
        return -2
    found = _ONE.fullmatch(result)
    if found:
        return int(found[1])
    count = program.n_outputs
    whole = len(program.made) == count and result == f"({''.join(f'o[{k}], ' for k in range(count))})"
    return -1 if whole else None


def _native_run(guard: Guard, calls: list[Any], ending: Ending) -> NativeRun | None:
    """`run` as native code, for a segment that does nothing but to call the program `calls[0]`; None where that or the
    result is of another kind.
    """
    program = calls[0]
    if not isinstance(program, CompiledProgram) or program.checks:
        return None
    chosen = _chosen(ending.result, program)
    if chosen is None:
        return None

    again = ending.again if program.changes_nothing_before_checks else None  # the program leaves STATE as it is
    return NativeRun(guard.table, calls, chosen, MISS, again)


def is_clean(frames: Sequence[Frame]) -> bool:
    """Whether frames can be made anew: no exception is being handled, no generator is running."""
    return all(frame.generator is None and frame.handled is None and frame.names is None for frame in frames)


def _assemble(
    tracer: Tracer, rebuild: Rebuild, program: Any, inputs: list[str], ending: Ending, passed: Passed
) -> Written:
    """The segment as text; `inputs` are expressions for what its program takes."""
    reads, outside = tracer.reads, tracer.outside
    passes_on = tracer.settings.backend is None  # graphs for other backends take them as tensors
    floats = [reads.need(source) for source, *_ in outside.hosted.values()] if passes_on else []
    wanted = list(inputs) if program is not None else []
    count = len(wanted)
    wanted += [name for name in reads.needed if name[0] == "v" and name not in inputs]
    body = [
        f"    {name} = g[{number}]" for number, name in enumerate(wanted) if name in reads.needed and name[0] == "v"
    ]
    if floats:
        body.append(f"    {tracer.constants.name(passed)}.values = ({', '.join(floats)},)")
    left = [*rebuild.outputs, *tracer.rec.changed()]
    if not tracer.begun_word & GRAD and any(isinstance(x, Tensor) and x._rg for x in left):
        body.append(f"    {tracer.constants.name(STATE)}.word |= {GRAD}")  # the trace has left `no_grad`
        if not any(".word = " in line for line in rebuild.lines):
            rebuild.lines.append(f"{tracer.constants.name(STATE)}.word &= {~GRAD}")
    more = [*body, *rebuild.lines, *wanted[count:]]  # what `run` has to do beside the call of the program
    if program is not None:
        if len(wanted) != count:
            body.append(f"    g = g[:{count}]")  # one holder of the inputs: the program may let go of gradients
        if rebuild.inside:
            body.append("    g = [*g]")
            body += [f"    g[{place}] = {text}" for place, text in rebuild.inside.items()]
        body += _running(tracer, program, "o = program(g)", ending.again)
    body += [f"    {line}" for line in rebuild.lines]
    lines = [
        "def run(s):", "    t = table[0]", "    g = guarded(t, s)", "    if g is None or (t[2] is not None and not t[2](s)): return MISS", *body, *ending.lines(body),
        "def slow(s):", "    g = checked(s)", "    if g is None: return MISS", "    passed(s)", "    settle()", *body, *ending.lines(body),
    ]  # fmt: skip
    written = Written("\n".join(lines), reads, wanted, len(inputs))
    written.numbers = outside.numbers
    written.only_calls = None if more or ending.resume is not None else ending
    return written


_SLOW = "\ndef slow(s):"


def _text(body: str, conditions: Conditions) -> str:
    """A segment's statements with its conditions as a function before `slow`."""
    return body.replace(_SLOW, "\n" + "\n".join(conditions.lines()) + _SLOW, 1)


def _known_text(body: str) -> str:
    """`slow` as a function `known(s, g)`, which asks no conditions: `g` are the values that they give."""
    slow = body[body.index(_SLOW) :].replace(_SLOW, "\ndef known(s, g):", 1)
    return slow.replace("    g = checked(s)\n    if g is None: return MISS\n", "", 1)


class Written:
    """A segment as text, without its conditions, with what it needs beside its constants and its program."""

    def __init__(self, body: str, reads: Reads, wanted: list[str], inputs: int) -> None:
        self.body, self.reads, self.wanted, self.inputs = body, reads, wanted, inputs
        reads.closed = True
        self.reason, self.finished = "", False
        self.graph_module: Any = None
        self.numbers: dict[str, float] = {}
        self.unkept = ""  # why it is of no use to other processes
        self.only_calls: Ending | None = None  # set where it does nothing but to call its program
        self.plain: Callable[..., Any] | None = None  # the function itself, where it costs less than the program
        self.most_bytes = -1  # on how many bytes that holds whatever the function is called with; -1: on none
        self._code = compiled_text(body, "compiled segment")
        self._known_code: Any = None

    def segment(
        self, constants: dict[str, Any], program: Any, like: Guard | None = None, checked: Conditions | None = None
    ) -> Segment:
        """The segment with these constants and this program, whose guard is `like` one with other constants; `checked`
        are its conditions where they were asked before there was a program.
        """
        guard = Guard(self.reads, self.wanted, {**constants, "ERRORS": ERRORS})
        guard.checked = checked or Conditions(self.reads, self.wanted, constants)
        if like is not None:
            guard.like(like)
            guard.checked.like(like.checked)
        space = {
            **constants,
            "MISS": MISS,
            "ERRORS": ERRORS,
            "program": program,
            "table": guard.table,
            "guarded": guarded(),
            "passed": guard.passed,
            "checked": guard.checked,
        }
        calls = [program]
        space["settle"] = functools.partial(_settle, space, calls, program)
        defined(self._code, space)
        if like is not None:
            if self._known_code is None:
                self._known_code = compiled_text(_known_text(self.body), "compiled segment for single sizes")
            defined(self._known_code, space)
        native = None if self.only_calls is None else _native_run(guard, calls, self.only_calls)
        if self.plain is not None and like is None:
            native = NativeRun(guard.table, [self.plain], AS_IT_IS, MISS, None)
        segment = Segment(
            space["run"] if native is None else native.run, space["slow"], self.body, program, self.reason, guard
        )
        segment.numbers, segment.changes = self.numbers, Changes(self.reads, constants)
        segment.finished, segment.graph_module, segment.inputs = self.finished, self.graph_module, self.inputs
        segment.native, segment.unkept, segment.known = native, self.unkept, space.get("known")
        segment.only_calls, segment.plain = self.only_calls, self.plain is not None and like is None
        segment.most_bytes = self.most_bytes
        if self.most_bytes >= 0:
            segment.alone = sum([spec.nbytes for spec in program.specs]) <= self.most_bytes
        return segment


class SizedSegment:
    """A segment with symbolic sizes: `at(sizes_now(state))` makes the one for a state, without a trace."""

    def __init__(self, written: Written, constants: dict[str, Any], program: Any, sizes: SizesRead) -> None:
        self.program = program
        self._written, self._sizes, self._constants = written, sizes, constants
        env = sizes.env
        varying = {name: value for name, value in constants.items() if holds_sizes(value)}
        self._varying = SizedValues(varying, env)
        self._program = SizedProgram(program, env) if isinstance(program, CompiledProgram) else None
        self.conditions = env.conditions()
        self._guard = Guard(written.reads, written.wanted, constants)
        self._guard.checked = Conditions(written.reads, written.wanted, constants)
        sizes.wanted, sizes.guard, sizes.ask = written.wanted, self._guard_of, guarded()
        self.made: OrderedDict[tuple[int, ...], Segment] = OrderedDict()  # by sizes; the one used last behind
        self.used = 0

    def _guard_of(self, reads: Reads) -> Guard:
        """A guard of some of the conditions."""
        guard = Guard(reads, self._written.wanted, dict(self._constants))
        guard.checked = Conditions(reads, self._written.wanted, self._constants)
        return guard

    def pinned(self) -> set[tuple[str, int]]:
        """Places and dims whose sizes the trace needs to be what they are."""
        return set(self._sizes.pinned)

    @property
    def all_pinned(self) -> bool:
        """Whether it serves no other sizes than those of its trace."""
        return self._sizes.all_pinned

    def sizes_now(self, state: Sequence[Any]) -> SizesNow | None:
        """The sizes that a state has, and what a segment for them is called with; None where a condition fails."""
        return self._sizes.now(state)

    def found(self, now: SizesNow) -> Segment | None:
        """The segment that was made for these sizes; None where there is none."""
        found = self.made.get(now[0])
        if found is None or any(found.space[name] is not spec for name, spec in now[1].items()):
            return None
        self.made.move_to_end(now[0])
        return found

    def forget(self, segment: Segment) -> None:
        """Drop a segment that was made for single sizes."""
        for sizes in [sizes for sizes, made in self.made.items() if made is segment]:
            del self.made[sizes]

    def at(self, now: SizesNow) -> Segment | None:
        """The segment for these sizes; None where a decision of the trace would differ."""
        sizes, specs, _ = now
        found = self._varying.at(sizes)
        if found is None or any(found[name] is not spec for name, spec in specs.items()):
            return None
        program = self.program if self._program is None else self._program.at(sizes)
        segment = self._written.segment({**self._constants, **found}, program, self._guard)
        segment.origin, segment.unkept = self, "it is made for sizes"
        self.made[sizes] = segment
        return segment
