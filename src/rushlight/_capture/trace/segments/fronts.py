"""The callable of a compiled function: it has the same signature, and looks for a segment.

Where each segment does no more than the function would by itself, looking costs more than what is looked for.  Then the
front is given the function's own code, and a call costs what it costs without a compiler.  No condition is asked
meanwhile, so this is only for functions that call a few methods whatever they are given (`calls_methods_alone`).

The front looks for segments again once there is a plan for work of a new kind, when the stance or the settings change,
when what was traced is forgotten, and when the function is given other code.  A function that is given other defaults,
or code with other parameters, gives them to its fronts.
"""

from __future__ import annotations

import dis
import functools
import sys
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._capture.bytecode.code import decode
from rushlight._capture.trace.guards.guards import native_find
from rushlight._capture.trace.segments.generated import MISS, compiled_text
from rushlight._capture.trace.settings import HOOKS
from rushlight._engine.core.state import PLAN_LISTENERS
from rushlight._host.function_codes import tells_of_functions

if TYPE_CHECKING:
    from rushlight._capture.trace.segments.compiled import CompiledFunction

__all__ = ["Front", "calls_methods_alone", "look_again"]

_HITS = 4  # calls whose conditions hold before the function's own code takes over
# Instructions that call methods, and do with values what operators do.
_PLAIN = frozenset((
    "BINARY_OP", "BINARY_SLICE", "BINARY_SUBSCR", "BUILD_LIST", "BUILD_SLICE", "BUILD_TUPLE", "CALL", "CALL_KW", "COMPARE_OP", "COPY",
    "COPY_FREE_VARS", "IS_OP", "KW_NAMES", "LOAD_ATTR", "LOAD_CONST", "LOAD_DEREF", "LOAD_FAST", "LOAD_FAST_BORROW",
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW", "LOAD_FAST_LOAD_FAST", "LOAD_GLOBAL", "LOAD_METHOD", "LOAD_SMALL_INT", "NOP", "POP_TOP", "PRECALL", "PUSH_NULL",
    "RESUME", "RETURN_CONST", "RETURN_VALUE", "STORE_FAST", "STORE_SUBSCR", "SWAP", "UNARY_INVERT", "UNARY_NEGATIVE",
))  # fmt: skip
_CALLS = frozenset(("CALL", "CALL_KW"))


def calls_methods_alone(code: types.CodeType) -> bool:
    """Whether code runs from its first instruction to its last, and calls nothing but attributes of what it has."""
    decoded = decode(code)
    names, args = decoded.opnames, decoded.raw_args
    if not _PLAIN.issuperset(names) or code.co_cellvars:
        return False
    methods = 0
    for k, (name, arg) in enumerate(zip(names, args, strict=True)):
        if name == "LOAD_METHOD" or (name == "LOAD_ATTR" and _ATTRIBUTES_CALL and arg & 1):
            methods += 1
        elif name == "PUSH_NULL" or (name == "LOAD_GLOBAL" and arg & 1):  # what is called is no method
            at = k + 1 if name == "LOAD_GLOBAL" else k - 1 if _NULL_BEHIND else k + 2
            if names[at] != "LOAD_ATTR":
                return False
            methods += 1
    return methods == sum(name in _CALLS for name in names)


_ATTRIBUTES_CALL = sys.version_info >= (3, 12)  # LOAD_ATTR loads methods, too
_NULL_BEHIND = sys.version_info >= (3, 13)  # where a function is called that is no method, NULL lies above it

# The front's own variables, whose names come behind those of a function's.
_OWN = "\U00020000"
_THEIRS = "\U00010400"  # a function's variables, once parameters may have their names
_TEXT = """def made({variables}):
    def front({parameters}):
        return {own}find(({state}))
        {variables}
"""


