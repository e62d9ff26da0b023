"""Buckets of gradients: memory in which many gradients lie one behind the other, reduced by one call."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import rushlight
from rushlight import Tensor

__all__ = ["Bucket", "GradBucket", "assigned"]


def assigned(parameters: Sequence[Tensor], order: Sequence[int], caps: Sequence[int]) -> list[list[int]]:
    """The indices of parameters, in this order, as buckets of one dtype each.  A bucket is full at so many bytes: the
    first one of a dtype at the first of `caps`, and so on; those behind the last have the last one's.
    """
    open_rows: dict[Any, tuple[list[int], int]] = {}
    rows: list[list[int]] = []
    closed: dict[Any, int] = {}  # how many full buckets there are of a dtype
    for index in order:
        parameter = parameters[index]
        key = parameter.dtype
        row, size = open_rows.get(key, ([], 0))
        row.append(index)
        size += parameter.numel() * parameter.element_size()
        if size >= caps[min(closed.get(key, 0), len(caps) - 1)]:
            rows.append(row)
            closed[key] = closed.get(key, 0) + 1
            open_rows.pop(key, None)
        else:
            open_rows[key] = (row, size)
    rows += [row for row, _ in open_rows.values()]
    places = {index: place for place, index in enumerate(order)}
    return sorted(rows, key=lambda row: places[row[0]])


BIG = 1 << 18  # bytes: from here on copying a gradient costs more than a call of its own


class Bucket:
    """The gradients of some parameters: `flat` has their elements, `views` look at it, shaped as the gradients are.

    Big gradients are the last ones.  Where nothing but their mean is wanted they are reduced where they are, the others
    in `flat`: `targets` are what is reduced.
    """

    def __init__(self, number: int, indices: Sequence[int], parameters: Sequence[Tensor]) -> None:
        big = [index for index in indices if parameters[index].numel() * parameters[index].element_size() >= BIG]
        self.number, self.indices = number, [index for index in indices if index not in set(big)] + big
        self.parameters = [parameters[index] for index in self.indices]
        first = self.parameters[0]
        sizes = [parameter.numel() for parameter in self.parameters]
        self.first_big = len(sizes) - len(big)
        self.flat = rushlight.zeros(sum(sizes), dtype=first.dtype, device=first.device)
        self.views = views_of(self.flat, self.parameters)
        self.own = self._parts()
        self.targets = self.own
        self.pending = len(self.indices)
        self.work: Any = None  # of the reduction that runs: anything with `wait`
        self.future: Any = None  # of a hook

    def _parts(self) -> list[Tensor]:
        """The memory of the small gradients, and of each big one."""
        small = sum(parameter.numel() for parameter in self.parameters[: self.first_big])
        ends = [small]
        for parameter in self.parameters[self.first_big :]:
            ends.append(ends[-1] + parameter.numel())
        parts = [self.flat[:small]] if small else []
        return parts + [self.flat[a:b] for a, b in pairwise(ends)]

    def is_in_place(self, place: int) -> bool:
        """Whether a gradient is reduced where it is."""
        number = place - len(self.parameters)
        return place >= self.first_big and self.targets[number] is not self.own[number]

    def reset(self) -> None:
        """Wait for all gradients again."""
        self.pending, self.work, self.future = len(self.indices), None, None

    def replace(self, flat: Tensor) -> None:
        """Take another tensor of this size as the memory."""
        self.flat, self.views = flat, views_of(flat, self.parameters)
        self.own = self.targets = self._parts()


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
    """Argument of a communication hook: a bucket whose gradients are complete on this process."""

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
