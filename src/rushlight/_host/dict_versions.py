"""Versions of dicts: a word for each that changes when the dict does.

CPython 3.11 keeps one in the dict itself.  Later versions tell whoever watches a dict that it is about to change; there
the word is a count that `guard_native.dict_changed` raises.

CPython 3.13 keeps the values of an object's attributes in the object, and the object's dict shows them there.  It tells
nobody when such an attribute is assigned (`tests/capture/bytecode/test_dict_versions.py` asks it), so these dicts are first
given a table of their own, as they get for a key that is no text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import TYPE_CHECKING, Any

from rushlight._base.lazy import LazyModule
from rushlight._host.guard_native import DICT_PLACES, first_place_of
from rushlight._host.runtime import runtime
from rushlight._native.mutable_objects import (
    DICT_VALUES,
    DICT_VERSION,
    DICTS_HAVE_VERSIONS,
    VALUES_IN_OBJECTS,
    class_dict,
    word_at,
)

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = LazyModule("ctypes")

__all__ = ["dicts_are_watched", "version_place"]


def version_place(held: dict[Any, Any]) -> int | None:
    """The address of a word that changes when a dict does, from now on; also at times when it does not.

    None where there is no such word: for the dict of an object without attributes.
    """
    if DICTS_HAVE_VERSIONS:
        return id(held) + DICT_VERSION
    if VALUES_IN_OBJECTS and word_at(id(held) + DICT_VALUES):
        if not held:
            return None
        runtime().own_table(held, dict.popitem)
    watch, number, places = _watching()
    if watch(number, held) < 0:
        raise RuntimeError("CPython does not watch this dict")
    return places + 8 * first_place_of(id(held), DICT_PLACES - 1)


@cache
def dicts_are_watched() -> bool:
    """Whether `version_place` can be relied on: CPython has a place for a watcher, and tells it of changes to dicts that are
    looked at here.
    """
    if DICTS_HAVE_VERSIONS:
        return True
    try:
        _watching()
    except (AttributeError, RuntimeError):  # all places are taken
        return False
    return _dicts_tell() and _attributes_tell()


@cache
def _watching() -> tuple[Any, int, int]:
    """`PyDict_Watch`, the number of our watcher, and the address of the counts."""
    interface = ctypes.pythonapi
    add = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(("PyDict_AddWatcher", interface))
    watch = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.py_object)(("PyDict_Watch", interface))
    # Pages that nobody has touched take no room.  A child of a fork counts for itself.
    memory = mmap(-1, 8 * DICT_PLACES, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    places = ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))  # dicts are watched as long as there are some
    runtime().plain("use_dict_places", ctypes.c_void_p)(places)
    return watch, add(runtime().address("dict_changed")), places


# ***** looks at living dicts *****

_CHANGES: tuple[Callable[[Any], Any], ...] = (
    lambda held: held.__setitem__("a", 3), lambda held: held.__delitem__("a"), lambda held: held.setdefault("c", 3),
    lambda held: held.update(d=3), lambda held: held.pop("a"), dict.popitem, dict.clear, lambda held: held.__ior__({"a": 3}),
)  # fmt: skip


def _tells(held: dict[Any, Any], change: Callable[[Any], Any], changed: Any) -> bool:
    """Whether the word of a dict changes when `changed` does."""
    place = version_place(held)
    before = None if place is None else word_at(place)
    del held
    change(changed)
    return place is not None and word_at(place) != before


def _dicts_tell() -> bool:
    for change in _CHANGES:
        held = {"a": 1, "b": 2}
        if not _tells(held, change, held):
            return False
    held = [{"a": 1}]
    return _tells(held[0], list.clear, held)  # it dies


def _attributes_tell() -> bool:
    """Whether assignments to attributes of an instance and of a class change the words of their dicts."""

    class Plain:
        first = 1

    one = Plain()
    one.first = 2

    def assign(value: Any) -> None:
        value.first = object()

    # often enough for the interpreter to specialise the assignment
    if not all(_tells(one.__dict__, assign, one) for _ in range(20)):
        return False
    return _tells(one.__dict__, lambda one: delattr(one, "first"), one) and _tells(
        class_dict(Plain) or {}, assign, Plain
    )
