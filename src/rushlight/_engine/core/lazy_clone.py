"""Lazy clones: tensors with storages of their own over memory that they share until one of them is written.

The storages over one block form a group: the one that was cloned first (the source) and those of its clones, which keep
it alive.  All are stamped as older than any function transform (`born` is -1), so native plans that change memory leave
them to Python, and nothing else has to look: until the first lazy clone `HOOKS.lazy_clones` is False.

Whoever is about to write, or hands out an address that may be written to, calls `own` first.  It gives the tensor's
storage memory of its own: all tensors over that storage, views and `.data` included, move along; all others stay.
Memory that arrays, storage objects or other processes see is never shared lazily: it is copied at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

from rushlight._base.forking import free_after_fork
from rushlight._base.lazy import LazyModule
from rushlight._engine.autograd.node import Node
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.memory import MEMORY, copy_storage
from rushlight._engine.core.state import GRAD, INFERENCE, STATE
from rushlight._engine.core.tensor import Tensor, edge_of, make, meta_of

collector: Any = LazyModule("rushlight._base.collector")
gc: Any = LazyModule("gc")

__all__ = ["is_lazy", "lazy_clone", "separate"]

_LOCK = free_after_fork(RLock())
_OLDEST = -1


class _Group:
    """Storages that share one block: the stamp that the source had, and the clones' storages with the stamps that
    theirs get.
    """

    __slots__ = ("born", "clones")

    def __init__(self, born: int) -> None:
        self.born = born
        self.clones: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


_GROUPS: WeakKeyDictionary[Any, _Group] = WeakKeyDictionary()  # by source


class LazyCloneBackward0(Node):
    """The gradient goes through."""

    __slots__ = ()

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        return [grads[0]]


# ***** who holds a storage *****


class _Lone:
    """A place that holds one object, so that its other holders can be counted."""

    __slots__ = ("held",)
    held: Any


def _one() -> int:
    """The reference count of an object that one attribute holds, read through that attribute."""
    lone = _Lone()
    lone.held = object()
    return sys.getrefcount(lone.held)


_NONE = _one() - 1


def _chain(storage: Any) -> Iterator[Any]:
    """A storage, the one that it is a window on, and so on."""
    while type(storage) is MEMORY.Storage:
        yield storage
        storage = storage.owner


def _tensors() -> Iterator[list[Tensor]]:
    """All tensors with memory, in several lists: the youngest first, since most objects of a large program are old.

    A tensor that a collection moves meanwhile may be in two lists.
    """
    kinds = set(_kinds(Tensor))  # `isinstance` would ask each object, and some load what they stand for

    def among(listed: list[Any]) -> list[Tensor]:
        found: list[Any] = [each for each in listed if type(each) in kinds]
        return [each for each in found if type(getattr(each, "_storage", None)) is MEMORY.Storage]

    for generation in range(3):
        yield among(gc.get_objects(generation))
    if gc.get_freeze_count():  # what is frozen is in no generation
        with collector.thawed():
            listed = gc.get_objects()
        yield among(listed)


def _kinds(cls: type) -> Iterator[type]:
    """A class and all its subclasses."""
    yield cls
    below: list[type] = type.__subclasses__(cls)
    for each in below:
        yield from _kinds(each)


def _is_known(x: Tensor) -> bool:
    """Whether a tensor's storage is the pool's memory and only tensors see it: arrays and files change memory
    unnoticed.

    No variable here may hold the storage while its holders are counted.
    """
    held = sys.getrefcount(x._storage) - _NONE
    window = x._storage
    while window.owner is not None:
        if type(window.owner) is not MEMORY.Storage or sys.getrefcount(window.owner) - _NONE != 1:
            return False
        window = window.owner
    return held == 1 or any(len(over) == held for over in _gathered(lambda each: each._storage is x._storage))


def _gathered(belongs: Callable[[Tensor], bool]) -> Iterator[dict[int, Tensor]]:
    """The tensors found so far that belong, after each list of `_tensors`: who knows how many there are may stop."""
    found: dict[int, Tensor] = {}
    for listed in _tensors():
        found.update({id(each): each for each in listed if belongs(each)})
        yield found


# ***** cloning *****


def lazy_clone(input: Tensor) -> Any:
    """A copy that shares memory with its source until either is written; the gradient flows through.

    Memory that others may change (an array's, a file's, other processes') is copied at once.
    """
    if input._storage is None:
        return input.clone()
    with _LOCK:
        storage = _shared(input)
    if storage is None:
        return input.clone()
    HOOKS.lazy_clones = True
    out = make(storage, input._spec, storage.ptr + (input._ptr - input._storage.ptr))
    if STATE.word & INFERENCE:
        meta_of(out).inference = True
    elif STATE.word & GRAD and input._rg:
        node = LazyCloneBackward0()
        node._start([edge_of(input)])
        out._node, out._rg = node, True
    return out


def _shared(x: Tensor) -> Any:
    """Another storage over the memory of a tensor's; None where that memory may be changed unnoticed."""
    source = _source_of(x._storage)
    if source is None:
        if not _is_known(x):
            return None
        source = x._storage
        _GROUPS[source] = _Group(source.born)
        source.born = _OLDEST
    made = MEMORY.from_owner(x._storage.ptr, x._storage.nbytes, source)
    made.born = _OLDEST
    _GROUPS[source].clones[made] = MEMORY.alloc(0).born
    return made


def _source_of(storage: Any) -> Any:
    """The source of the group that a storage, or what it is a window on, belongs to; None for other memory."""
    return next((each for each in _chain(storage) if each in _GROUPS), None)


def is_lazy(x: Tensor) -> bool:
    """Whether a tensor's memory may be shared with lazy clones."""
    return x._storage is not None and x._storage.born < 0 and _source_of(x._storage) is not None


# ***** writing *****


def separate(x: Tensor) -> None:
    """Give a tensor whose storage is stamped as lazy memory of its own, unless nobody else shares it by now."""
    with _LOCK:
        if x._storage.born < 0:  # else another thread was faster
            _separate(x)


def _separate(x: Tensor) -> None:
    group = next((_GROUPS[each] for each in _chain(x._storage) if each in _GROUPS), None)
    if group is None:  # a window on memory that nobody shares any longer
        x._storage.born = next((each.born for each in _chain(x._storage) if each.born >= 0), 0)
        return
    alone, shared, place = _is_alone(x, group), _is_shared(x, group), _Lone()
    place.held = _unit(x, group)
    born = group.clones.pop(place.held, group.born)
    if not shared:
        del _GROUPS[_source_of(place.held)]
        place.held.born = x._storage.born = born
        return
    _move([x] if alone else _over(place, group), place.held, _copied(place.held, born))


def _copied(unit: Any, born: int) -> Any:
    """A copy of a storage, with its version."""
    fresh = copy_storage(unit)
    fresh.stamp, fresh.changed, fresh.born = unit.stamp, unit.changed, born
    return fresh


def _unit(x: Tensor, group: _Group) -> Any:
    """The storage of the group that a tensor's is, or is a window on."""
    return next(each for each in _chain(x._storage) if each in group.clones or each in _GROUPS)


def _is_alone(x: Tensor, group: _Group) -> bool:
    """Whether only this tensor, and clones where it is their source, hold its storage.  No variable here may hold it."""
    held = sys.getrefcount(x._storage) - _NONE
    return held == 1 if x._storage in group.clones else x._storage in _GROUPS and held == 1 + len(group.clones)


def _is_shared(x: Tensor, group: _Group) -> bool:
    """Whether anybody else shares the memory.  The source counts as long as more than its clones hold it."""
    count, unit = len(group.clones), _unit(x, group)
    if unit not in group.clones:
        return count > 0
    return count > 1 or sys.getrefcount(unit.owner) - _NONE > count


def _over(place: _Lone, group: _Group) -> list[Tensor]:
    """The tensors over the storage of a group that `place` holds, or over a window on it."""

    def belongs(tensor: Tensor) -> bool:
        member = next(
            (m for m in _chain(tensor._storage) if m is place.held or m in group.clones or m in _GROUPS), None
        )
        return member is place.held

    found: dict[int, Tensor] = {}
    for found in _gathered(belongs):
        if len(found) == sum(each._storage is place.held for each in found.values()) == _holders(place, group):
            break
    return list(found.values())


def _holders(place: _Lone, group: _Group) -> int:
    """How many hold the storage, besides `place` and the clones of a source.  No variable here may hold it."""
    clones = sum(each.owner is place.held for each in group.clones)
    return sys.getrefcount(place.held) - _NONE - 1 - clones


def _move(holders: Sequence[Tensor], unit: Any, fresh: Any) -> None:
    """Let tensors over a storage, and over windows on it, look at other memory, at the same offsets."""
    shift, windows = fresh.ptr - unit.ptr, {id(unit): fresh}
    for tensor in holders:
        storage: Any = tensor._storage
        new = windows.get(id(storage))
        if new is None:
            new = windows[id(storage)] = MEMORY.from_owner(storage.ptr + shift, storage.nbytes, fresh)
            new.stamp, new.changed = storage.stamp, storage.changed
        place = tensor._ptr + shift
        if tensor._storage is storage:  # no call between here and the second: other threads see both, or none
            tensor._storage = new
            tensor._ptr = place
