"""Arrays for the tests of the primitives.  Every call gives the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rushlight._base.lazy import numpy as np

__all__ = ["floats", "integers", "pointwise_samples"]

Samples = Iterator[tuple[list[Any], dict[str, Any]]]
SHAPES = ((3, 5), (), (0, 2), (17,))


def floats(shape: Sequence[int], seed: int = 0, low: float = -2.0, high: float = 2.0, dtype: str = "float64") -> Any:
    """Numbers spread over low..high, all different; complex dtypes have both parts from it."""
    rng = np.random.default_rng(seed)
    if dtype.startswith("complex"):
        return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(dtype)
    return np.asarray(rng.uniform(low, high, shape), dtype=dtype)


def integers(shape: Sequence[int], seed: int = 0, low: int = -9, high: int = 10, dtype: str = "int64") -> Any:
    """Whole numbers in low..high-1; for bool, both values."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape), dtype=bool)
    if dtype.startswith("uint"):
        low = max(low, 0)
    return np.asarray(rng.integers(low, high, shape), dtype=dtype)


def any_dtype(shape: Sequence[int], dtype: str, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Any:
    """`floats` or `integers`, by dtype; integers are not negative if `low` is not."""
    if dtype.startswith(("float", "complex")):
        return floats(shape, seed, low, high, dtype)
    return integers(shape, seed, dtype=dtype) if low < 0 else integers(shape, seed, math.ceil(low), 10, dtype)


def pointwise_samples(
    dtypes: Sequence[str],
    arity: int = 1,
    low: float = -2.0,
    high: float = 2.0,
    second: tuple[float, float] | None = None,
) -> Callable[[], Samples]:
    """Operands of one shape: a few shapes for each dtype.  `second` is the range of the second operand."""

    def samples() -> Samples:
        for dtype in dtypes:
            for shape in SHAPES:
                ranges = [(low, high), second or (low, high), *[(low, high)] * (arity - 2)]
                yield (
                    [any_dtype(shape, dtype, seed=i + 1, low=ranges[i][0], high=ranges[i][1]) for i in range(arity)],
                    {},
                )

    return samples
