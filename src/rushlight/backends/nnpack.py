"""NNPACK: not here.  Its one setting can be set and read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rushlight._interface.base import trace_marks
from rushlight.backends.pages import Setting, boolean, make_page

__all__ = ["flags", "is_available", "set_flags"]

enabled: bool

_enabled = Setting(True, boolean("enabled_NNPACK"))


def is_available() -> bool:
    """False."""
    return False


@trace_marks.changes_later_calls
def set_flags(_enabled: Any) -> tuple[bool]:
    """Change the setting; what it was before, in a tuple."""
    setting = globals()["_enabled"]
    before = (setting.get(),)
    setting.set(_enabled)
    return before


@contextmanager
def flags(enabled: bool = False) -> Iterator[None]:
    """`set_flags`, and back afterwards."""
    before = set_flags(enabled)
    try:
        yield
    finally:
        set_flags(before[0])


make_page(__name__, enabled=_enabled)
