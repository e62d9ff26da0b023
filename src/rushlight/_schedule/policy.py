"""The target of a schedule: its vectors and caches, and its library."""

from __future__ import annotations

from typing import NamedTuple

from rushlight._schedule.library import Library

__all__ = ["PIECE", "Target"]

PIECE = 1 << 15  # elements (weighted by their cost) that make a piece worth handing to another thread


class Target(NamedTuple):
    """What the schedule and the code generator must know of a machine."""

    vector_bytes: int
    l2_bytes: int
    l3_bytes: int
    fma: bool
    library: Library
