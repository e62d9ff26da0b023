"""Compiled functions: the segments that were traced of them, and the loop that runs one after another.

A call looks for a segment whose conditions hold, and traces one where none does.  Where a segment ends before the
function, its frames are made anew with real values, the instruction that could not be traced is run as it is, and the
search goes on at the next one.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.collector import uncollected
from rushlight._capture.bytecode import NULL, Frame, Interpreter, supported
from rushlight._capture.bytecode.code import decode
from rushlight._capture.bytecode.real_frames import HERE
from rushlight._capture.bytecode.versions import COMPILED
from rushlight._capture.trace.entering import note_closure
from rushlight._capture.trace.guards.varying import SizesNow, Varying
from rushlight._capture.trace.guards.watched import as_seen, looking_on, quietly, told
from rushlight._capture.trace.outside import Instead, type_attribute
from rushlight._capture.trace.package_code import PACKAGE
from rushlight._capture.trace.repeats import DIFFERS
from rushlight._capture.trace.reports.events import COUNTERS, LazyText, Unbuildable, silent, tell
from rushlight._capture.trace.reports.failures import TracerError, reproduction
from rushlight._capture.trace.reports.reasons import listed, readable, tells_of_sizes
from rushlight._capture.trace.reports.reducing import alike
from rushlight._capture.trace.segments.fronts import Front
from rushlight._capture.trace.segments.kept_segments import Shelf
from rushlight._capture.trace.segments.rebuild import PLAIN
from rushlight._capture.trace.segments.segment import (
    MISS,
    Retry,
    Segment,
    SizedSegment,
    Stopped,
    called_with_state,
    instead_of,
    is_clean,
    linked,
    trace,
)
from rushlight._capture.trace.settings import HOOKS, CompileSettings
from rushlight._engine.core.state import ANOMALY, FUNCTION_MODE, OBSERVED, RECORDING, SAVED_HOOKS, STATE, VMAP
from rushlight._engine.dispatch.watch import observed_call
from rushlight._engine.functorch.transformed import LEVELS
from rushlight._types.symbols import SpecializationError

__all__ = ["CompiledFunction", "compile_function", "reset", "show_segments"]

_LOCK = threading.RLock()
_ALL: weakref.WeakSet[CompiledFunction] = weakref.WeakSet()
_SHOWN = [True]


MAX_SIZES = 64  # segments at a place that are there because sizes differed, beside those that the limit of recompilations allows
MAX_MADE = 256  # segments that were made for single sizes from one trace with symbols
SEARCHED = 16  # of these, the latest, are among those that native code searches
LOOKED_AT = 3  # of the latest segments it is asked which sizes differ now
MAX_PINS = 2  # traces that asked for a size before it is burnt in: a size may be equal to a constant by chance
PROBED = 20_000  # instructions of a trace by which a failure is looked for in a shorter program
MAX_ATTEMPTS = 10  # traces of one segment: each that fails may say how the next one is made
MAX_FAILURES = 3  # traces that failed at a place before it is not tried again


class Position:
    """The segments that begin at one place; `concrete` where none can, or where there were too many."""

    __slots__ = (
        "added",
        "at_once",
        "changing",
        "concrete",
        "dims",
        "failures",
        "_made",
        "fixed",
        "pins",
        "runs",
        "segments",
        "sized",
        "sizes",
        "static",
        "symbols",
    )

    def __init__(self) -> None:
        self.failures = self.sizes = self.added = 0
        self.at_once = False  # whether the last trace ended at its first instruction
        self.dims: set[tuple[str, int]] = set()  # places of tensors, and their dims that vary
        self.pins: dict[tuple[str, int], int] = {}  # how often they have been asked for
        self.static: set[tuple[str, int]] = set()  # those whose sizes programs ask for
        self.sized: list[SizedSegment] = []  # segments with symbolic sizes, the one used last in front
        self.changing: frozenset[str] = frozenset()  # places of numbers that change, and that calls pass on
        self.symbols: frozenset[str] = frozenset()  # places of ints that change, and are symbols
        self.fixed: frozenset[str] = frozenset()  # places of numbers that are guarded by their values
        self.segments: list[Segment] = []
        self.runs: list[Callable[[Any], Any]] = []  # those of the segments
        self._made: set[int] = set()  # identities of those made for single sizes
        self.concrete = False

    def add(self, segment: Segment) -> None:
        """A segment, found first from now on; of those made for single sizes the oldest go."""
        self.added += 1
        self.segments.insert(0, segment)
        self.runs.insert(0, segment.run)
        if segment.origin is not None:
            self._made.add(id(segment.run))
            self._hide_oldest()
            while len(segment.origin.made) > MAX_MADE:
                self.remove(next(iter(segment.origin.made.values())))

    def again(self, segment: Segment) -> None:
        """Native code finds a segment that was made for single sizes from now on."""
        if segment.run not in self.runs and len(self.runs) > 0:
            self.runs.insert(0, segment.run)
            self._hide_oldest()

    def _hide_oldest(self) -> None:
        """Let native code search few of the segments that were made for single sizes."""
        shown = [run for run in self.runs if id(run) in self._made]
        for run in shown[SEARCHED:]:
            self.runs.remove(run)

    def remove(self, segment: Segment) -> None:
        """Forget a segment."""
        self.segments.remove(segment)
        self._made.discard(id(segment.run))
        if segment.run in self.runs:  # where segments are shown
            self.runs.remove(segment.run)
        if segment.origin is not None:
            segment.origin.forget(segment)

    def clear(self) -> None:
        """Forget all segments."""
        self.segments.clear()
        self._made.clear()
        self.runs.clear()
        self.sized.clear()
        self.concrete = False

    @property
    def traced(self) -> int:
        """How many traces there are that count for the limit."""
        return len(self.sized) + sum(s.origin is None for s in self.segments) - self.sizes

    def fix_numbers(self) -> None:
        """Pass numbers on no longer, because a program asks for the value of one: first ints, which are sizes and
        indices more often and become symbols; then the others, which are guarded by their values again.
        """
        known = [segment.numbers for segment in self.segments]
        ints = frozenset(place for place in self.changing if any(type(values.get(place)) is int for values in known))
        if ints:
            self.symbols |= ints
            self.changing -= ints
            return
        rates = frozenset(
            place for place in self.changing if place.endswith("['lr']")
        )  # less often asked for than momenta
        fixed = self.changing - rates or self.changing
        self.fixed |= fixed
        self.changing -= fixed

    def fix_symbols(self) -> frozenset[str]:
        """Guard ints by their values again, because a program with symbols in their places came to nothing."""
        fixed, self.symbols = self.symbols, frozenset()
        self.fixed |= fixed
        return fixed

    def burn_in(self, place: tuple[str, int]) -> None:
        """Guard a dim of a tensor, or a number, by its value from now on."""
        if place[1] >= 0:
            self.static.add(place)
            self.dims.discard(place)
        else:
            self.fixed |= {place[0]}
            self.symbols -= {place[0]}


class Asked:
    """Results of one call's queries to symbolic traces at a position: their conditions are evaluated once."""

    __slots__ = ("_added", "_found")

    def __init__(self, position: Position) -> None:
        self._added = position.added
        self._found: dict[SizedSegment, SizesNow | None] = {}

    def is_latest(self, position: Position) -> bool:
        """Whether no other thread has added a segment since."""
        return self._added == position.added

    def sizes(self, sized: SizedSegment, state: Sequence[Any]) -> SizesNow | None:
        """See `SizedSegment.sizes_now`."""
        if sized not in self._found:
            self._found[sized] = sized.sizes_now(state)
        return self._found[sized]


