"""Buckets of gradients: memory in which many gradients lie one behind the other, reduced by one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import Tensor

__all__ = ["Bucket", "GradBucket", "assigned"]


def assigned(parameters: Sequence[Tensor], order: Sequence[int], first: int, cap: int) -> list[list[int]]:
    """The indices of parameters, in this order, as buckets of at most `cap` bytes and one dtype each; the first bucket to
    be complete has at most `first` bytes, so that the reduction begins early.
    """
    open_rows: dict[Any, tuple[list[int], int]] = {}
    rows: list[list[int]] = []
    limits: dict[Any, int] = {}
    for index in order:
        parameter = parameters[index]
        key = parameter.dtype
        row, size = open_rows.get(key, ([], 0))
        row.append(index)
        size += parameter.numel() * parameter.element_size()
        if size >= limits.get(key, first):
            rows.append(row)
            limits[key] = cap
            open_rows.pop(key, None)
        else:
            open_rows[key] = (row, size)
    rows += [row for row, _ in open_rows.values()]
    places = {index: place for place, index in enumerate(order)}
    return sorted(rows, key=lambda row: places[row[0]])


class Bucket:
    """The gradients of some parameters: `flat` has their elements, `views` look at it, shaped as the gradients are."""

    def __init__(self, number: int, indices: Sequence[int], parameters: Sequence[Tensor]) -> None:
        self.number, self.indices = number, list(indices)
        self.parameters = [parameters[index] for index in indices]
        first = self.parameters[0]
        sizes = [parameter.numel() for parameter in self.parameters]
        self.flat = rushlight.zeros(sum(sizes), dtype=first.dtype, device=first.device)
        self.views = views_of(self.flat, self.parameters)
        self.pending = len(self.indices)
        self.work: Any = None  # of the reduction that runs: anything with `wait`
        self.future: Any = None  # of a hook

    def reset(self) -> None:
        """Wait for all gradients again."""
        self.pending, self.work, self.future = len(self.indices), None, None

    def replace(self, flat: Tensor) -> None:
        """Take another tensor of this size as the memory."""
        self.flat, self.views = flat, views_of(flat, self.parameters)


def views_of(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Views of consecutive elements with the shapes of parameters, and with their strides where these leave no gaps."""
    views, start = [], 0
    for parameter in parameters:
        count = parameter.numel()
        if parameter.is_contiguous() or not parameter.is_non_overlapping_and_dense():
            views.append(flat[start : start + count].view(parameter.shape))
        else:
            views.append(flat.as_strided(parameter.shape, parameter.stride(), start))
        start += count
    return views


class GradBucket:
    """What a communication hook gets: a bucket whose gradients are complete on this process."""

    def __init__(self, bucket: Bucket, last: bool) -> None:
        self._bucket, self._last = bucket, last

    def index(self) -> int:
        """The number of the bucket: 0 is reduced first."""
        return self._bucket.number

    def buffer(self) -> Tensor:
        """All gradients of the bucket, as a tensor with one dim."""
        return self._bucket.flat

    def gradients(self) -> list[Tensor]:
        """The gradients, as views of the buffer."""
        return self._bucket.views

    def parameters(self) -> list[Tensor]:
        """The parameters that they belong to."""
        return self._bucket.parameters

    def is_last(self) -> bool:
        """Whether this is the last bucket of the backward call."""
        return self._last

    def set_buffer(self, tensor: Tensor) -> None:
        """Take another tensor as the buffer."""
        self._bucket.replace(tensor)
