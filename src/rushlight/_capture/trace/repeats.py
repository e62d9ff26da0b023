"""Calls of objects that repeat an earlier call of the same trace: layers of a model, whose code is followed once.

While the code of a call is followed, everything that decides what it does is written down: conditions on what it reads,
objects that come in, and calls that work on tensors.  A later call of another object of the same class, with arguments
of the same description, is a repetition if all these conditions hold for its own attributes.  Then its guards are the
same ones from another root, and the calls on tensors are made again, one after another, without an instruction of
bytecode.  They run as always: aliases, histories, random numbers and changes in place are those of these calls.

A call is not repeated if anything but tensors was changed, by it or before it in the trace, if it compared objects by
identity, called code back from native code, gave warnings, or gives something else than tensors and plain values.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._base.own_names import own_module
from rushlight._capture.bytecode import Generator, Interpreter
from rushlight._capture.bytecode.interpreter import Link
from rushlight._capture.trace.guards.asking import ERRORS
from rushlight._capture.trace.guards.sources import VARIABLE, Source
from rushlight._capture.trace.objects.instances import InstanceDict
from rushlight._capture.trace.outside import ABSENT, CONTAINERS, Lazy, is_plain
from rushlight._capture.trace.package_code import PACKAGE
from rushlight._capture.trace.reports.events import Break
from rushlight._capture.trace.segments.generated import functions
from rushlight._engine.core.state import STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._types.layout import Size

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["DIFFERS", "Following", "Repeats"]

DIFFERS = "differs"
"""The kind of a break where a repetition turned out to differ: the trace is made again without any."""

_VALUES = ("builtins", "rushlight._types", "torch._types")  # modules whose plain objects are what they are equal to
_MOST_ALIKE = 4  # calls of one description that later ones are compared with
_READING = frozenset((
    "get", "keys", "values", "items", "copy", "index", "count", "__contains__", "__getitem__", "__iter__", "__len__", "__eq__", "__ne__",
    "isdisjoint", "issubset", "issuperset", "union", "intersection", "difference", "__or__", "__and__", "__sub__", "__add__",
))  # fmt: skip


class _Unfit(Exception):
    """A call cannot be repeated."""


class _Slot:
    """A tensor in a call that is made again, by its number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class _Parts:
    """A tuple, list or dict with tensors inside."""

    __slots__ = ("items", "keys", "kind")

    def __init__(self, kind: type, items: list[Any], keys: Sequence[Any]) -> None:
        self.kind, self.items, self.keys = kind, items, keys


class _Bound:
    """A method of a tensor."""

    __slots__ = ("function", "slot")

    def __init__(self, slot: _Slot, function: Any) -> None:
        self.slot, self.function = slot, function

    def of(self, owner: Tensor) -> Any:
        """The same method of another tensor."""
        if type(self.function) is types.MethodType:
            return types.MethodType(self.function.__func__, owner)
        return getattr(owner, self.function.__name__)


def _described(x: Tensor) -> tuple[Any, ...]:
    """Properties of a tensor that Python code can read without its elements."""
    meta = x._autograd_meta
    more = _NO_META
    if meta is not None:
        hooks = bool(meta.hooks), bool(meta.post_hooks)
        more = meta.base is None, meta.grad is None, hooks, meta.inference, meta.creation
    return (x._spec, type(x), x._rg, x._node is None, more)


_NO_META = (True, True, (False, False), False, "")


def _as_words(value: Any) -> tuple[Any, ...]:
    """A plain value as something that is equal for no other one: 0.0 is not -0.0, and 1 is not True."""
    return (type(value), repr(value))


def _is_value(x: Any) -> bool:
    """Whether this is a plain value of no class of a user's and no number of the program."""
    kind = type(x)
    if kind is slice:
        return all(_is_value(part) for part in (x.start, x.stop, x.step))
    return kind is Size or isinstance(x, type) or (is_plain(x) and kind.__module__.startswith(_VALUES))


def _is_simple(x: Any) -> bool:
    """Whether this is a tensor, a plain value, or a tuple, list or dict of such."""
    if type(x) in (list, tuple):
        return all(map(_is_simple, x))
    if type(x) is dict:
        return all(map(_is_value, x)) and all(map(_is_simple, x.values()))
    return isinstance(x, Tensor) or _is_value(x) or type(x).__module__.startswith(_VALUES[1:])


def _is_method(x: Any) -> bool:
    """Whether this is a method of a tensor."""
    return callable(x) and isinstance(getattr(x, "__self__", None), Tensor)