def reset() -> None:
    """Forget every segment of every compiled function."""
    for compiled in list(_ALL):
        compiled.forget()


def show_segments(shown: bool) -> None:
    """Let calls of compiled functions find their segments, or run as they are."""
    _SHOWN[0] = shown
    for compiled in list(_ALL):
        compiled.show(shown)


def compile_function(function: Callable[..., Any], settings: CompileSettings | None = None) -> CompiledFunction:
    """A function that does what `function` does; see `CompiledFunction`.

    >>> import rushlight as torch
    >>> from rushlight._capture.trace import compile_function
    >>> compiled = compile_function(lambda x: torch.relu(x) + 1)
    >>> compiled(torch.tensor([-1.0, 2.0]))
    tensor([1., 3.])
    """
    return CompiledFunction(function, settings or CompileSettings())


@dataclasses.dataclass(slots=True)
class _Attempt:
    """How the next trace of a segment is made, as those before decided."""

    stop_at: int | None = None  # instructions after which it ends
    reason: str = ""  # why it ends there
    plain: bool = False  # no sizes are symbols
    symbols: frozenset[str] = frozenset()  # places of ints that are symbols no longer


class CompiledFunction:
    """`function` compiled: a function, a bound method, or an object with a `__call__` in Python.

    `caller` is a plain function that does the same in less time; it has the function's signature.
    """

    compiled_function = True

    def __init__(self, function: Callable[..., Any], settings: CompileSettings) -> None:
        self.function, self.settings = function, settings
        self.target, self.first = _target(function)
        self.entry = Position()
        self.positions: dict[Any, Position] = {}
        self.shelf: Shelf | None = None  # what earlier processes traced of it
        self.known: set[tuple[Any, int]] = set()  # code and instruction of those that have segments
        self.last_reason = ""
        self._told: set[str] = set()
        self._front = Front(self)
        self.caller = self._front.caller
        functools.update_wrapper(self, function, updated=())
        _ALL.add(self)

    def forget(self) -> None:
        """Drop all segments."""
        self._front.search()
        self.entry.clear()
        self.positions, self.shelf = {}, None
        self.known.clear()

    def show(self, shown: bool) -> None:
        """Let calls find the segments, or let every call ask `HOOKS.allowed`."""
        self.entry.runs[:] = [segment.run for segment in self.entry.segments] if shown else []

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.caller(*args, **kwargs)

    # ***** tracing *****

    def missed(self, state: Sequence[Any]) -> Any:
        """A call for which there is no segment yet."""
        watched = STATE.word & OBSERVED and looking_on(_ELSEWHERE)
        found = quietly(self._compiled, state) if watched else self._compiled(state)
        return _plain_call(self.target, state) if found is MISS else found

    def _compiled(self, state: Sequence[Any]) -> Any:
        """Run a segment, made if need be; MISS for calls that run uncompiled."""
        asked = Asked(self.entry)
        if _SHOWN[0]:
            found = self._slowly(self.entry, state, asked)
            if found is not MISS:
                return found
        if self.entry.concrete or not _SHOWN[0] or STATE.word & _ELSEWHERE or STATE.overrides_off or LEVELS.stack:
            return MISS
        if not supported():
            _tell_version()
            self.entry.concrete = True
            return MISS
        traced = self._traced(self.entry, state, functools.partial(_enter, self.target), asked)
        return MISS if traced is None else traced[0]

    def _traced(
        self, position: Position, state: Sequence[Any], start: functools.partial[None], asked: Asked
    ) -> tuple[Any] | None:
        """Trace a new segment and run it; its result in a tuple, or None where none can be made here."""
        with _LOCK:
            found = MISS if asked.is_latest(position) else self._slowly(position, state, asked)
            if found is not MISS:
                return (found,)
            made, given = self._resized(position, state, asked)
            if made is None:
                if not self._allowed(position, state):
                    return None
                self._note_numbers(position, state)
                self._note_sizes(position, state)
                if position is self.entry:
                    found = self._kept(state)
                    if found is not MISS:
                        return (found,)
                making = functools.partial(self._segment, position, state, start)
                with uncollected():  # once for all that a compilation does, or each end of a part walks the new objects
                    made = observed_call("plan", self._name(), making, ()) if STATE.observers else making()
            if made is None:
                position.failures += 1
                position.concrete = position.failures >= MAX_FAILURES
                return None
            position.add(made)
            if position is self.entry:
                self._front.search()
        found = self._shown(made)(state) if given is None else self._made_runs(made, state, given)
        if found is MISS:
            position.remove(made)
            position.concrete = True
            self._failed(f"a condition does not hold right after the trace: {made.why(state)}", None)
            return None
        if position is self.entry:
            with _LOCK:
                if self.shelf is not None:  # the program may have reset the compiler
                    self.shelf.put(made)
        return (found,)

    def _slowly(self, position: Position, state: Sequence[Any], asked: Asked) -> Any:
        """Run a segment all of whose conditions hold, evaluated in Python; MISS where there is none."""
        for segment in [each for each in position.segments if each.origin is None]:
            found = self._shown(segment)(state)
            if found is not MISS:
                return found
        for sized in [*position.sized] if any(each.made for each in position.sized) else ():
            now = asked.sizes(sized, state)
            made = None if now is None else sized.found(now)
            if now is not None and made is not None:
                position.again(made)
                return self._made_runs(made, state, now[2])
        return MISS

    def _made_runs(self, made: Segment, state: Sequence[Any], given: tuple[Any, ...]) -> Any:
        """Run a segment for constant sizes all of whose conditions hold."""
        found = MISS if STATE.observers else made.run(state)
        if found is not MISS:
            return found
        return self._shown(made)(state) if STATE.observers or made.known is None else made.known(state, given)

    def _shown(self, segment: Segment) -> Callable[[Any], Any]:
        """A segment with its conditions in Python; where somebody looks on, its program is told."""
        return told(segment, self._name()) if STATE.observers else segment.slow

    def _resized(
        self, position: Position, state: Sequence[Any], asked: Asked
    ) -> tuple[Segment | None, tuple[Any, ...] | None]:
        """The segment that a trace with symbols becomes for the sizes of a state, and what it is called with; None
        where none serves them.
        """
        for number, sized in enumerate(position.sized):
            now = asked.sizes(sized, state)
            made = None if now is None else self._made_for(sized, now)
            if now is not None and made is not None:
                sized.used += 1
                position.sized.insert(0, position.sized.pop(number))
                return made, now[2]
        return None, None

    def _made_for(self, sized: SizedSegment, now: SizesNow) -> Segment | None:
        """The segment of a trace with symbols for some sizes, compiled; None where there is none."""
        try:
            made = sized.at(now)
            if made is not None and hasattr(made.program, "compile"):
                made.program.compile()
        except Exception as error:  # another trace may do better
            if isinstance(error, HOOKS.fatal):
                raise
            self._no_symbols(f"{type(error).__name__}: {error}")
            return None
        return made

    def _kept(self, state: Sequence[Any]) -> Any:
        """Run a segment of an earlier process; MISS where none fits."""
        if self.shelf is None:
            self.shelf = Shelf(
                self.target, self.settings, functools.partial(self.again, functools.partial(_enter, self.target))
            )
        for made in self.shelf.segments(state):
            found = self._shown(made)(state)
            if found is not MISS:
                self.shelf.take(made)
                self.entry.add(made)
                self._front.search()
                tell("graph", LazyText(functools.partial(getattr, made, "text")), segment=made)
                return found
        return MISS

    def _guards(self, position: Position, segment: Segment) -> str:
        """The conditions of a segment, as text."""
        names = self.target.__code__.co_varnames if position is self.entry else ()
        return "\n".join([f"{self._name()}:", *listed(segment, names)])

    def _reason(self, position: Position, state: Sequence[Any]) -> str:
        """Why the segment that was made last does not fit, in words; empty where there is none."""
        if not position.segments:
            return ""
        segment = position.segments[0]
        names = self.target.__code__.co_varnames if position is self.entry else ()
        return readable(segment.why(state), segment.space, names, state)

    def _allowed(self, position: Position, state: Sequence[Any]) -> bool:
        reason = self._reason(position, state)
        if not HOOKS.allowed(self, bool(position.segments), reason):
            return False
        if not position.segments:
            return True
        COUNTERS["recompiles"][reason] += 1
        tell("recompile", f"{self._name()}: recompiled, because this no longer holds: {reason}", reason=reason)
        if tells_of_sizes(reason) and position.sizes < MAX_SIZES:
            position.sizes += 1
            return True
        if position.traced < self.settings.recompile_limit:
            return True
        # Sizes that stay no symbols are a limit of this compiler's: it is none of the program's that asks for one graph.
        whole = self.settings.fullgraph and position is self.entry and not tells_of_sizes(reason)
        HOOKS.limited(self, whole, reason)
        self._once("limit", f"{self._name()} was compiled {self.settings.recompile_limit} times and runs as it is from now on where none of them fits; "
                   f"the last time because this did not hold: {reason}")  # fmt: skip
        return False

    def _note_numbers(self, position: Position, state: Sequence[Any]) -> None:
        """Take numbers that are not what they were as numbers that each call passes on, from now on."""
        if self.settings.dynamic is False or HOOKS.dynamic(self.settings.dynamic) is False:
            return
        for segment in position.segments:
            changed = frozenset(segment.changes.renumbered(state, segment.numbers)) - position.fixed - position.symbols
            if self.settings.backend is not None:
                ints = {place for place in changed if type(segment.numbers[place]) is int}
                position.symbols |= ints
                changed -= ints
            position.changing |= changed

    def _note_sizes(self, position: Position, state: Sequence[Any]) -> None:
        """Take dims that do not have the sizes that they had as symbols, from now on."""
        if HOOKS.dynamic(self.settings.dynamic) is not False:
            for segment in position.segments[:LOOKED_AT]:
                position.dims |= {*segment.changes.resized(state)} - position.static

    def _varying(self, position: Position) -> Varying:
        """Numbers and sizes that the next trace makes symbolic."""
        dynamic = HOOKS.dynamic(self.settings.dynamic)
        varying = Varying(position.changing, position.dims, position.static, dynamic is True)
        varying.ints = position.symbols
        varying.named = self.settings.backend is not None
        return varying

    def _segment(self, position: Position, state: Sequence[Any], start: functools.partial[None]) -> Segment | None:
        """A segment that begins at a place; None where none can, or where its failure lets the function run as it is."""
        try:
            return self._attempted(position, state, start)
        except Unbuildable as error:
            if not self.settings.suppress_errors or self.settings.fullgraph:
                raise
            self._failed(f"{error}", error)
        except (Exception, TracerError) as found:
            error, place = (found.error, found.place) if isinstance(found, TracerError) else (found, None)
            ends = isinstance(error, HOOKS.fatal) or _ends_program(found)
            if not self.settings.suppress_errors or self.settings.fullgraph or ends:
                try:
                    raise error from None
                finally:
                    del error  # or the exception would hold the frame that holds it
            self._failed(f"{type(error).__name__}: {error}", error)
            fails = functools.partial(self._fails_alike, [*state], error) if self.settings.backend is None else None
            text = functools.partial(reproduction, self.target, [*state], error, place, fails)
            tell("reproduction", LazyText(text if start.func is _enter else functools.partial(self._shown_later, text)))
        return None

    def _attempted(self, position: Position, state: Sequence[Any], start: functools.partial[None]) -> Segment | None:
        """A segment, traced again in another way while a trace asks for one; None where none begins here."""
        attempt = _Attempt()
        for _ in range(MAX_ATTEMPTS):
            try:
                made = self._traced_once(position, state, start, attempt)
            except (Retry, Unbuildable) as found:
                if not self._tries_otherwise(position, attempt, found):
                    if not isinstance(found, Retry):
                        raise
                    if not self._ends_at(position, attempt, found):
                        return None
            except (Exception, TracerError) as error:
                if attempt.plain or isinstance(error, HOOKS.fatal) or _ends_program(error):
                    raise
                self._simplify(position, attempt, error)
            else:
                if hasattr(made.program, "compile"):  # here its errors let the function run as it is
                    made.program.compile()
                COUNTERS["stats"]["unique_graphs"] += made.program is not None
                tell("graph", LazyText(functools.partial(getattr, made, "text")), segment=made)
                tell("guards", LazyText(functools.partial(self._guards, position, made)), segment=made)
                return made
        return None

    def _tries_otherwise(self, position: Position, attempt: _Attempt, found: Retry | Unbuildable) -> bool:
        """Whether a setting or a symbol may be what stopped a trace; the next one is made without it."""
        if isinstance(found, Retry) and found.kind == DIFFERS:
            self.settings.repeats, attempt.stop_at, attempt.reason = False, None, ""
            return True
        if self._needs_elements(found):
            self.settings.captures, attempt.stop_at, attempt.reason = True, None, ""
            return True
        known = isinstance(found, Retry) and found.reason in [each.reason for each in position.segments]
        if position.changing and not known:  # perhaps the program asks for the value of such a number
            position.fix_numbers()
            attempt.stop_at = None
            return True
        if not attempt.plain and _through_symbols(found):
            self._no_symbols(f"{found}")
            attempt.plain, attempt.stop_at = not position.symbols, None
            attempt.symbols |= position.fix_symbols()
            return True
        return False

    def _ends_at(self, position: Position, attempt: _Attempt, found: Retry) -> bool:
        """Let the next trace end where this one broke; False where it broke at its first instruction, or grew too large."""
        if attempt.symbols:  # it ends there with plain numbers as well
            position.symbols, position.fixed = position.symbols | attempt.symbols, position.fixed - attempt.symbols
            attempt.symbols, attempt.plain = frozenset(), False
        self._broke(found)
        if not found.count or found.kind in ("budget", "recursion"):
            position.at_once = not found.count
            return False
        attempt.stop_at, attempt.reason = found.count, found.reason
        return True

    def _simplify(self, position: Position, attempt: _Attempt, error: BaseException) -> None:
        """Take symbols from the next trace, for one with them failed: numbers first, then ints, then sizes."""
        self._no_symbols(f"{type(error).__name__}: {error}")
        attempt.stop_at = None
        if position.changing and self.settings.backend is not None:  # perhaps it takes no numbers
            position.fix_numbers()
        elif position.symbols:
            attempt.symbols |= position.fix_symbols()
        else:
            attempt.plain = True
            if self.settings.backend is not None:  # it is not asked again for each size
                position.static |= {*position.dims}
                position.dims.clear()

    def _needs_elements(self, found: Exception) -> bool:
        """Whether one graph is asked for that has to hold what elements tell: most graphs do without, and are traced sooner."""
        held = self.settings.captures or (HOOKS.captures_elements() and HOOKS.captures_sizes())
        return self.settings.fullgraph and not held and isinstance(found, Retry) and found.kind == "data"

    def _fails_alike(self, state: Sequence[Any], error: BaseException, function: types.FunctionType) -> bool:
        """Whether compiling another function of the same parameters fails as this one did."""
        settings = dataclasses.replace(self.settings, suppress_errors=False, fullgraph=False, budget=PROBED)
        with silent():
            try:
                made = CompiledFunction(function, settings)
                made._segment(Position(), state, functools.partial(_enter, function))
            except (Exception, TracerError) as found:
                return alike(found.error if isinstance(found, TracerError) else found, error)
        return False

    def _traced_once(
        self, position: Position, state: Sequence[Any], start: functools.partial[None], attempt: _Attempt
    ) -> Segment:
        """The segment of one trace."""
        varying = Varying(position.changing, marks=False) if attempt.plain else self._varying(position)
        varying.names = self.target.__code__.co_varnames if position is self.entry else ()
        resume = self.resume if start.func is _enter else None
        again = functools.partial(self.again, start)
        plain = called_with_state(self.target) if start.func is _enter else None
        made = trace(
            self.settings, state, start, _internal, attempt.stop_at, attempt.reason, resume, again, varying, plain
        )
        return made if isinstance(made, Segment) else self._first_of(position, made, state)

    def _first_of(self, position: Position, sized: SizedSegment, state: Sequence[Any]) -> Segment:
        """The segment of a trace with symbols for the sizes at hand."""
        now = sized.sizes_now(state)
        made = None if now is None else sized.at(now)
        if made is None:
            raise SpecializationError("the conditions of a trace do not hold for the sizes that it was made with")
        for place in sized.pinned():
            position.pins[place] = position.pins.get(place, 0) + 1
            if position.pins[place] >= MAX_PINS and not position.sized:
                position.burn_in(place)
                what = place[0] if place[1] < 0 else f"dim {place[1]} of {place[0]}"
                tell("sizes", f"{self._name()}: burnt in, because the program needs its value: {what}")
        if not sized.all_pinned:
            position.sized.insert(0, sized)
        else:
            made.origin = None
        return made

    def _no_symbols(self, why: str) -> None:
        """Say that a trace with symbols came to nothing."""
        COUNTERS["sizes"][why] += 1
        tell("sizes", f"{self._name()}: traced again with plain sizes: {why}")

    def _broke(self, found: Retry) -> None:
        code, ip = (self.target.__code__, 0) if found.kind == "state" else found.line
        where = f"{code.co_filename}:{_line(code, ip)}"
        if found.kind == "opaque":  # no break: the program goes on after the operator
            tell("opaque", f"{found.reason} ({where}, in {code.co_name})", reason=found.reason, where=where)
            return
        COUNTERS["graph_break"][found.reason] += 1
        tell(
            "break", f"{found.reason} ({where}, in {code.co_name})", reason=found.reason, where=where, cause=found.kind
        )
        self.last_reason = f"{found.reason} ({where})"
        strict = HOOKS.strict()
        if self.settings.fullgraph if strict is None else strict:
            if found.kind == "exception" and found.error is not None:
                try:
                    raise found.error
                finally:
                    found.error = None  # or the exception would hold the frame that holds it
            raise HOOKS.unsupported(
                f"{found.reason}\n  at {where}, in {code.co_name}\n  fullgraph=True asks for one graph"
            )

    def _failed(self, text: str, error: BaseException | None) -> None:
        COUNTERS["failures"][text] += 1
        tell("failure", text, error=error)
        self._once(text, f"{self._name()} runs as it is: {text}")

    @staticmethod
    def _shown_later(text: Callable[[], str]) -> str:
        """The report on a failure in a trace that began behind a break."""
        return f"# The trace began behind a break; the values are those of its frames.\n{text()}"

    def _once(self, key: str, text: str) -> None:
        if key not in self._told:
            self._told.add(key)
            warnings.warn(text, RuntimeWarning, stacklevel=4)

    def _name(self) -> str:
        return getattr(self.function, "__qualname__", type(self.function).__name__)

    # ***** going on after a break *****

    def again(self, start: functools.partial[None], state: Sequence[Any]) -> Any:
        """Run from a state as the function is, to the end."""
        if start.func is _enter:
            return _plain_call(self.target, state)
        interpreter = Interpreter(PLAIN)
        start(interpreter, list(state))
        return interpreter.run()

    def resume(self, stopped: Stopped) -> Any:
        """Go on where a segment stopped."""
        interpreter = Interpreter(PLAIN)
        while True:
            interpreter.frames[:] = stopped.take()
            _step(interpreter)
            try:
                found = self._continued(interpreter)
            except BaseException as error:
                found = self._unwound(interpreter, error)
            if type(found) is not Stopped:
                HERE.frame = None  # or what the function held would live until another one is interpreted
                return found
            stopped = found

    def _continued(self, interpreter: Interpreter) -> Any:
        """Continue after an instruction that ran uncompiled: a segment's result, or the frames as they are for the
        next instruction.
        """
        searching = True  # after the instruction that broke; later only where segments are known to begin
        while not interpreter.finished:
            frames = interpreter.frames
            top = frames[-1]
            if (
                (searching or (top.code, top.ip) in self.known)
                and not (STATE.word & _ELSEWHERE or STATE.overrides_off or LEVELS.stack)
                and is_clean(frames)
                and not (top.stack and isinstance(top.stack[-1], BaseException))
                and all(f.link is None or instead_of(f.link) is not None for f in frames)
            ):
                position, made = self._segment_at(frames)
                if made is not None:
                    return made[0]
                searching = position.at_once  # the next instruction may be one to begin with
            _step(interpreter)
        return interpreter.result

    def _segment_at(self, frames: Sequence[Frame]) -> tuple[Position, tuple[Any] | None]:
        """The segments that begin where frames are, and what one of them gives, in a tuple; None where there is none."""
        key, state = _described(frames)
        position = self.positions.setdefault(key, Position())
        if position.concrete:
            return position, None
        for run in position.runs if not STATE.observers else ():
            found = run(state)
            if found is not MISS:
                return position, (found,)
        asked = Asked(position)
        found = self._slowly(position, state, asked)
        if found is not MISS:
            return position, (found,)
        made = self._traced(position, state, functools.partial(_reenter, [_hollow(frame) for frame in frames]), asked)
        if made is not None:
            self.known.add((frames[-1].code, frames[-1].ip))
        return position, made

    def _unwound(self, interpreter: Interpreter, error: BaseException) -> Any:
        """Let the frames that are there handle an exception which none of their instructions raised, as Ctrl-C while a
        segment is traced.
        """
        escaped = interpreter.unwind(error) if interpreter.frames else error
        try:
            if escaped is not None:
                raise escaped
        finally:
            del error, escaped  # or the exception would hold the frame that holds it
        return interpreter.run()


