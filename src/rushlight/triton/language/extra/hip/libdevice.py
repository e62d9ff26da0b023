"""As `triton.language.extra.libdevice`."""

from __future__ import annotations

from typing import Any

from .. import libdevice

__all__ = libdevice.__all__


def __getattr__(name: str) -> Any:
    return getattr(libdevice, name)
