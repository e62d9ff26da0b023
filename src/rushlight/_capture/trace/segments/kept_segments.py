"""Segments that earlier processes traced: a second process finds them by the code of its function, and traces nothing.

A record holds conditions and statements as text, recipes of the objects that they speak of (`kept_objects`), and the
program (`recording.kept_compiled`).  It is used where all code that was followed is what it was, every module of the
program has the file that it had, and the conditions hold: these decide, as they do for a segment that was traced here.
The text may only speak of what a segment speaks of (`_checked`), and runs without Python's builtins.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import re
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from rushlight._backends.registry import backend_of
from rushlight._base.collector import uncollected
from rushlight._base.digest import digest, hasher
from rushlight._base.log import log
from rushlight._capture.recording.running.compiled import CompiledProgram
from rushlight._capture.recording.running.kept_compiled import packed_compiled, unpacked_compiled
from rushlight._capture.trace.guards.asking import Conditions
from rushlight._capture.trace.guards.sources import Constants, Reads, Source
from rushlight._capture.trace.segments.kept_objects import (
    PACKAGE,
    ElsewhereError,
    Finder,
    Namer,
    Way,
    content,
    is_result_type,
    way_of,
)
from rushlight._capture.trace.segments.segment import Ending, Segment, Written, called_with_state
from rushlight._capture.trace.settings import HOOKS, CompileSettings
from rushlight._engine.dispatch.kept.plan_store import Waiting, keep, keep_later, part_key, store
from rushlight._graph.packing import RecordError, UnpackableError
from rushlight._native.sources import files_below, sources_digest, sources_state
from rushlight._types.device import CPU

__all__ = ["COUNTS", "Shelf"]

COUNTS = {"kept": 0, "found": 0}  # segments that this process kept, and those that it found
MOST = 8  # segments of one function
_MOST_KEPT = 128  # segments that one process keeps: closures that are made without end are not worth it
_NAME = re.compile(r"\bc\d+\b")
_QUOTED = re.compile(r"'[^'\\\n]*(?:\\.[^'\\\n]*)*'|\"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\"")
_WORD = re.compile(r"(\.?)\b([A-Za-z_]\w*)(\(?)")
_CALLED = re.compile(r"(?<![\w.])(c\d+)\(")
_NO_DIGITS = dict.fromkeys(map(ord, "0123456789"))
_KEYWORDS = frozenset(
    (
        "def",
        "return",
        "if",
        "not",
        "and",
        "or",
        "is",
        "in",
        "for",
        "None",
        "True",
        "False",
        "try",
        "except",
        "pass",
        "del",
    )
)
_BUILTINS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (type, len, id, repr, dict, list, tuple, set, frozenset, object, slice, int, float, str, bytes, bool, complex, hasattr)
}  # fmt: skip
_METHODS = frozenset((
    "get", "keys", "values", "items", "append", "clear", "extend", "update", "pop", "add", "_make", "__new__", "__setattr__", "__delattr__", "__setitem__", "setdefault",
))  # fmt: skip
_OWN = frozenset(
    (
        "run",
        "slow",
        "s",
        "t",
        "g",
        "o",
        "table",
        "guarded",
        "passed",
        "settle",
        "program",
        "checked",
        "stopped",
        "w",
        "MISS",
        "ERRORS",
    )
)
_CONDITION = re.compile(
    r"(type\()?\{\}(\))?((?:\.\w+|\[-?\d+\]|\['[^'\\]*'\])*)(?:\.__dict__\.get\('([^'\\]*)'\))? is (c\d+)\Z"
)


_Made = TypeVar("_Made")


class _Unkept(Exception):
    """Why a segment is not kept."""


class Shelf(Waiting):
    """The kept segments of one function; `again` runs it as it is.  `found` are those that were made and did not fit a
    call.  Records of segments that were traced here are made when the process ends, or nobody holds the function.
    """

    def __init__(self, target: types.FunctionType, settings: CompileSettings, again: Callable[[Any], Any]) -> None:
        self.target, self.again = target, again
        self.found: list[Segment] = []
        self._records: list[Record] = []  # those that were read and did not fit a call yet
        self._traced: list[tuple[Segment, Any]] = []  # segments to keep, and the store where they belong
        self._next = 0
        self._free: list[int] = []  # places of records that are of no use
        self._said = None if settings.backend is not None or not _has_file(target) else _said(target, settings)
        self._state = _own_state() if self._said is not None else ""

    @functools.cached_property
    def _key(self) -> bytes:
        """All that is known of a segment before it is read."""
        h = hasher(b"segment")
        sources = sources_digest(_own_files(), self._state).hex()
        h.update("\0".join([*(self._said or ()), sources]).encode("utf-8", "surrogatepass"))
        return h.digest()

    def segments(self, state: Sequence[Any]) -> Iterator[Segment]:
        """Segments that fit a state, those that are read for it included.

        Of a record that does not fit, the conditions are read and nothing else.
        """
        yield from list(self.found)
        for record in itertools.chain(list(self._records), self._read(state)):
            values = record.conditions(state)
            if values is None:
                continue
            self._records.remove(record)
            made = self._tried(record.number, record.whole)
            if made is not None:
                COUNTS["found"] += 1
                self.found.append(made)
                with record.conditions.answered(state, values):
                    yield made

    def _read(self, state: Sequence[Any]) -> Iterator[Record]:
        """Records that were not read yet."""
        kept = store() if self._said is not None else None
        if kept is None or kept.empty:  # the digest of our sources takes 50 ms where nobody has it yet
            return
        while self._next < MOST:
            body = kept.get(part_key(self._key, self._next))
            if body is None:
                return
            number, self._next = self._next, self._next + 1
            record = self._tried(number, functools.partial(Record, number, body, self.target, self.again, state))
            if record is not None:
                self._records.append(record)
                yield record

    def _tried(self, number: int, make: Callable[[], _Made]) -> _Made | None:
        """Read a record with `make`; None where it is unusable."""
        try:
            with uncollected():
                return make()
        except (RecordError, NotImplementedError) as error:
            log("cache", f"a segment of {self.target.__qualname__} is left aside: {error}")
            if not isinstance(error, ElsewhereError):
                self._free.append(number)
            return None

    def take(self, segment: Segment) -> None:
        """A segment is in use."""
        if segment in self.found:
            self.found.remove(segment)

    def put(self, segment: Segment) -> None:
        """Keep a segment that was traced here: its record is made later, so that the call which traced it need not
        wait.
        """
        fit = self._said is not None and segment.finished and not segment.unkept and len(self._traced) < MOST
        kept = store() if fit else None
        if kept is not None:
            self._traced.append((segment, kept))
            keep_later(self)

    def settle(self) -> None:
        """Make the records of what was put."""
        while self._traced:
            self._keep(*self._traced.pop(0))

    def forget(self) -> None:
        """Leave what was put to another process."""
        self._traced.clear()

    def _keep(self, segment: Segment, kept: Any) -> None:
        if COUNTS["kept"] >= _MOST_KEPT:
            return
        try:
            if self._state != sources_state(_own_files()):
                raise _Unkept("files of the package were changed since")
            body = _packed(segment, self.target)
        except Exception as error:  # that a segment is not kept must not be an error of the program
            segment.unkept = (
                f"{error}" if isinstance(error, (UnpackableError, _Unkept)) else f"{type(error).__name__}: {error}"
            )
            log("cache", f"a segment of {self.target.__qualname__} is not kept: {error}")
            return
        COUNTS["kept"] += 1
        if self._free:
            place = self._free.pop(0)
        else:
            place, self._next = self._next % MOST, self._next + 1
        keep(part_key(self._key, place), lambda: body, kept)


# ***** keys *****


def _has_file(target: types.FunctionType) -> bool:
    return os.path.isfile(target.__code__.co_filename)


def _said(target: types.FunctionType, settings: CompileSettings) -> list[str]:
    """Dependencies of a segment besides our sources."""
    options = sorted((name, repr(value)) for name, value in settings.options.items())
    return [
        target.__module__ or "", target.__qualname__, content(target), f"{settings.dynamic} {options}", HOOKS.settings_text(),
        backend_of(CPU).choices,
    ]  # fmt: skip


@functools.cache
def _own_files() -> tuple[str, ...]:
    """The package's public pages, which traces follow too; the store knows the others."""
    place = os.path.dirname(sys.modules[PACKAGE].__file__ or "")
    names: list[str] = []
    for name in sorted(os.listdir(place)):
        if name.endswith(".py"):
            names.append(name)
        elif name[0] != "_" and os.path.isdir(os.path.join(place, name)):
            names += files_below(name)
    return tuple(names)