def _step(interpreter: Interpreter) -> None:
    """One instruction as it is."""
    if STATE.observers and not STATE.word & OBSERVED:
        as_seen(interpreter.step)
    else:
        interpreter.step()


def _ends_program(error: BaseException) -> bool:
    """Whether Ctrl-C, or what else is no error of the trace, came while the tracer's own code ran."""
    return isinstance(error, TracerError) and not isinstance(error.error, Exception)


def _through_symbols(found: Exception) -> bool:
    """Whether a trace may have ended because sizes were symbols: an instruction failed, or the program."""
    return isinstance(found, Unbuildable) or (isinstance(found, Retry) and found.kind in ("exception", "sizes"))


_VERSION_TOLD: list[bool] = []


def _tell_version() -> None:
    """Warn, once, that nothing is compiled on this version of Python."""
    if not _VERSION_TOLD:
        _VERSION_TOLD.append(True)
        versions = ", ".join(f"{major}.{minor}" for major, minor in COMPILED)
        warnings.warn(
            f"torch.compile follows the bytecode of CPython {versions}; on {sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]} "
            "compiled functions run as they are",
            RuntimeWarning,
            stacklevel=4,
        )


HOOKS.again = CompiledFunction.again


def _target(function: Any) -> tuple[types.FunctionType, tuple[Any, ...]]:
    """The function in Python behind a callable, and its first arguments."""
    if isinstance(function, types.FunctionType):
        return function, ()
    if isinstance(function, types.MethodType):
        inner, first = _target(function.__func__)
        return inner, (*first, function.__self__)
    if isinstance(function, CompiledFunction):
        return function.target, function.first
    method = type_attribute(type(function), "__call__")
    if isinstance(method, types.FunctionType):
        return method, (function,)
    if callable(function) and not isinstance(function, type):
        return _calling(function), ()
    raise TypeError(f"only functions in Python can be compiled, not {type(function).__name__}")


