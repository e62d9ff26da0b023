"""opt_einsum, a package that finds good orders for `einsum`: not used; orders are rushlight's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from rushlight._interface.base import trace_marks
from rushlight.backends.pages import Setting, make_page

__all__ = ["flags", "get_opt_einsum", "is_available", "set_flags"]

enabled: bool
strategy: str | None

_STRATEGIES = ("auto", "greedy", "optimal")


def is_available() -> bool:
    """False: `einsum` does not ask it."""
    return False


def get_opt_einsum() -> Any:
    """None."""
    return None


def _installed() -> bool:
    """Whether the package is there: programs may then say that it should be used, as PyTorch lets them; the order of
    products is ours all the same.
    """
    return find_spec("opt_einsum") is not None


def _check_enabled(value: Any) -> None:
    if value and not _installed():
        raise ValueError(
            f"opt_einsum is not available, so setting `enabled` to {value} will not reap the benefits of calculating an optimal path for einsum. "
            "rushlight chooses the order of products itself."
        )


def _check_strategy(value: Any) -> None:
    if _installed():
        return
    if value is not None and value not in _STRATEGIES:
        raise ValueError(f"`strategy` must be one of the following: {list(_STRATEGIES)} but is {value}")
    if value is not None:
        raise ValueError(
            f"opt_einsum is not available, so setting `strategy` to {value} will not be meaningful. rushlight chooses the order of products itself."
        )


_SETTINGS: dict[str, Any] = {"enabled": Setting(False, _check_enabled), "strategy": Setting(None, _check_strategy)}


@trace_marks.changes_later_calls
def set_flags(_enabled: bool | None = None, _strategy: str | None = None) -> tuple[bool, str | None]:
    """Change those that are given; both as they were before.  ValueError for turning it on: the package is not used."""
    before = (_SETTINGS["enabled"].get(), _SETTINGS["strategy"].get())
    if _enabled is not None:
        _SETTINGS["enabled"].set(_enabled)
    if _strategy is not None:
        _SETTINGS["strategy"].set(_strategy)
    return before


@contextmanager
def flags(enabled: bool | None = None, strategy: str | None = None) -> Iterator[None]:
    """`set_flags`, and back afterwards."""
    before = set_flags(enabled, strategy)
    try:
        yield
    finally:
        set_flags(*before)


make_page(__name__, **_SETTINGS)
