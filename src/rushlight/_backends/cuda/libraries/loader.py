"""Where NVIDIA's libraries lie, and how their functions are called: what the bindings of all of them share.

    WHEEL = Wheel("cuBLASLt", "libcublasLt.so", "cublas", "cuda", LIBRARY)
    library = CLibrary("cuBLASLt", ctypes.CDLL(WHEEL.path()), {"cublasLtCreate": (ctypes.c_void_p,)})
    library.call("cublasLtCreate", ctypes.byref(handle))

A function is looked up by its first call, so that an old library serves for whatever it has.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from rushlight._base.errors import MissingExtraError
from rushlight._base.knobs import Knob

__all__ = ["CLibrary", "LibraryError", "Wheel"]


class LibraryError(RuntimeError):
    """A call of a library failed; `status` is what it returned."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Wheel(NamedTuple):
    """A library of NVIDIA's wheels: how its file begins, the folder of wheels for CUDA 12, the extra that installs it, and the
    libraries of other wheels (files and folders) that it looks for by itself.
    """

    title: str
    file: str
    folder: str
    extra: str
    knob: Knob[str]  # the path of another one, or `none`
    others: tuple[tuple[str, str], ...] = ()

    def path(self) -> str | None:
        """The file of the knob, or of a wheel; None where there is none."""
        told = self.knob.get()
        if told:
            return None if told == "none" else told
        return _in_wheels(self.file, self.folder)

    def open(self) -> Any:
        """The library, opened; MissingExtraError where there is none, LibraryError for a file that is none."""
        path = self.path()
        if path is None:
            raise MissingExtraError(self.title, self.extra)
        if not self.knob.get():
            self._open_others()
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            raise LibraryError(f"{path} is no {self.title}: {error}") from None

    def _open_others(self) -> None:
        """Open what the library asks the system's loader for by name, which looks in no wheel, but knows what is open."""
        for file, folder in self.others:
            path = _in_wheels(file, folder)
            if path is not None:
                with suppress(OSError):  # the library says what it misses
                    ctypes.CDLL(path)


def _in_wheels(file: str, folder: str) -> str | None:
    """The newest file that begins so, in a wheel for CUDA 12 or later."""
    for root in sys.path:
        for place in (folder, "cu*"):
            found = sorted(glob.glob(os.path.join(root or ".", "nvidia", place, "lib", f"{file}.*")))
            if found:
                return found[-1]
    return None


class CLibrary:
    """A library's functions by their signatures; each returns a status, which is 0 where all is well."""

    def __init__(self, title: str, library: Any, signatures: Mapping[str, Sequence[Any]]) -> None:
        self.title, self.library, self.signatures = title, library, signatures
        self._found: dict[str, Any] = {}
        self._handles: dict[int, ctypes.c_void_p] = {}

    def handle_of(self, device: int, create: str) -> ctypes.c_void_p:
        """The library's handle for a device, which is the current one of this thread where it is made by `create`."""
        found = self._handles.get(device)
        if found is None:
            found = self._handles[device] = self.made(create)
        return found

    def function(self, name: str) -> Any:
        """A function with its arguments' types; LibraryError where the library has none of this name."""
        found = self._found.get(name)
        if found is None:
            try:
                found = getattr(self.library, name)
            except AttributeError:
                path = getattr(self.library, "_name", "the library")
                raise LibraryError(f"{path} is too old, or no {self.title}: it has no {name}") from None
            found.argtypes = self.signatures[name]
            self._found[name] = found
        return found

    def address(self, name: str) -> int | None:
        """The address of a function, for native code; None where the library is no library of C."""
        try:
            return ctypes.cast(self.function(name), ctypes.c_void_p).value
        except ctypes.ArgumentError:
            return None

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; LibraryError for a status other than 0."""
        status = self.function(name)(*arguments)
        if status:
            raise LibraryError(f"{name} failed with status {status}{self.reason(status)}", status)

    def reason(self, status: int) -> str:
        """Text that follows the number of a status in errors."""
        return ""

    def made(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """The handle that a call makes through its first argument."""
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle

    def size(self, name: str, *arguments: Any, kind: Any = ctypes.c_int) -> int:
        """The number that a call tells through its last argument."""
        told = kind()
        self.call(name, *arguments, ctypes.byref(told))
        return int(told.value)