def _copied(value: Any) -> Any:
    """A value whose containers nobody changes."""
    kind = type(value)
    if kind in (list, tuple):
        return kind([_copied(x) for x in value])
    if kind is dict:
        return {key: _copied(x) for key, x in value.items()}
    return value


def _holds_tensor(values: Any) -> bool:
    return any(
        isinstance(x, Tensor)
        or (type(x) in (list, tuple) and _holds_tensor(x))
        or (type(x) is dict and _holds_tensor(x.values()))
        for x in values
    )


class _Call:
    """A call on tensors: in which state of the dispatcher, what it is given and what comes out."""

    __slots__ = ("args", "descriptions", "function", "kwargs", "made", "word")

    def __init__(self, function: Any, args: Any, kwargs: Any, word: int) -> None:
        self.function, self.args, self.kwargs, self.word = function, args, kwargs, word
        self.made: Any = None
        self.descriptions: list[Any] = []


def _call_of(function: Any, args: Any, kwargs: Any) -> _Call:
    """A call that is about to run, with the descriptions of the tensors that it is given."""
    made = _Call(function, _copied(args), _copied(kwargs), STATE.word)
    made.descriptions = [_described(x) for x in _tensors((args, kwargs))]
    return made


class Following(Link):
    """The link of a call whose code is followed: its end is noted, its result goes its way."""

    __slots__ = ("record", "repeats")

    def __init__(self, repeats: Repeats, record: _Record) -> None:
        self.repeats, self.record = repeats, record

    def returned(self, it: Interpreter, value: Any) -> None:
        self.repeats.over(self.record, value)
        it.deliver(value)


