"""XNNPACK: not here.  `enabled` is False, and cannot be set."""

from __future__ import annotations

from typing import NoReturn

from rushlight.backends.pages import make_page

__all__: list[str] = []

enabled: bool


class _Fixed:
    """A setting that is read alone."""

    def get(self) -> bool:
        return False

    def set(self, value: object) -> NoReturn:
        raise RuntimeError("Assignment not supported")


make_page(__name__, enabled=_Fixed())
