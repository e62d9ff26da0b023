"""Where CPython keeps what changes in an object: the dict of an instance, what a cell or a function holds, and in 3.11
the version of a dict.

`supported()` looks at living objects, whether these words lie where they are expected and change when the object does.
Later versions of CPython keep no version of a dict, or keep it for themselves; there dicts are watched instead (see
`_host.dict_versions`).
"""

from __future__ import annotations

import gc
import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from rushlight._base.lazy import LazyModule
from rushlight._native.objects import slot_offset

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = LazyModule("ctypes")

__all__ = [
    "BOUND_PLACES", "CELL_CONTENTS", "CLASS_ORDER", "CONTAINER_SIZE", "DICT_KEYS", "DICT_VALUES", "DICT_VERSION", "FUNCTION_PLACES", "KEYS_KIND", "LIST_ITEMS", "ORDERED_STATE", "SET_SIZE", "class_dict", "class_name_place",
    "DICTS_HAVE_VERSIONS", "VALUES_IN_OBJECTS", "dict_place", "member_offset", "own_attributes", "supported", "word_at",
]  # fmt: skip

TRIED = ((3, 11), (3, 12), (3, 13), (3, 14))
"""Versions of CPython on which the looks below and the tests of guards ran."""
DICTS_HAVE_VERSIONS = sys.version_info < (3, 12)
VALUES_IN_OBJECTS = sys.version_info >= (3, 13)
"""Whether the dict of an object may show values that lie in the object: the word DICT_VALUES is then not 0."""

# Bytes from the beginning of an object.
CONTAINER_SIZE, SET_SIZE, LIST_ITEMS = 16, 24, 24
# ORDERED_STATE: a count that grows with each change of an OrderedDict's order
DICT_VERSION, DICT_KEYS, DICT_VALUES, ORDERED_STATE = 24, 32, 40, 88
KEYS_KIND = 10  # a byte of a dict's keys: 0 where they are not all texts
CELL_CONTENTS = 16
CLASS_ORDER = 344  # the `__mro__` of a class
FUNCTION_PLACES = {"__globals__": 16, "__code__": 48, "__defaults__": 56, "__kwdefaults__": 64, "__closure__": 72}
BOUND_PLACES: dict[type, dict[str, int]] = {
    types.MethodType: {"__func__": 16, "__self__": 24}, types.BuiltinFunctionType: {"__self__": 24},
}  # fmt: skip
"""Objects that a bound method holds as long as it lives."""
_MANAGED_DICT, _MANAGED_PLACE, _TYPE_DICT = 1 << 4, -24, 264
# The values of attributes while there is no dict; the second byte before them tells how many were set
_VALUES_PLACE = -32
_VALUES_BEHIND = sys.version_info < (3, 12)
_OBJECT_MEMBERS = (6, 16)  # T_OBJECT, T_OBJECT_EX


def word_at(address: int) -> int:
    """The 64-bit word at an address."""
    value: int = ctypes.c_uint64.from_address(address).value
    return value


def class_dict(kind: type) -> dict[str, Any] | None:
    """The dict behind the `__dict__` of a class; None where it is one of another type, as those of ctypes."""
    return next((x for x in gc.get_referents(kind.__dict__) if type(x) is dict), None)


@cache
def class_name_place() -> int | None:
    """Where the name of a class lies that Python made, in bytes from the class; None where that is not known."""

    class Named:
        pass

    size: int = getattr(type, "__basicsize__")  # noqa: B009 - which type checkers take for a property

    def found() -> list[int]:
        return [at for at in range(0, size, 8) if word_at(id(Named) + at) == id(Named.__name__)]

    places = found()
    Named.__name__ = "".join(("Other", "Name"))
    return places[0] if len(places) == 1 and found() == places else None


def dict_place(value: Any) -> int | None:
    """Where the address of the dict of an object (or of a class) lies, in bytes from the object; None where that is not
    known.
    """
    if isinstance(value, type):
        return _TYPE_DICT  # not that of a type whose attributes cannot change: from 3.12 on it lies elsewhere
    kind = type(value)
    if kind.__flags__ & _MANAGED_DICT:
        return _MANAGED_PLACE
    return kind.__dictoffset__ if kind.__dictoffset__ > 0 else None


def own_attributes(value: Any) -> dict[str, Any]:
    """The dict of an object, not to be changed.  One without attributes gets none: looks at its attributes take longer
    where it has one.
    """
    if _VALUES_BEHIND and type(value).__flags__ & _MANAGED_DICT and supported():
        values = word_at(id(value) + _VALUES_PLACE)
        none_set = not values or not word_at(values - 8) >> 48 & 0xFF
        if none_set and not word_at(id(value) + _MANAGED_PLACE):
            return {}
    found: dict[str, Any] = value.__dict__
    return found


def member_offset(kind: type, raw: Any) -> int | None:
    """Where the object of a slot lies that the descriptor `raw` of a class is for; None for members that are no
    objects.
    """
    owner, name = raw.__objclass__, raw.__name__
    if owner.__dict__.get(name) is not raw or not issubclass(kind, owner):
        return None
    if word_at(word_at(id(raw) + 40) + 8) & 0xFFFFFFFF not in _OBJECT_MEMBERS:
        return None
    return slot_offset(owner, name)


