"""Small calls of every operator, from which tests are derived.

A call is `Call(*args, **kwargs)` in which a `Draw` stands for a tensor of random numbers.  `samples_of(op)` gives the
calls of one operator; the modules of this folder hold them by family, as tables, apart from the operators because only
tests read them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._ops.table import OPERATORS, Operator
from rushlight._types.dtype import BOOL, FLOAT64, INT64, DType

__all__ = ["Call", "Draw", "give", "samples_of"]


class Draw:
    """A tensor of random numbers: uniform in [low, high) (whole ones for integers), or given ones.

    Floats are spread evenly, each a little off its grid point: no two are equal, and no difference of two is at a
    corner.
    """

    __slots__ = ("dtype", "high", "low", "shape", "values")

    def __init__(
        self,
        *shape: int,
        dtype: DType = FLOAT64,
        low: float = -2.0,
        high: float = 2.0,
        values: Sequence[Any] | None = None,
    ) -> None:
        self.shape, self.dtype, self.low, self.high, self.values = shape, dtype, low, high, values

    def array(self, rng: Any) -> Any:
        """The numbers as a NumPy array (bfloat16 has no such, and is not drawn)."""
        if self.values is not None:
            return np.asarray(self.values, dtype=self.dtype.numpy_name).reshape(self.shape)
        if self.dtype is BOOL:
            return rng.integers(0, 2, self.shape).astype(bool)
        if self.dtype.is_integer:
            return rng.integers(int(self.low), int(self.high), self.shape).astype(self.dtype.numpy_name)
        numbers = self._floats(rng)
        if self.dtype.is_complex:
            numbers = numbers + 1j * self._floats(rng)
        return numbers.astype(self.dtype.numpy_name)

    def _floats(self, rng: Any) -> Any:
        count = 1
        for size in self.shape:
            count *= size
        steps = (np.arange(count) + 0.5 + rng.uniform(-0.3, 0.3, count)) / max(count, 1)
        return (self.low + (self.high - self.low) * rng.permutation(steps)).reshape(self.shape)

    def with_dtype(self, dtype: DType) -> Draw:
        """The same in another dtype."""
        return Draw(*self.shape, dtype=dtype, low=self.low, high=self.high, values=self.values)

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"


class Call:
    """Arguments of one call."""

    __slots__ = ("args", "kwargs")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs

    def __repr__(self) -> str:
        parts = [repr(a) for a in self.args] + [f"{k}={v!r}" for k, v in self.kwargs.items()]
        return f"({', '.join(parts)})"


def index(*shape: int, below: int) -> Draw:
    """Indices into a dim of this size."""
    return Draw(*shape, dtype=INT64, low=0, high=below)


def give(key: str, *calls: Call | Callable[[], Sequence[Call]]) -> None:
    """Attach calls to the operator with this key."""
    OPERATORS[key].samples = calls[0] if len(calls) == 1 and callable(calls[0]) else lambda: calls


def samples_of(op: Operator) -> list[Call]:
    """The calls of one operator; empty if there are none."""
    return list(op.samples()) if op.samples is not None else []