def _calling(function: Callable[..., Any]) -> types.FunctionType:
    """A function in Python that calls one in native code, or a `functools.partial`; of no file, so nothing of it is
    kept.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    name = getattr(function, "__name__", type(function).__name__)
    call.__code__ = call.__code__.replace(co_filename="<native function>", co_name=name)
    return call  # type: ignore[return-value]


# Bits of the dispatch state under which nothing is compiled.
_ELSEWHERE = FUNCTION_MODE | VMAP | RECORDING | OBSERVED | ANOMALY | SAVED_HOOKS


def _plain_call(function: types.FunctionType, state: Sequence[Any]) -> Any:
    """Call a function with the values of its parameters."""
    args, kwargs = _arguments(function.__code__, state)
    return function(*args, **kwargs)


def _arguments(code: types.CodeType, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of the values of a function's parameters."""
    count, named = code.co_argcount, code.co_kwonlyargcount
    args, rest = list(values[:count]), list(values[count + named :])
    kwargs = dict(zip(code.co_varnames[count : count + named], values[count : count + named], strict=True))
    if code.co_flags & 0x04:
        args += rest.pop(0)
    if code.co_flags & 0x08:
        kwargs.update(rest[0])
    return args, kwargs


def _enter(function: types.FunctionType, interpreter: Interpreter, values: list[Any]) -> None:
    """Begin a function with the wrapped values of its parameters."""
    tracer: Any = interpreter.operations
    if function.__code__.co_flags & 0x0C:
        values = [tracer.real(x) for x in values]
    args, kwargs = _arguments(function.__code__, values)
    source = tracer.reads.constant(function)
    tracer.outside.adopt(function, source)
    tracer.reads.check(source, f"{{}}.__code__ is {tracer.constants.name(function.__code__)}")
    note_closure(tracer, function)
    interpreter.push_call(function, tuple(args), kwargs)