class Front:
    """`caller` is the function; `search()` lets it look for segments, of which there may be others now."""

    def __init__(self, compiled: CompiledFunction) -> None:
        self.compiled, self._left = compiled, 0
        self.in_place = False  # whether the function's own code is the caller's
        self._missed = compiled.missed
        self._find = types.CellType(_in_python(compiled.entry.runs, self._missed))
        self._natively: Callable[[Any], Any] | None = None
        self._names: tuple[str, ...] = ()  # of the front's own variables, where the function's code can take over
        told = tells_of_functions(_told)
        _FRONTS.setdefault(self.compiled.target, weakref.WeakSet()).add(self)
        self._parameters = _parameters(self.compiled.target.__code__)
        self._front = self._made()
        self._searching = getattr(self._front, "__code__", None)
        self.caller = self._front if told or self._searching is None else self._asking()

    def _made(self) -> Any:
        function, first = self.compiled.target, self.compiled.first
        bare, form = function.__code__, _form(function, len(first))
        if form is None:
            return functools.partial(function, *first)  # which says how many it takes
        cells = {f"{_OWN}find": self._find, f"{_OWN}held": types.CellType((self.compiled.entry.runs, self._missed))}
        cells |= {f"{_OWN}first{i}": types.CellType(x) for i, x in enumerate(first)}
        theirs = {} if first else dict(zip(bare.co_freevars, function.__closure__ or (), strict=True))
        made = _code_of(form, (*theirs, *cells))
        if not first and not _is_front(function) and made.co_freevars == (*bare.co_freevars, *sorted(cells)):
            self._names = tuple(sorted(cells))
        cells |= theirs
        closure = tuple([cells[name] for name in made.co_freevars])
        front: Any = types.FunctionType(made, function.__globals__, function.__name__, form.defaults, closure)
        front.__kwdefaults__ = function.__kwdefaults__  # the same dict, which programs may write to
        return self._named(front)

    def _asking(self) -> Any:
        """A caller for interpreters that do not tell of functions: each call asks whether there are other defaults."""

        def asking(*args: Any, **kwargs: Any) -> Any:
            self.follow()
            return self._front(*args, **kwargs)

        return self._named(asking)

    def _named(self, front: Any) -> Any:
        functools.update_wrapper(front, self.compiled.target, updated=())
        del front.__wrapped__
        front._torchdynamo_orig_callable, front._torchdynamo_wrapper_id = self.compiled.function, id(front)
        return front

    def follow(self) -> None:
        """Take the defaults of the function, and its parameters where its code has others."""
        function = self.compiled.target
        parameters = _parameters(function.__code__)
        form = None if self._searching is None else _form(function, len(self.compiled.first))
        if form is None:
            return
        with _LOCK:
            if parameters != self._parameters:
                self.compiled.forget()  # conditions count the items of the state
                self._parameters = parameters
                # Cells are found by their places, which the names sort into: those of a parameter may be another's now.
                before: tuple[str, ...] = self._front.__code__.co_freevars
                own = [name for name in before if name.startswith(_OWN)]
                theirs = [f"{_THEIRS}{i:04}" for i in range(len(before) - len(own))]
                self._searching = self._front.__code__ = _code_of(form, (*theirs, *own))
            self._front.__defaults__, self._front.__kwdefaults__ = form.defaults, function.__kwdefaults__

    def search(self) -> None:
        """Look for segments, in native code."""
        if self._searching is None:
            return
        if self._natively is None:
            if not self.compiled.entry.runs:
                return
            self._natively = native_find(self.compiled.entry.runs, MISS, self._missed)
        self.look(_HITS)

    def look(self, hits: int = 1) -> None:
        """Look for segments; after so many calls that find one the function's code takes over, where it may."""
        assert self._natively is not None
        with _LOCK:
            self._left = hits
            self._find.cell_contents = self._settling if self._is_idle() else self._natively
            if self.in_place:
                self.in_place, self._front.__code__ = False, self._searching

    def _is_idle(self) -> bool:
        """Whether what was compiled does no more than the function."""
        segments = self.compiled.entry.segments
        return bool(self._names and segments) and all(segment.alone for segment in segments)

    def _settling(self, state: Any) -> Any:
        """`find(state)` while it is to be seen whether conditions hold from call to call."""
        assert self._natively is not None
        before = self._hits()
        found = self._natively(state)
        if before < self._hits() and self._is_idle():
            self._left -= 1
            if self._left <= 0:
                self._take_over()
        return found

    def _hits(self) -> int:
        return sum([segment.guard.hits() for segment in self.compiled.entry.segments])

    def _take_over(self) -> None:
        """Give the front the function's own code."""
        function = self.compiled.target
        code = function.__code__
        own = _with_variables(code, self._names) if HOOKS.settled() and tells_of_functions(_told) else None
        if own is None:
            assert self._natively is not None
            self._find.cell_contents = self._natively
            return
        with _LOCK:
            if not self.in_place and function.__code__ is code:
                _IN_PLACE.append(weakref.ref(self))
                if look_again not in PLAN_LISTENERS:
                    PLAN_LISTENERS.append(look_again)
                self._front.__code__ = own
                self.in_place = True