@functools.cache
def _own_state() -> str:
    """File-system state of our files when a function was first compiled."""
    return sources_state(_own_files())


# ***** the files of the program *****


def _begun() -> float:
    """When this process began, to two ticks of the clock."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        second = os.sysconf("SC_CLK_TCK")
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + (ticks + 2) / second
    except (OSError, ValueError, AttributeError, IndexError):
        return _IMPORTED


_IMPORTED = time.time()
_FILES: dict[str, str] = {}


def _modules() -> dict[str, str]:
    """The modules of the program with the digests of their files; those of ours and of the language are left out.

    `_Unkept` where a file is younger than the process: what was loaded may have been another one.
    """
    found, begun = {}, _begun()
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        root = name.partition(".")[0]
        if type(path) is not str or root == PACKAGE or root in sys.stdlib_module_names and name != "__main__":
            continue
        if not os.path.isabs(path):  # an object that only looks like a module, as PyTorch's namespaces of operators
            continue
        said = _file(path)
        if said is None or os.stat(path).st_mtime > begun:
            raise _Unkept(f"{path} was changed after it was loaded")
        found[name] = said
    return found


def _file(path: str) -> str | None:
    """A digest of a file's content or, for installed packages, of its file-system state."""
    try:
        info = os.stat(path)
        mark = f"{path} {info.st_size} {info.st_mtime_ns}"
        if "site-packages" in path or not path.endswith(".py"):
            return digest(mark.encode()).hex()[:24]
        known = _FILES.get(mark)
        if known is None:
            with open(path, "rb") as file:
                known = _FILES[mark] = digest(file.read()).hex()[:24]
        return known
    except OSError:
        return None


