"""Native iterators from outside whose next items can be seen without a step.

A trace reads ahead of such an iterator: the item of each `next` has a source, and is guarded like any other value.  The
steps are taken when the segment runs, each as often as the program asked, the last one, which finds the end, too.
`zip`, `map` and `filter` have no state but that of the iterators below them, so the trace works with one of its own over
stand-ins of those.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rushlight._capture.trace.guards.sources import Source
from rushlight._capture.trace.reports.events import Break

if TYPE_CHECKING:
    from rushlight._capture.trace.outside import Outside
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["Ahead", "Numbered", "ahead", "given", "indexed", "is_followed", "stepped", "stepping"]

END: Any = type("End", (), {"__slots__": ()})()

_BACKWARDS: list[Any] = [reversed([]), reversed(())]
_FORWARDS: list[Any] = [iter([]), iter(())]
_REVERSED = tuple(map(type, _BACKWARDS))
_INDEXED = (*map(type, _FORWARDS), *_REVERSED)  # a sequence and a place in it
_OTHERS: list[Any] = [
    range(0), range(1 << 70), {}, {}.values(), {}.items(), reversed({}), set(), "", "\u0100", b"", bytearray(),
]  # fmt: skip
_COPIED = tuple(type(iter(x)) for x in _OTHERS)
_OVER_OTHERS = (zip, map, filter)
_FOLLOWED = frozenset((*_INDEXED, *_COPIED, *_OVER_OTHERS, enumerate, itertools.count))


def is_followed(value: Any) -> bool:
    """Whether `given` may have something for this object."""
    return type(value) in _FOLLOWED


def ahead(iterator: Any, steps: int) -> Any:
    """The item that an iterator gives after some steps, without taking one; END where there is none."""
    kind = type(iterator)
    if kind in _INDEXED:
        _, (sequence,), *state = iterator.__reduce__()
        place = (state[0] if state else 0) + (-steps if kind in _REVERSED else steps)
        return sequence[place] if 0 <= place < len(sequence) else END
    if kind is itertools.count:
        first, step = count_of(iterator)
        return first + steps * step
    return next(itertools.islice(copy.copy(iterator), steps, None), END)


def count_of(counter: Any) -> tuple[int, int]:
    """The next number and the step of an `itertools.count` of ints; ValueError for other numbers.  It is asked for its
    printed form, as from 3.14 on it cannot be copied.
    """
    first, _, step = repr(counter)[len("count(") : -1].partition(", ")
    return int(first), int(step or 1)


def stepped(iterator: Iterator[Any], steps: int) -> None:
    """Take steps, also behind the end and beside the error of a strict `zip` below, which the program has seen."""
    for _ in range(steps):
        with contextlib.suppress(ValueError):
            next(iterator, None)


class Stand:
    """An iterator from outside in a trace; `steps` were asked of it, `through` of them by one that takes its own."""

    __slots__ = ("outside", "real", "source", "steps", "through")

    def __init__(self, outside: Outside, real: Any, source: Source) -> None:
        self.outside, self.real, self.source = outside, real, source
        self.steps = self.through = 0

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.real)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        raise Break(f"reads '{name}' of a {type(self.real).__name__} from outside")


class Ahead(Stand):
    """One whose items are read ahead."""

    __slots__ = ()

    def __next__(self) -> Any:
        self.check_unchanged()
        item = ahead(self.real, self.steps)
        reads = self.outside.reads
        source = reads.source(f"{reads.constants.name(ahead)}({{}}, {self.steps})", self.source)
        self.steps += 1
        if item is END:
            reads.check(source, f"{{}} is {reads.constants.name(END)}")
            raise StopIteration
        return self.outside.wrap(item, source)

    def check_unchanged(self) -> None:
        """Break where the trace has changed what the iterator goes over: the change is not made yet."""
        for held in gc.get_referents(self.real):
            lazy, copied = self.outside.lazies.get(id(held)), self.outside.values.get(id(held))
            shadow = self.outside.shadows.get(id(copied))
            if (lazy is not None and lazy.appended) or (shadow is not None and shadow.changed()):
                raise Break(f"advances a {type(self.real).__name__} over what the same trace changed")


class Numbered(Stand):
    """An `enumerate`: its steps are those of `inner`, which it takes along, and a number."""

    __slots__ = ("inner", "parts")

    def __init__(self, outside: Outside, real: Any, source: Source, inner: Any, parts: list[Stand]) -> None:
        super().__init__(outside, real, source)
        self.inner, self.parts = inner, parts

    def __next__(self) -> Any:
        place = self.outside.reads.source("{}.__reduce__()[1][1]", self.source)
        number = self.outside.wrap(self.real.__reduce__()[1][1], place) + self.steps
        self.steps += 1
        before = [part.steps for part in self.parts]
        try:
            return number, step_below(self.inner)
        finally:
            for part, steps in zip(self.parts, before, strict=True):
                part.through += part.steps - steps


def step_below(iterator: Iterator[Any]) -> Any:
    """The next item of an iterator that another one of the trace goes over; its errors are the program's."""
    return next(iterator)


