"""Where rows are registered: a name, what we claim, what the mathematics needs, and a function from the module to what is timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Call = Callable[[], Any]
Make = Callable[[Any], Call]


@dataclass(frozen=True)
class Row:
    """`claim`: how many times PyTorch's speed we claim. `flops` and `moved` (bytes): what any implementation must do, each input read
    and each output written once; both 0 where that says nothing; `dtype` that of the arithmetic."""

    claim: float
    make: Make
    flops: float = 0.0
    moved: float = 0.0
    dtype: str = "float32"


ROWS: dict[str, Row] = {}


def row(
    name: str, claim: float = 1.0, flops: float = 0.0, moved: float = 0.0, dtype: str = "float32"
) -> Callable[[Make], Make]:
    """Register the decorated function, which takes the module (`torch` or `rushlight`) and returns the call to time."""

    def add(make: Make) -> Make:
        ROWS[name] = Row(claim, make, flops, moved, dtype)
        return make

    return add