def _check_modules(said: Any) -> None:
    if type(said) is not dict:
        raise RecordError("no modules")
    for name, mark in said.items():
        module = sys.modules.get(name)  # of one that is not loaded nothing can be found either
        if module is not None and _file(getattr(module, "__file__", None) or "") != mark:
            raise ElsewhereError(f"the module {name} is another one")


# ***** writing *****


def _packed(segment: Segment, target: types.FunctionType) -> bytes:
    """The record of a segment."""
    if segment.unkept or not segment.finished:
        raise _Unkept(segment.unkept or "it ends before the function")
    libraries = sys.modules.get(f"{PACKAGE}.library.libraries")
    if libraries is not None and libraries.Library.made:
        raise _Unkept("the program may have operators of its own")
    program, reads = segment.program, segment.guard.reads
    if program is not None and type(program) is not CompiledProgram:
        raise _Unkept("a program of another backend")
    text, space = segment.text, segment.guard.space
    used = sorted(set(_NAME.findall(text)), key=lambda name: int(name[1:]))
    asked = set(re.findall(r"\bis (?:not )?(c\d+)\b", text))
    recipes = Namer(space, target, _ways(reads), asked, HOOKS.again).run(used)
    sources: dict[int, int] = {}
    rows: list[list[Any]] = []
    entries = [[kind, _packed_source(source, sources, rows), condition] for kind, source, condition in reads.entries]
    head: dict[str, Any] = {
        "modules": _modules(), "recipes": [[name, recipe] for name, recipe in recipes.items()], "text": segment.body, "sources": rows,
        "entries": entries, "wanted": segment.guard.wanted, "inputs": segment.inputs, "reason": segment.reason,
        "numbers": [[place, type(value).__name__, repr(value)] for place, value in segment.numbers.items()],
        "program": None if program is None else packed_compiled(program), "calls": None, "plain": segment.plain,
        "most_bytes": segment.most_bytes,
    }  # fmt: skip
    _checked(segment.body, {name: space[name] for name in used}, head["entries"], list(segment.numbers))
    if segment.only_calls is not None:
        head["calls"] = segment.only_calls.result
    if program is not None:
        program.forget_text()
    return json.dumps(head, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _packed_source(source: Source, known: dict[int, int], rows: list[list[Any]]) -> int:
    found = known.get(id(source))
    if found is None:
        base = -1 if source.base is None else _packed_source(source.base, known, rows)
        found = known[id(source)] = len(rows)
        rows.append([source.pattern, base, source.variable])
    return found


def _ways(reads: Reads) -> list[tuple[str, Way, bool]]:
    """The ways to objects of which conditions say what they are."""
    found = []
    for kind, source, condition in reads.entries:
        if kind != "check" or " is c" not in condition:
            continue
        at = str(source)
        for part in condition.split(" and "):
            match = _CONDITION.match(part)
            if match is None or bool(match[1]) is not bool(match[2]) or (match[1] and match[3]):
                continue
            steps = match[3] + ("" if match[4] is None else f".__dict__['{match[4]}']")
            way = way_of(f"{at}{steps}")
            if way is not None:
                found.append((match[5], way, bool(match[1])))
    return found


def _checked(text: str, space: dict[str, Any], entries: Sequence[Any], places: Sequence[str]) -> None:
    """RecordError where a text speaks of something that a segment does not speak of, or calls what it does not call."""
    whole = "\n".join([text, *[row[2] for row in entries], *places])
    # Lines that differ in numbers alone are checked once.
    shapes = _QUOTED.sub("''", "\n".join(set(whole.replace("{}", "v").translate(_NO_DIGITS).split("\n"))))
    for word in set(_CALLED.findall(_QUOTED.sub("''", whole))) if "c(" in shapes else ():
        if word not in space or not _may_call(space[word]):
            raise RecordError(f"a segment that calls {word}")
    for dot, word, call in set(_WORD.findall(shapes)):
        if dot:
            fine = not call or word in _METHODS
        elif call:
            fine = word in _BUILTINS or word in _OWN or word in _KEYWORDS or word == "c"
        else:
            fine = word in _KEYWORDS or word in _OWN or word in _BUILTINS or word in ("c", "v", "r")
        if not fine:
            raise RecordError(f"a segment that speaks of {word}")


def _may_call(value: Any) -> bool:
    """Whether a segment may call an object: our own functions, and classes of containers."""
    module = getattr(value, "__module__", None) or getattr(getattr(value, "__objclass__", None), "__module__", "")
    if isinstance(value, (types.WrapperDescriptorType, types.MethodDescriptorType)):
        return value.__objclass__ in (dict, list, tuple, set)
    if type(value) is functools.partial:
        return getattr(value.func, "__func__", None) is HOOKS.again
    if isinstance(value, type):
        return (module in ("builtins", "collections") and value is not type) or is_result_type(value)
    return type(module) is str and module.startswith(f"{PACKAGE}._capture.trace.")


# ***** reading *****


class Record:
    """A segment as it was kept, of which the conditions are read; RecordError where this process has other code.

    `state` is the one of the call that reads it.
    """

    def __init__(
        self, number: int, body: bytes, target: types.FunctionType, again: Callable[[Any], Any], state: Sequence[Any]
    ) -> None:
        self.number, self._target, self._again = number, target, again
        with _refused():
            self._head = head = json.loads(body)
            _check_modules(head["modules"])
            finder = Finder(target, again, state)
            for name, recipe in head["recipes"]:
                finder.find(name, recipe)
            self._space = finder.space
            _checked(head["text"], self._space, head["entries"], [place for place, _, _ in head["numbers"]])
            self._reads = _reads(head, self._space)
            self._wanted = [str(name) for name in head["wanted"]]
            if not all(re.fullmatch(r"v\d+|c\d+|s\[\d+\]", name) for name in self._wanted):
                raise RecordError("a value that has no name")
            self._bare = {**self._space, "__builtins__": dict(_BUILTINS)}
            self.conditions = Conditions(self._reads, self._wanted, self._bare)
            self.conditions.formed()

    def whole(self) -> Segment:
        """The segment, with its program."""
        with _refused():
            program = None if self._head["program"] is None else unpacked_compiled(self._head["program"])
            if program is not None:
                program.compile()
            return self._segment(self._head, program)

    def _segment(self, head: dict[str, Any], program: Any) -> Segment:
        wanted, text, reads = self._wanted, head["text"], self._reads
        given = max([-1, *map(int, re.findall(r"\bg\[(\d+)\]", text))])
        if ("program(" in text) is (program is None) or given >= len(wanted):
            raise RecordError("a text of another program")
        if program is not None and not head["inputs"] == len(program.specs) <= len(wanted):
            raise RecordError("a program of other inputs")
        if type(head["inputs"]) is not int or type(head["reason"]) is not str:
            raise RecordError("no number of inputs, or no reason")
        if head["calls"] is not None and type(head["calls"]) is not str:
            raise RecordError("a result without an expression")
        if type(head["plain"]) is not bool or type(head["most_bytes"]) is not int:
            raise RecordError("no word of whether the function runs as it is")
        written = Written(text, reads, wanted, head["inputs"])
        kinds: dict[str, Callable[[str], Any]] = {"int": int, "float": float}
        written.numbers = {place: kinds[kind](value) for place, kind, value in head["numbers"]}
        written.finished, written.reason, written.unkept = True, head["reason"], "it was kept before"
        if head["calls"] is not None:
            written.only_calls = Ending(head["calls"], None, self._again)
        if head["plain"]:
            written.plain = called_with_state(self._target)
        if program is not None and called_with_state(self._target) is not None:
            written.most_bytes = head["most_bytes"]
        if program is not None and not _fits(program.specs, wanted, reads, self._space):
            raise RecordError("a program of inputs that no condition tells of")
        return written.segment(self._bare, program, checked=self.conditions)


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Whatever is wrong is the record's fault, which may hold anything."""
    try:
        yield
    except RecordError:
        raise
    except Exception as error:
        raise RecordError(f"{type(error).__name__}: {error}") from None


def _reads(head: dict[str, Any], space: dict[str, Any]) -> Reads:
    constants = Constants()
    constants.space, constants.names = space, {id(value): name for name, value in space.items()}
    reads = Reads(constants)
    sources: list[Source] = []
    texts = [text for rows in (head["sources"], head["entries"]) for first, _, last in rows for text in (first, last)]
    if not {str}.issuperset(map(type, texts)):
        raise RecordError("a source or a condition that is no text")
    for pattern, base, variable in head["sources"]:
        if type(base) is not int or not -1 <= base < len(sources):
            raise RecordError("a source of a source that is not there")
        source = Source(pattern, None if base < 0 else sources[base])
        source.variable = variable
        sources.append(source)
    _checked("", space, [["load", 0, s.pattern] for s in sources], ())
    reads.entries = [(kind, sources[number], condition) for kind, number, condition in head["entries"]]
    return reads


_SPEC = re.compile(r"\{\}\._spec is (c\d+)|\{\} is not None and \{\}\._spec is (c\d+)")


def _fits(specs: Sequence[Any], wanted: Sequence[str], reads: Reads, space: dict[str, Any]) -> bool:
    """Whether conditions say of each input of a program that it has its spec."""
    told: dict[str, set[int]] = {}
    for kind, source, condition in reads.entries:
        for found in _SPEC.finditer(condition) if kind == "check" and "._spec is " in condition else ():
            told.setdefault(source.variable, set()).add(id(space.get(found[1] or found[2])))
    for spec, name in zip(specs, wanted, strict=False):
        own = getattr(space.get(name), "_spec", None)
        if own is not spec and id(spec) not in told.get(name, ()):
            return False
    return True
