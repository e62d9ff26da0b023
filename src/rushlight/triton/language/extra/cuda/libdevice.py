"""As `triton.language.extra.libdevice`."""

from __future__ import annotations

from typing import Any

from .. import libdevice

__all__: list[str] = []  # the names come by `__getattr__`


def __getattr__(name: str) -> Any:
    return getattr(libdevice, name)


def __dir__() -> list[str]:
    return dir(libdevice)