_LOCK = threading.RLock()
_FRONTS: weakref.WeakKeyDictionary[Any, weakref.WeakSet[Front]] = weakref.WeakKeyDictionary()  # by their functions
_IN_PLACE: list[weakref.ref[Front]] = []  # those that have the code of their functions, or had it


def look_again() -> None:
    """Let all fronts look for segments: what a compiled function would do may be something else now."""
    with _LOCK:
        if look_again in PLAN_LISTENERS:
            PLAN_LISTENERS.remove(look_again)
        fronts = [each() for each in _IN_PLACE]
        _IN_PLACE.clear()
        for front in fronts:
            if front is not None:
                front.look()


def _told(function: Any) -> None:
    """A function has other code or other defaults."""
    fronts = _FRONTS.get(function)
    if fronts is None:
        return
    with _LOCK:
        for front in list(fronts):
            if front.in_place:
                front.look()
            front.follow()


def _parameters(code: types.CodeType) -> tuple[Any, ...]:
    """Properties of a signature on which the code of a front depends."""
    count = code.co_argcount + code.co_kwonlyargcount + sum(bool(code.co_flags & flag) for flag in (0x04, 0x08))
    return code.co_argcount, code.co_posonlyargcount, code.co_flags & 0x0C, code.co_varnames[:count]


def _with_variables(code: types.CodeType, names: tuple[str, ...]) -> types.CodeType | None:
    """Code with further free variables; None where its first instruction, which takes them over, has no room for all."""
    text, count = code.co_code, len(code.co_freevars) + len(names)
    if code.co_freevars:
        if text[0] != dis.opmap["COPY_FREE_VARS"] or count > 255:
            return None
        text = bytes((text[0], count)) + text[2:]
    return code.replace(co_code=text, co_freevars=(*code.co_freevars, *names))


def _is_front(function: Any) -> bool:
    return function.__dict__.get("_torchdynamo_wrapper_id") == id(function)


def _in_python(runs: Sequence[Callable[[Any], Any]], missed: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`find(state)` until there is a segment, when native code takes its place."""

    def find(state: Any) -> Any:
        for run in runs:
            found = run(state)
            if found is not MISS:
                return found
        return missed(state)

    return find


def _code_of(form: _Form, variables: Sequence[str]) -> types.CodeType:
    """A front's own code, with these free variables."""
    text = _TEXT.format(variables=", ".join((*variables, "")), parameters=form.parameters, state=form.state, own=_OWN)
    made = compiled_text(text, "caller of a compiled function")
    for name in ("made", "front"):
        made = next(x for x in made.co_consts if isinstance(x, types.CodeType) and x.co_name == name)
    return made


class _Form(NamedTuple):
    """A front's parameters, its state, and the defaults of its positional parameters."""

    parameters: str
    state: str
    defaults: tuple[Any, ...] | None


def _form(function: types.FunctionType, given: int) -> _Form | None:
    """The form of a front for a function whose first arguments are given; None where it does not take so many."""
    code = function.__code__
    count, named = code.co_argcount, code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    taken = list(code.co_varnames[given:count])
    defaults = (function.__defaults__ or ())[-len(taken) :] if taken else ()
    # Keywords have the names of the parameters, so these cannot be changed.
    parameters, without = [], len(taken) - len(defaults)
    for i, name in enumerate(taken):
        parameters.append(name if i < without else f"{name}=None")
        if given + i + 1 == code.co_posonlyargcount:
            parameters.append("/")
    state = [f"{_OWN}first{i}" for i in range(min(given, count))] + taken
    more = [f"{_OWN}first{i}" for i in range(count, given)]  # of a method that takes its object among `*args`
    state += named
    rest = list(code.co_varnames[count + len(named) :])
    if code.co_flags & 0x04:
        gathered = rest.pop(0)
        parameters.append(f"*{gathered}")
        state.append(f"({', '.join(more)}, *{gathered})" if more else gathered)
    elif more:
        return None
    elif named:
        parameters.append("*")
    held = function.__kwdefaults__ or {}
    parameters += [f"{name}=None" if name in held else name for name in named]
    if code.co_flags & 0x08:
        parameters.append(f"**{rest[0]}")
        state.append(rest[0])
    if not all(name.isidentifier() for name in (*taken, *named)):  # a comprehension's `.0`
        raise TypeError("a comprehension cannot be compiled by itself")
    return _Form(", ".join(parameters), "".join(f"{name}, " for name in state), defaults or None)
