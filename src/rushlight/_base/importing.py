"""Imports that signal handlers do not see half done.

Operations load modules on first use, so a handler may run at any moment of an import.  An operation in it would find
incomplete modules, and an interrupt would leave some behind that cannot be loaded again (NumPy, for one).  So the main
thread, which runs handlers, records signals while it loads one of our modules or dependencies, and delivers them when
the import is over.
"""

from __future__ import annotations

import _signal  # `signal` takes milliseconds more
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any

from rushlight._base.errors import PACKAGE

__all__ = ["import_whole", "install"]

_bootstrap: Any = importlib._bootstrap
_NOTED: list[list[int]] = []  # of the main thread's current region: the signals that came


def _hand_on(numbers: list[int]) -> None:
    for number in numbers:
        _signal.raise_signal(number)


@contextmanager
def _undisturbed(after: Callable[[list[int]], Any]) -> Iterator[None]:
    """A region in which the main thread records signals instead of handling them; `after` receives them."""
    if _NOTED or threading.get_ident() != threading.main_thread().ident:
        yield
        return
    noted: list[int] = []

    def note(number: int, _: Any) -> None:
        noted.append(number)

    handlers = {number: handler for number in _signal.valid_signals() if callable(handler := _signal.getsignal(number))}
    _NOTED.append(noted)
    try:
        try:
            for number in handlers:
                _signal.signal(number, note)
        except ValueError:  # a subinterpreter has no signals
            handlers = {}
        yield
    finally:
        for number, handler in handlers.items():
            if _signal.getsignal(number) is note:
                _signal.signal(number, handler)
        _NOTED.clear()
        if noted:
            after(list(dict.fromkeys(noted)))


def _is_loading(module: ModuleType) -> bool:
    return getattr(module.__spec__, "_initializing", False)


def import_whole(name: str) -> ModuleType:
    """Import a module; signals that come meanwhile are handled afterwards."""
    module = sys.modules.get(name)
    if module is not None and not _is_loading(module):
        return module
    with _undisturbed(_hand_on):
        return importlib.import_module(name)


class _Source(SourceFileLoader):
    """Runs a module's code without signal handlers.

    An exception here would make the import system drop the module, so handlers are called after it has released the
    module's lock.
    """

    _there: ModuleType | None = None  # loaded by a handler that ran after this import began

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module = sys.modules.get(spec.name)
        self._there = None if module is None or _is_loading(module) else module
        return self._there

    def exec_module(self, module: ModuleType) -> None:
        if module is self._there:
            return
        with _undisturbed(self._hand_on_later):
            super().exec_module(module)

    def _hand_on_later(self, numbers: list[int]) -> None:
        main = threading.get_ident()

        def wait() -> None:
            _bootstrap._lock_unlock_module(self.name)
            for number in numbers:
                _signal.pthread_kill(main, number)

        threading.Thread(target=wait, daemon=True).start()


def _finder(path: str) -> FileFinder:
    """The finder of a folder of this package."""
    if not (path + os.sep).startswith(PACKAGE):
        raise ImportError("not a folder of rushlight", path=path)
    return FileFinder(path, (_Source, SOURCE_SUFFIXES))


def install() -> None:
    """Load modules of this package this way from now on."""
    sys.path_hooks.insert(0, _finder)
    for path in [path for path in sys.path_importer_cache if (path + os.sep).startswith(PACKAGE)]:
        del sys.path_importer_cache[path]
