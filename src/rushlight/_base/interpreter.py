"""The interpreters that rushlight supports; others are refused at import, instead of a crash in the first call."""

from __future__ import annotations

import sys

__all__ = ["require_supported", "what_is_wrong"]


def what_is_wrong(name: str, system: str, object_bytes: int, largest: int, byteorder: str) -> str | None:
    """The reason why an interpreter is not supported, from its name, its system, the size of a plain object, the
    largest index and the byte order; None if it is.

    The native code reads objects in the layout of CPython with the GIL: a count of 8 bytes, the type, then the rest.
    Without the GIL an object begins with its thread and a lock, and counts that only atomic instructions may change;
    PyPy's objects have another layout altogether.
    """
    if name != "cpython":
        return f"it is made for CPython, and this is {name}"
    if system in ("win32", "cygwin", "emscripten", "wasi"):
        return f"it is made for Linux and macOS, and this is {system} (on Windows, WSL is a Linux)"
    if largest != 2**63 - 1 or byteorder != "little":
        return f"it is made for 64-bit little-endian machines, and this is a {largest.bit_length() + 1}-bit {byteorder}-endian one"
    if object_bytes != 16:
        return "it is made for CPython with the GIL, and this is a free-threaded build, or one that traces references"
    return None


def require_supported() -> None:
    """ImportError if the running interpreter is not supported."""
    wrong = what_is_wrong(sys.implementation.name, sys.platform, object.__basicsize__, sys.maxsize, sys.byteorder)
    if wrong is not None:
        raise ImportError(f"rushlight cannot run on Python {sys.version.split()[0]}: {wrong}")