class _Given:
    """The arguments of a call: their description, and the tensors and objects among them."""

    def __init__(self, tracer: Tracer, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._tracer = tracer
        self.tensors: list[Tensor] = []
        self.objects: list[Any] = []
        self.description = (*map(self._part, args), *[(name, self._part(x)) for name, x in kwargs.items()])

    def _part(self, x: Any) -> Any:
        outside = self._tracer.outside
        if type(x) is Lazy:
            x = x.value  # ABSENT, which fits nothing, where nobody has looked at it
        if isinstance(x, Tensor):
            if not self._tracer.rec.is_recorded(x) or type(x._spec.numel) is not int:
                raise _Unfit
            known = outside.tensors.get(id(x))
            self.tensors.append(x)
            self.objects.append(x if known is None else known[0])
            return (_described(x), known is None)
        if _is_value(x):
            return _as_words(x)
        if type(x) is tuple and id(x) not in outside.shadows:
            return ("tuple", *map(self._part, x))
        if outside.is_outside(x) and self._tracer.is_user_object(x) and not isinstance(x, CONTAINERS):
            self.objects.append(x)
            return ("object", id(x))
        raise _Unfit


class _Record:
    """A call that is followed: the stretch of what is heard of it, and what the trace had done before it."""

    def __init__(self, root: Any, source: Source, given: _Given, alike: list[_Record], state: Any) -> None:
        self.root, self.source, self.given, self.alike, self.state = root, source, given, alike, state
        self.start = self.end = 0
        self.counts: Any = None
        self.result: Any = None
        self.built: _Repeatable | None = None
        self.unfit = False


class Repeats:
    """Events of the calls that a trace follows; `regions()` is the state of the thread's open regions."""

    def __init__(self, tracer: Tracer, regions: Callable[[], Any]) -> None:
        self.tracer, self._regions = tracer, regions
        self.heard: list[tuple[Any, ...]] = []
        self.count = 0  # calls that were repetitions
        self._inner = 0  # native calls within the one that runs: code was followed there
        self._unrepeatable = -1  # where something was heard of that no repetition can do
        self._ended = False  # whether nothing can be repeated any more
        self._open: list[_Record] = []
        self._known: dict[Any, list[_Record]] = {}
        self.inside: dict[int, tuple[int, int]] = {}  # objects, and where they were heard of when they came in
        self.made: dict[int, int] = {}  # functions that the trace made, and where

    # ***** what is heard *****

    def check(self, source: Source, condition: str) -> None:
        """A condition that the trace relies on."""
        self.heard.append(("check", source, condition))

    def came_in(self, value: Any, source: Source, made: Any, start: int = -1) -> None:
        """An object came in; where it is new, what tells of it was heard of from `start` on."""
        if start >= 0:
            self.inside[id(value)] = start, len(self.heard)
        self.heard.append(("wrap", source, value, made, _described(made) if isinstance(made, Tensor) else None))

    def number(self, source: Source) -> None:
        """A number came in that is guarded by its value."""
        self.heard.append(("number", source))

    def bar(self, source: Source) -> None:
        """Something came in without conditions: where it is an object's own, a call is not repeated."""
        self.heard.append(("bar", source))

    def made_function(self, function: Any) -> None:
        """The trace made a function."""
        self.made[id(function)] = len(self.heard)

    def entered(self, function: Any) -> None:
        """The trace enters a function."""
        if id(function) in self.made:
            self.heard.append(("local", self.made[id(function)]))

    def mark_unrepeatable(self) -> None:
        """Something happens that no repetition can do."""
        self._unrepeatable = len(self.heard)
        self.heard.append(("unrepeatable",))

    def changes(self, container: Any) -> None:
        """The trace changes a container: what it reads of one from outside is not told by conditions from now on."""
        if id(container) in self.tracer.outside.shadows:
            self.mark_unrepeatable()
            self._ended = True

    def by_identity(self, *values: Any) -> None:
        """The trace tells objects apart by their identity."""
        if self._open and all(map(self._has_identity, values)):
            self.mark_unrepeatable()

    def _has_identity(self, x: Any) -> bool:
        if is_plain(x) or isinstance(x, (Tensor, type, types.FunctionType, InstanceDict, *CONTAINERS)):
            return False
        return self.tracer.outside.is_outside(x)

    def native(self, run: Callable[..., Any], function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run native code for the trace, and note what works on tensors."""
        owner = getattr(function, "__self__", None)
        if isinstance(owner, CONTAINERS) and function.__name__ not in _READING:
            self.changes(owner)
        if not self._open:
            return run(function, *args, **kwargs)
        call, outer, self._inner = _call_of(function, args, kwargs), self._inner, 0
        try:
            made = run(function, *args, **kwargs)
        except StopIteration:
            raise
        except BaseException:
            self.mark_unrepeatable()
            raise
        finally:
            followed, self._inner = self._inner, outer + 1
        if self._works_on_tensors(function, owner, args, kwargs, made):
            if followed or not _is_simple((args, kwargs)) or not (_is_simple(made) or _is_method(made)):
                self.mark_unrepeatable()
                return made
            call.made = _copied(made), [_described(x) for x in _tensors(made)]
            self.heard.append(("call", call))
        elif STATE.word != call.word or (function is not getattr and any(map(self._has_identity, args))):
            self.mark_unrepeatable()
        return made

    def _works_on_tensors(self, function: Any, owner: Any, args: Any, kwargs: Any, made: Any) -> bool:
        if isinstance(owner, Generator) or (args and type(args[0]) in (InstanceDict, Generator)):  # followed itself
            return False
        if isinstance(owner, CONTAINERS) or (
            id(function) in _OF_CONTAINERS and not (args and isinstance(args[0], Tensor))
        ):
            return False
        if isinstance(owner, Tensor) or _holds_tensor(args) or (kwargs and _holds_tensor(kwargs.values())):
            return True
        ours = owner is not self.tracer and _is_ours(function)
        return ours or (isinstance(made, Tensor) and id(made) not in self.tracer.outside.tensors)

    # ***** calls of objects *****

    def called(self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Following | None]:
        """The result of a call that repeats an earlier one (else ABSENT), and the link for a call that is to be
        followed.
        """
        outside, frames = self.tracer.outside, self.tracer.interpreters[-1].frames
        source = outside.sources.get(id(root))
        if self._ended or self._unclean() or not frames or frames[-1].handled is not None:
            return ABSENT, None
        if source is None or source.is_constant or id(root) in outside.shadows:
            return ABSENT, None
        try:
            given = _Given(self.tracer, args, kwargs)
        except _Unfit:
            return ABSENT, None
        alike = self._known.setdefault((type(root), given.description, STATE.word), [])
        state = self._regions()
        for record in alike:
            if not record.unfit and record.state == state:
                found = self._again(record, root, source, given)
                if found is not ABSENT:
                    self.count += 1
                    return found, None
        if len(alike) == _MOST_ALIKE:
            return ABSENT, None
        record = _Record(root, source, given, alike, state)
        record.start, record.counts = len(self.heard), self._counts()
        self._open.append(record)
        return ABSENT, Following(self, record)

    def _unclean(self) -> bool:
        """Whether writes to objects wait, so that conditions on them tell less than all."""
        tracer, outside = self.tracer, self.tracer.outside
        return bool(outside.attributes or outside.globals or tracer.stale or outside.hosted or outside.wrappers)

    def _counts(self) -> tuple[Any, ...]:
        tracer = self.tracer
        listed = tracer.effects, tracer.last_effects, tracer.made_classes, tracer.outside.arrays, tracer.suspended()
        return (*[len(each) for each in listed], tracer.hooked_at, STATE.word)

    def over(self, record: _Record, value: Any) -> None:
        """The code of a call was followed to its end."""
        if record not in self._open:
            return
        while self._open.pop() is not record:  # those that an exception left
            pass
        clean = self._unrepeatable < record.start and not self._ended and not self._unclean()
        clean = clean and _is_simple(value) and self._regions() == record.state
        if clean and self._counts() == record.counts and len(record.alike) < _MOST_ALIKE:
            record.end, record.result = len(self.heard), _copied(value)
            record.alike.append(record)

    def _again(self, record: _Record, root: Any, source: Source, given: _Given) -> Any:
        """The result of a call as a repetition of another one; ABSENT where it is none."""
        if record.built is None:
            try:
                record.built = _Repeatable(self, record)
            except _Unfit:
                record.unfit = True
                return ABSENT
        return record.built.at(root, source, given)


_OF_CONTAINERS = frozenset(map(id, (
    operator.getitem, operator.contains, iter, next, len, bool, list, tuple, dict, zip, enumerate, reversed, set, frozenset,
)))  # fmt: skip


def _is_ours(function: Any) -> bool:
    """Whether a function is one of the package that runs as it is: it may work on the state of the thread."""
    return own_module(getattr(function, "__module__", None)).partition(".")[0] == PACKAGE


class _Repeatable:
    """A call that was followed, as what has to hold for another object and what is to be done with it."""

    def __init__(self, repeats: Repeats, record: _Record) -> None:
        self._repeats, self._tracer, self._start = repeats, repeats.tracer, record.start
        self._paths: list[tuple[str, int]] = [("", 0)]  # patterns, and the path that stands in the place of `{}`
        self._places: dict[int, int | None] = {id(record.source): 0}  # sources as numbers of paths; None for others
        self._steps: list[tuple[str, int, Any]] = []
        self._lines: list[str] = []
        self._homes: list[tuple[int, int | None, Any]] = []  # objects: path, path where they came in first, themselves
        self._elsewhere: set[int] = set()  # sources by which objects came in first that are no parts of the object
        self._others: list[tuple[Any, ...]] = []  # what came in that is no part of the object
        self._fixed: list[tuple[Tensor, Any]] = []  # tensors that are the same for every object, with descriptions
        self._calls: list[_Call] = []
        self._slots: dict[int, int] = {}
        for x in record.given.tensors:
            self._slots.setdefault(id(x), len(self._slots))
        heard = [*self._entries(record.start, record.end)]
        for entry in heard:
            self._read(*entry)
        calls = [entry[1] for entry in heard if entry[0] == "call"]
        self._take_fixed(calls)
        self._take(calls)
        self._result = self._template(record.result)
        self._values = self._function()
        values = self._values(record.root)
        if values is None:
            raise _Unfit
        self._objects = [n for n, x in enumerate(values) if not is_plain(x)]
        self._pattern = self._identities(record.given, values)

    # ***** from what was heard *****

    def _entries(self, start: int, end: int) -> Iterator[tuple[Any, ...]]:
        """Events in the call, and earlier ones about the objects that it reads."""
        for entry in self._repeats.heard[start:end]:
            yield entry
            if entry[0] == "wrap":
                source: Source = entry[1]
                first, last = self._repeats.inside.get(id(entry[2]), (self._start, 0))
                own = self._tracer.outside.first_source(entry[2]) is source and self._place(source) is not None
                if own and first < self._start:
                    yield from self._entries(first, last)

    def _place(self, source: Source) -> int | None:
        """The number of the path that leads from the object to a source; None where none does."""
        if id(source) in self._places:
            return self._places[id(source)]
        base = None if source.base is None else self._place(source.base)
        if base is None:
            return None
        if VARIABLE.search(source.pattern) or "s[" in source.pattern:
            raise _Unfit
        self._paths.append((source.pattern, base))
        self._lines.append(f"x{len(self._paths) - 1} = {source.pattern.replace('{}', f'x{base}')}")
        self._places[id(source)] = len(self._paths) - 1
        return len(self._paths) - 1

    def _read(self, kind: str, *what: Any) -> None:
        if kind == "call":
            return
        if kind == "local":
            if what[0] < self._start:
                raise _Unfit
            return
        place = self._place(what[0])
        if kind == "wrap":
            self._read_object(place, *what)
        elif kind == "check":
            if VARIABLE.search(what[1]) or "s[" in what[1]:
                raise _Unfit
            if place is not None and ("check", place, what[1]) not in self._steps:
                self._steps.append(("check", place, what[1]))
                self._lines.append(f"if not ({what[1].replace('{}', f'x{place}')}): return None")
        elif place is not None:
            if kind == "bar":
                raise _Unfit
            self._steps.append((kind, place, None))

    def _read_object(self, place: int | None, source: Source, value: Any, made: Any, description: Any) -> None:
        if place is None:
            self._others.append(("wrap", source, value, made, description))
            return
        first: Source = self._tracer.outside.first_source(value) or source
        home = None if id(first) in self._elsewhere else self._place(first)
        if home is None:
            self._elsewhere.add(id(first))
            self._places[id(first)] = place  # conditions on what came in from elsewhere are on a part of the object
        self._homes.append((place, home, value))
        self._steps.append(("tensor" if description else "same" if home is None else "object", place, description))
        if isinstance(made, Tensor):
            if type(made._spec.numel) is not int:
                raise _Unfit
            self._slots.setdefault(id(made), len(self._slots))

    def _take_fixed(self, calls: Sequence[_Call]) -> None:
        """Number the tensors from outside that calls work on and that are no part of the object."""
        known = self._tracer.outside.tensors
        for call in calls:
            for x, description in zip(_tensors((call.args, call.kwargs)), call.descriptions, strict=True):
                if id(x) in known and id(x) not in self._slots:
                    self._slots[id(x)] = len(self._slots)
                    self._fixed.append((x, description))

    def _take(self, calls: Sequence[_Call]) -> None:
        for call in calls:
            args, kwargs, function = self._template(call.args), self._template(call.kwargs), self._callee(call.function)
            taken = _Call(function, args, kwargs, call.word)
            taken.made = self._outcome(call.made[0], iter(call.made[1]))
            self._calls.append(taken)

    def _callee(self, function: Any) -> Any:
        owner = getattr(function, "__self__", None)
        if isinstance(owner, Tensor):
            return _Bound(self._template(owner), function)
        fixed = owner is None or owner is self._tracer or isinstance(owner, (types.ModuleType, type))
        known = isinstance(function, _FUNCTIONS) or own_module(type(function).__module__) == PACKAGE  # an operator
        if id(function) in self._repeats.made or not known or not fixed:
            raise _Unfit
        return function

    def _template(self, value: Any) -> Any:
        """A value with slots in the place of tensors."""
        kind = type(value)
        if isinstance(value, Tensor):
            if id(value) not in self._slots:
                raise _Unfit
            return _Slot(self._slots[id(value)])
        if kind in (list, tuple):
            return _Parts(kind, [self._template(x) for x in value], ())
        if kind is dict:
            return _Parts(kind, [self._template(x) for x in value.values()], [*value])
        return value

    def _outcome(self, made: Any, descriptions: Iterator[Any]) -> Any:
        """The expected result of a call: tensors of these descriptions (slots for known ones), plain values."""
        if isinstance(made, Tensor):
            description = next(descriptions)
            if id(made) in self._slots:
                return _Slot(self._slots[id(made)])
            self._slots[id(made)] = len(self._slots)
            return _Parts(Tensor, [description], ())
        if type(made) in (list, tuple):
            return _Parts(type(made), [self._outcome(x, descriptions) for x in made], ())
        return _Parts(type(made), [made.__name__], ()) if _is_method(made) else _as_words(made)

    def _function(self) -> Callable[[Any], list[Any] | None]:
        """A function for the values at all paths from an object; it returns None where a condition does not hold."""
        names = ", ".join(f"x{n}" for n in range(len(self._paths)))
        body = "\n".join(f"    {line}" for line in [*self._lines, f"return [{names}]"])
        text = f"def values(x0):\n  try:\n{body}\n  except ERRORS: return None"
        space = {**self._tracer.constants.space, "ERRORS": ERRORS}
        found: Callable[[Any], list[Any] | None] = functions(text, space, "conditions of a repeated call")["values"]
        return found

    def _identities(self, given: _Given, values: Sequence[Any]) -> tuple[int, ...]:
        """Which of the objects that take part are the same one."""
        taking = [*[values[n] for n in self._objects], *given.objects, *[other[2] for other in self._others]]
        first: dict[int, int] = {}
        return tuple([first.setdefault(id(x), n) for n, x in enumerate(taking)])

    # ***** another object *****

    def at(self, root: Any, source: Source, given: _Given) -> Any:
        """The result of the call of another object, ABSENT where it is no repetition."""
        values = self._values(root)
        if values is None or self._identities(given, values) != self._pattern:
            return ABSENT
        sources = [source]
        for pattern, base in self._paths[1:]:
            sources.append(self._tracer.reads.source(pattern, sources[base]))
        if not all(self._comes_alike(values[n], sources, home, first) for n, home, first in self._homes):
            return ABSENT
        if any(_described(x) != description for x, description in self._fixed):
            return ABSENT
        own = self._require(values, sources, given.tensors)
        return ABSENT if own is None else self._run([*own, *[x for x, _ in self._fixed]])

    def _comes_alike(self, value: Any, sources: Sequence[Source], home: int | None, first: Any) -> bool:
        """Whether an object came in, if it did, at the place where the one of the first call did."""
        outside = self._tracer.outside
        known = outside.first_source(value)
        if id(value) in outside.lazies:
            return False
        if home is not None:
            return known is None or known is sources[home]
        return known is not None if isinstance(first, Tensor) else value is first

    def _require(
        self, values: Sequence[Any], sources: Sequence[Source], given: Sequence[Tensor]
    ) -> list[Tensor] | None:
        """Rely on what the call relies on; the tensors that are given and those of the object, each once, or None where
        one is not as it should be.
        """
        tracer, own = self._tracer, {id(x): x for x in given}
        for kind, n, what in self._steps:
            if kind == "check":
                tracer.reads.check(sources[n], what)
            elif kind == "number":
                tracer.outside.numbers[str(sources[n])] = values[n]
                self._repeats.number(sources[n])
            elif kind == "same":
                tracer.outside.wrap(values[n], sources[n])
            elif kind == "object":
                tracer.outside.saw(values[n], sources[n])
                self._repeats.heard.append(("wrap", sources[n], values[n], None, None))
            else:
                made = tracer.outside.wrap(values[n], sources[n])
                if _described(made) != what:
                    return None
                own[id(made)] = made
        self._repeats.heard += self._others
        return list(own.values())

    def _run(self, tensors: list[Tensor]) -> Any:
        word = STATE.word
        try:
            for call in self._calls:
                STATE.word = call.word
                function = call.function
                if type(function) is _Bound:
                    function = function.of(tensors[function.slot.number])
                args, kwargs = _filled(call.args, tensors), _filled(call.kwargs, tensors)
                self._compare(call.made, self._tracer.native(function, *args, **kwargs), tensors)
        except _Unfit:
            raise Break("a call differs from the one that it repeats", kind=DIFFERS) from None
        except (Break, Exception) as error:
            raise Break(f"a call differs from the one that it repeats: {error}", kind=DIFFERS) from None
        finally:
            STATE.word = word
        return _filled(self._result, tensors)

    def _compare(self, expected: Any, made: Any, tensors: list[Tensor]) -> None:
        """Number the tensors that a call gave; _Unfit where it gave something else than it should."""
        kind: Any = type(made)
        if type(expected) is _Slot:
            if made is not tensors[expected.number]:
                raise _Unfit
        elif type(expected) is not _Parts:
            if _as_words(made) != expected:
                raise _Unfit
        elif expected.kind is Tensor:
            if not isinstance(made, Tensor) or _described(made) != expected.items[0]:
                raise _Unfit
            tensors.append(made)
        elif kind is not expected.kind:
            raise _Unfit
        elif kind in (list, tuple):
            for each, x in zip(expected.items, made, strict=True):
                self._compare(each, x, tensors)
        elif made.__name__ != expected.items[0]:
            raise _Unfit


_FUNCTIONS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodDescriptorType, types.WrapperDescriptorType, type,
)  # fmt: skip


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in a value, in order."""
    if isinstance(value, Tensor):
        yield value
    elif type(value) in (list, tuple, dict):
        for x in value.values() if type(value) is dict else value:
            yield from _tensors(x)


def _filled(template: Any, tensors: Sequence[Tensor]) -> Any:
    """A value of a template, with tensors in its slots."""
    if type(template) is _Slot:
        return tensors[template.number]
    if type(template) is not _Parts:
        return template
    items = [_filled(x, tensors) for x in template.items]
    return dict(zip(template.keys, items, strict=True)) if template.kind is dict else template.kind(items)
