"""Forks beside other threads: a lock that a thread of the parent holds at that moment would stay locked in the child
for ever.

A fork waits until no other thread imports a module that operations need, and until our locks are free.  It holds
nothing while it waits: an importing thread may need one of the locks, and vice versa.
"""

from __future__ import annotations

import _imp
import importlib
import os
import sys
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeVar
from weakref import WeakSet

__all__ = ["LOADED_LATE", "free_after_fork"]

L = TypeVar("L")
_LOCKS: WeakSet[Any] = WeakSet()
_RELEASE: list[Callable[[], Any]] = []  # releases what was taken before the fork, last first

# Top names of the modules that operations load on first use.  Imports of other modules are not waited for: one may last
# for ever.
LOADED_LATE = {"rushlight", "torch", *sys.stdlib_module_names}
_PATIENCE = 1.0  # seconds after which a module lock without an owner is ignored

_bootstrap: Any = importlib._bootstrap


def free_after_fork(lock: L) -> L:
    """Make forks wait for a lock, so that in the child it is free and what it guards is consistent; returns the lock."""
    _LOCKS.add(lock)
    return lock


def _take() -> Any:
    """Take the import lock, so that no thread begins an import, and all of ours; returns the lock in the way, with
    nothing taken, or None."""
    _imp.acquire_lock()
    _RELEASE.append(_imp.release_lock)
    hindrance = _other_import()
    for lock in list(_LOCKS) if hindrance is None else ():
        if not lock.acquire(False):
            hindrance = lock
            break
        _RELEASE.append(lock.release)
    if hindrance is not None:
        _release()
    return hindrance


def _release() -> None:
    """Release what this thread took, the import lock last: from then on another thread that forks fills the list."""
    taken = _RELEASE[::-1]
    _RELEASE.clear()
    for release in taken:
        release()


def _other_import() -> Any:
    """The lock of a module that another thread imports, or is about to."""
    me = get_ident()
    for name, reference in list(_bootstrap._module_locks.items()):
        lock = reference()
        if lock is not None and lock.owner != me and name.partition(".")[0] in LOADED_LATE and lock not in _IGNORED:
            return lock
    return None


_IGNORED: WeakSet[Any] = WeakSet()


def _wait_for(lock: Any, since: float) -> None:
    """Let other threads run until a lock may be free."""
    try:
        lock.acquire()
        lock.release()
    except _bootstrap._DeadlockError:  # its owner waits for an import of this very thread
        _IGNORED.add(lock)
        return
    if getattr(lock, "owner", lock) is None and time.monotonic() - since > _PATIENCE:
        _IGNORED.add(lock)
    time.sleep(1e-4)  # it is about to be taken, or to be removed


def _before() -> None:
    since = time.monotonic()
    while (hindrance := _take()) is not None:
        _wait_for(hindrance, since)
    _IGNORED.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_release, after_in_child=_release)
