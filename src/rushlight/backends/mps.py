"""Apple's GPUs: not here."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["get_core_count", "get_name", "is_available", "is_built", "is_macos13_or_newer", "is_macos_or_newer"]


def is_built() -> bool:
    """False."""
    return False


def is_available() -> bool:
    """False."""
    return False


def _absent(name: str) -> NoReturn:
    raise RuntimeError(f"Cannot execute {name}() without MPS backend.")


def is_macos_or_newer(major: int, minor: int) -> bool:
    """RuntimeError: there is no MPS."""
    _absent("isOnMacOSorNewer")


def is_macos13_or_newer(minor: int = 0) -> bool:
    """RuntimeError: there is no MPS."""
    return is_macos_or_newer(13, minor)


def get_name() -> str:
    """RuntimeError: there is no MPS."""
    _absent("get_name")


def get_core_count() -> int:
    """RuntimeError: there is no MPS."""
    _absent("get_core_count")
