"""Ranges for Intel's VTune: not part of this build, as in builds of PyTorch without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]


def is_available() -> bool:
    """False."""
    return False


def _absent(*args: Any) -> NoReturn:
    raise RuntimeError(
        "ITT functions not installed. rushlight is not built with ITT; profiler.record_function names ranges in its own profiles."
    )


def range_push(msg: str) -> int:
    """RuntimeError: there is no ITT."""
    _absent(msg)


def range_pop() -> int:
    """RuntimeError: there is no ITT."""
    _absent()


def mark(msg: str) -> None:
    """RuntimeError: there is no ITT."""
    _absent(msg)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """RuntimeError: there is no ITT."""
    range_push(msg.format(*args, **kwargs))
    yield
