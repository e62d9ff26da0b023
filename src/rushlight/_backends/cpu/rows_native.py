"""Stretches of memory put one behind the other."""

from __future__ import annotations

from rushlight._native import memcpy, native

__all__ = ["copy_rows"]


@native("void(ptr, ptr, i64, i64)")
def copy_rows(out, places, count, nbytes):
    """Copy from `count` addresses, `nbytes` each, to one place, one behind the other."""
    for k in range(count):
        memcpy(out + k * nbytes, places.ptr[k], nbytes)
