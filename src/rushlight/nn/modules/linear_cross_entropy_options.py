"""`LinearCrossEntropyOptions`: how `linear_cross_entropy` divides its batch."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import rushlight

__all__ = ["LinearCrossEntropyOptions"]

_POLICIES = ("auto", "accurate", "balanced", "compact")
_METHOD = "aspect_ratio"


def _factor(method: str) -> int | None:
    """N of "aspect_ratio:N" (1 without a number), None for what is no method."""
    name, colon, number = method.partition(":")
    if name != _METHOD or (colon and not (number.isdigit() and int(number) > 0)):
        return None
    return int(number) if colon else 1


@dataclasses.dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """Options of the chunked form of `nn.functional.linear_cross_entropy`, which never holds the logits of the whole
    batch.

    - `allow_retain_graph`: let a loss that is reduced be differentiated more than once, at the cost of one more copy of
      the gradients.
    - `batch_chunk_size`: rows of the batch to take at a time; all of them by default.
    - `chunking_method`: "aspect_ratio" chooses it so that the logits of a chunk take as much memory as the input,
      "aspect_ratio:N" an N-th of that; "auto" is one of these by dtype; None leaves `batch_chunk_size` to decide.
    - `acc_policy`: "accurate", "balanced" or "compact": which intermediates have `acc_dtype`; "auto" is one of these by
      dtype.
    - `acc_dtype`: dtype of sums; by default float32 for half types under "auto", else the input's.

    ValueError for values that are none of these.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: Literal["accurate", "balanced", "compact", "auto"] = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        if self.chunking_method not in (None, "auto") and _factor(str(self.chunking_method)) is None:
            raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        if self.batch_chunk_size is not None and not (
            isinstance(self.batch_chunk_size, int) and self.batch_chunk_size > 0
        ):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {self.batch_chunk_size!r}")
        floats = (rushlight.float16, rushlight.bfloat16, rushlight.float32, rushlight.float64)
        if self.acc_dtype is not None and self.acc_dtype not in floats:
            raise ValueError(f"acc_dtype must be None or one of {', '.join(map(str, floats))}, got {self.acc_dtype!r}")

    def _adjust(
        self, num_batches: int, in_features: int, num_classes: int, dtype: Any, device: Any = None
    ) -> LinearCrossEntropyOptions:
        """The same with nothing left open, for a call with these sizes and this dtype."""
        half = device is not None and dtype in (rushlight.float16, rushlight.bfloat16)
        method, size = self.chunking_method, self.batch_chunk_size
        if method == "auto":
            method = None if size is not None else _METHOD if half else f"{_METHOD}:2"
        rows = num_batches if size is None else min(size, num_batches)
        if method is not None:
            rows = _rows_of_method(method, num_batches, in_features, num_classes)
            if size is not None and size != rows:
                raise ValueError(
                    f"batch_chunk_size (={size}) and chunking_method ('{method}') give different chunk sizes ({size} vs {rows}); pass only one."
                )
        policy = self.acc_policy if self.acc_policy != "auto" else "accurate" if half else "compact"
        widened = rushlight.float32 if half and self.acc_policy == "auto" else dtype
        return LinearCrossEntropyOptions(
            self.allow_retain_graph, max(1, rows), method, policy, self.acc_dtype or widened
        )


def _rows_of_method(method: str, num_batches: int, in_features: int, num_classes: int) -> int:
    """Rows of a chunk whose logits are as large as the input, rounded up to a power of two, over N."""
    wider = -(-num_classes // in_features)
    target = -(-num_batches // wider)
    return min((1 << (target - 1).bit_length()) // (_factor(method) or 1), num_batches)