@cache
def supported() -> bool:
    """Whether this interpreter's objects have these words, and change them as they should."""
    if sys.version_info[:2] not in TRIED or sys.implementation.name != "cpython":
        return False
    return all(look() for look in _LOOKS)


# ***** looks at living objects *****


def _dicts_lie() -> bool:
    held = {"a": object(), "b": object()}
    return word_at(id(held) + CONTAINER_SIZE) == 2 and _keys_kind(held) != 0 and _keys_kind({1: 2}) == 0


def _versions_lie() -> bool:
    if not DICTS_HAVE_VERSIONS:
        return True
    held: dict[Any, Any] = {"a": object(), "b": object()}
    other = dict(held)
    seen = [word_at(id(held) + DICT_VERSION), word_at(id(other) + DICT_VERSION)]

    def changes(change: Callable[[], Any], expected: bool = True) -> bool:
        change()
        seen.append(word_at(id(held) + DICT_VERSION))
        return (seen[-1] not in seen[:-1]) is expected

    new = object()
    return (
        seen[0] != seen[1]
        and changes(lambda: held["a"], expected=False)
        and changes(lambda: held.get("z"), expected=False)
        and changes(lambda: held.__setitem__("a", new))
        and changes(lambda: held.__delitem__("a"))
        and changes(lambda: held.setdefault("c", new))
        and changes(lambda: held.update(d=new))
        and changes(lambda: held.pop("d"))
        and changes(held.popitem)
        and changes(held.clear)
        and changes(lambda: held.update(other))
        and _instances_count()
    )


def _instances_count() -> bool:
    """Whether versions tell of attributes."""

    class Plain:
        first = 1

    one = Plain()
    one.first = 2
    held = one.__dict__
    version = word_at(id(held) + DICT_VERSION)
    for k in range(20):  # often enough for the interpreter to specialise the assignment
        one.first = k + 1000
        now = word_at(id(held) + DICT_VERSION)
        if now == version:
            return False
        version = now
    made = class_dict(Plain)
    before = word_at(id(made) + DICT_VERSION)
    Plain.first = 3
    return word_at(id(made) + DICT_VERSION) != before


def _keys_kind(value: dict[Any, Any]) -> int:
    return word_at(word_at(id(value) + DICT_KEYS) + 8) >> 16 & 0xFF


def _orders_lie() -> bool:
    held: OrderedDict[str, int] = OrderedDict(a=1, b=2)
    before = word_at(id(held) + ORDERED_STATE)
    held.move_to_end("a")
    between = word_at(id(held) + ORDERED_STATE)
    held.move_to_end("a", last=False)
    return len({before, between, word_at(id(held) + ORDERED_STATE)}) == 3


def _instances_lie() -> bool:
    class Plain:
        first = 1

    one = Plain()
    one.first = 2
    held = one.__dict__
    return (
        word_at(id(one) + _MANAGED_PLACE) == id(held)
        and bool(Plain.__flags__ & _MANAGED_DICT)
        and word_at(id(Plain) + _TYPE_DICT) == id(class_dict(Plain))
    )


def _values_lie() -> bool:
    class Plain:
        pass

    one, other, third = Plain(), Plain(), Plain()
    other.first = third.first = 1  # type: ignore[attr-defined]
    del third.first  # type: ignore[attr-defined]

    def counted(value: Any) -> int:
        return word_at(word_at(id(value) + _VALUES_PLACE) - 8) >> 48 & 0xFF

    return not _VALUES_BEHIND or (counted(one), counted(other)) == (0, 1) and counted(third) in (0, 1)


def _functions_lie() -> bool:
    kept = object()

    def look(a: int = 1, *, b: int = 2) -> Any:
        return kept

    cell = (look.__closure__ or ())[0]
    places = all(word_at(id(look) + place) == id(getattr(look, name)) for name, place in FUNCTION_PLACES.items())
    return places and isinstance(cell, types.CellType) and word_at(id(cell) + CELL_CONTENTS) == id(kept)


def _methods_lie() -> bool:
    held = [1]
    bound: tuple[Any, ...] = (_Bound().method, held.append)
    return all(
        word_at(id(each) + place) == id(getattr(each, name))
        for each in bound
        for name, place in BOUND_PLACES[type(each)].items()
    )


class _Bound:
    def method(self) -> None:
        pass


def _orders_of_classes_lie() -> bool:
    return all(word_at(id(kind) + CLASS_ORDER) == id(kind.__mro__) for kind in (_Bound, bool))


def _containers_lie() -> bool:
    a, b = object(), object()
    listed, chosen = [a, b], {a, b}
    return (
        word_at(id(listed) + CONTAINER_SIZE) == 2
        and word_at(word_at(id(listed) + LIST_ITEMS) + 8) == id(b)
        and word_at(id(chosen) + SET_SIZE) == 2
    )


_LOOKS = (
    _dicts_lie,
    _versions_lie,
    _orders_lie,
    _instances_lie,
    _values_lie,
    _functions_lie,
    _methods_lie,
    _orders_of_classes_lie,
    _containers_lie,
)