def given(outside: Outside, followed: Callable[[Any], Any], value: Any, source: Source) -> Any:
    """The trace's iterator in the place of one from outside; None where one below it cannot be followed.  `followed`
    gives a function of the program as one that native code may call.
    """
    kind, reads = type(value), outside.reads
    if kind is itertools.count:
        return Ahead(outside, value, source) if _counts_ints(value) else None
    if kind not in _OVER_OTHERS and kind is not enumerate:
        return Ahead(outside, value, source)
    args = list(value.__reduce__()[1])
    function = args.pop(0) if kind in (map, filter) else None
    below = _below(outside, args[:1] if kind is enumerate else args, source, kind in (map, filter))
    if below is None:
        return None
    if kind is enumerate:
        parts = parts_of(below[0])
        if _calls(below[0]) or any(type(part) is Numbered for part in parts):
            return None  # it cannot take its step alone
        return Numbered(outside, value, source, below[0], parts)
    if kind is zip:
        strict = len(value.__reduce__()) > 2
        reads.check(source, f"len({{}}.__reduce__()) == {2 + strict} and len({{}}.__reduce__()[1]) == {len(args)}")
        return zip(*below, strict=strict)
    reads.check(source, f"len({{}}.__reduce__()[1]) == {len(args) + 1}")
    wrapped = outside.wrap(function, reads.source("{}.__reduce__()[1][0]", source))
    return kind(followed(bool if wrapped is None else wrapped), *below)


def _counts_ints(counter: Any) -> bool:
    try:
        count_of(counter)
    except ValueError:
        return False
    return True


def _below(outside: Outside, iterators: list[Any], source: Source, shifted: bool) -> list[Any] | None:
    """The trace's iterators for those that another one holds, which stand in what it is made of."""
    if not all(map(is_followed, iterators)):
        return None
    reads = outside.reads
    found = [
        outside.wrap(each, reads.source(f"{{}}.__reduce__()[1][{k}]", source))
        for k, each in enumerate(iterators, shifted)
    ]
    return None if any(type(each) not in _STANDS for each in found) else found


def parts_of(iterator: Any) -> list[Stand]:
    """The iterators from outside that one of the trace goes over, itself among them."""
    if type(iterator) in (Ahead, Numbered):
        return [iterator]
    found: list[Stand] = []
    for each in iterator.__reduce__()[1]:
        if type(each) in _STANDS:
            found += [part for part in parts_of(each) if all(part is not x for x in found)]
    return found


_STANDS = (Ahead, Numbered, *_OVER_OTHERS)


def _calls(iterator: Any) -> bool:
    """Whether a step of an iterator of the trace calls a function: none may be called once more."""
    if type(iterator) in (map, filter):
        return True
    return type(iterator) is zip and any(_calls(each) for each in iterator.__reduce__()[1])


def stepping(tracer: Tracer, iterator: Any) -> Iterator[Any]:
    """The items of an iterator written in Python."""
    while True:
        try:
            item = tracer.advance(iterator)
        except StopIteration:
            return
        yield item


def indexed(tracer: Tracer, obj: Any) -> Iterator[Any]:
    """The old protocol of iteration: items 0, 1, ... until IndexError."""
    number = 0
    while True:
        try:
            item = tracer.load_item(obj, number)
            item = tracer.finished(item)
        except IndexError:
            return
        yield item
        number += 1