def _described(frames: Sequence[Frame]) -> tuple[Any, list[Any]]:
    """Where frames are, and their values one after the other."""
    key: list[Any] = []
    state: list[Any] = []
    for frame in frames:
        bound = tuple([x is not NULL for x in frame.locals])
        filled = tuple([x is not NULL for x in frame.stack])
        key.append((frame.code, frame.ip, bound, filled, None if frame.link is None else frame.link.drop))
        state += [x for x in frame.locals if x is not NULL]
        state += [x for x in frame.stack if x is not NULL]
        kept = instead_of(frame.link)
        if kept is not None:
            state.append(kept.value)
    return tuple(key), state


def _hollow(frame: Frame) -> Frame:
    """A frame like another without its values: segments keep it."""
    made = frame.template()
    made.locals = [x if x is NULL else None for x in frame.locals]
    made.stack = [x if x is NULL else None for x in frame.stack]
    if frame.link is not None:
        made.link = linked(Instead(None), frame.link.drop)
    return made


def _reenter(templates: Sequence[Frame], interpreter: Interpreter, values: list[Any]) -> None:
    """Put frames with the wrapped state into the interpreter."""
    left = iter(values)
    for template in templates:
        frame = template.copy()
        frame.locals = [NULL if x is NULL else next(left) for x in template.locals]
        frame.stack = [NULL if x is NULL else next(left) for x in template.stack]
        if template.link is not None:
            frame.link = linked(Instead(next(left)), template.link.drop)
        interpreter.frames.append(frame)


def _line(code: types.CodeType, ip: int) -> int:
    """The line of the instruction of this number."""
    known = (line for line in reversed(decode(code).lines[: ip + 1]) if line is not None)
    return next(known, code.co_firstlineno)


def _internal(value: Any) -> bool:
    """Whether an object is one of the package's own that nobody changes: a layout, a memory format, a generator."""
    module = type(value).__module__ or ""
    if module == PACKAGE:  # native functions of tensors
        return True
    if module.startswith(f"{PACKAGE}._"):
        return not module.startswith((*HOOKS.inlined, f"{PACKAGE}._capture."))
    return type(value).__name__ in _CONSTANT_TYPES


_CONSTANT_TYPES = frozenset((
    "memory_format", "layout", "finfo", "iinfo", "dtype", "Logger", "TypeVar", "_SpecialForm", "_GenericAlias", "_SpecialGenericAlias",
    "_UnionGenericAlias",
))  # fmt: skip
