"""Boxes of tensors: which part of one lies in another."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rushlight import Size
from rushlight.distributed.checkpoint.metadata import ChunkStorageMetadata

__all__ = ["Overlap", "check_boxes", "overlap", "overlaps"]


@dataclass(frozen=True)
class Overlap:
    """A box that two boxes share: where it begins in each of them, and its shape."""

    here: tuple[int, ...]
    there: tuple[int, ...]
    lengths: tuple[int, ...]


def overlap(here: ChunkStorageMetadata, there: ChunkStorageMetadata) -> Overlap | None:
    """Intersection of two boxes of one tensor; None for an empty one.

    >>> from rushlight import Size
    >>> first, second = (ChunkStorageMetadata(Size([k]), Size([4])) for k in (0, 3))
    >>> overlap(first, second)
    Overlap(here=(3,), there=(0,), lengths=(1,))
    """
    starts = [max(a, b) for a, b in zip(here.offsets, there.offsets, strict=True)]
    ends = [min(a + n, b + m) for a, n, b, m in zip(here.offsets, here.sizes, there.offsets, there.sizes, strict=True)]
    lengths = tuple(end - start for start, end in zip(starts, ends, strict=True))
    if any(n <= 0 for n in lengths):
        return None
    return Overlap(
        tuple(s - o for s, o in zip(starts, here.offsets, strict=True)),
        tuple(s - o for s, o in zip(starts, there.offsets, strict=True)),
        lengths,
    )


def overlaps(
    wanted: Sequence[ChunkStorageMetadata], saved: Sequence[ChunkStorageMetadata]
) -> Iterator[tuple[int, int, Overlap]]:
    """The number of each wanted box, that of each saved box which shares something with it, and what."""
    if not saved:
        return
    ndim = len(saved[0].offsets)
    full = [k for k, box in enumerate(saved) if box.sizes.numel()]
    # Look along the dim that is cut most: of boxes that are sorted along it few can share anything with one.
    dim = max(range(ndim), key=lambda d: len({box.offsets[d] for box in saved}), default=None)
    order = full if dim is None else sorted(full, key=lambda k: saved[k].offsets[dim])
    begins = [0 if dim is None else saved[k].offsets[dim] for k in order]
    widest = max((0 if dim is None else saved[k].sizes[dim] for k in order), default=0)
    for number, box in enumerate(wanted):
        first, last = 0, len(order)
        if dim is not None:
            first = bisect_left(begins, box.offsets[dim] - widest)
            last = bisect_right(begins, box.offsets[dim] + box.sizes[dim])
        for k in sorted(order[first:last]):
            found = overlap(box, saved[k])
            if found is not None:
                yield number, k, found


def check_boxes(name: str, size: Size, boxes: Sequence[ChunkStorageMetadata], whole: bool) -> Iterator[str]:
    """Errors in the boxes of a tensor: outside of it, over each other, and, with `whole`, not all of it."""
    if not size:
        return
    filled = 0
    for box in boxes:
        if any(o < 0 or n < 0 or o + n > s for o, n, s in zip(box.offsets, box.sizes, size, strict=True)):
            yield f"key:{name} has out of bounds chunk: tensor-size:{size} chunk: {box}"
        filled += box.sizes.numel()
    for number, other, _ in overlaps(boxes, boxes):
        if number < other:
            yield f"key:{name} has overlapping chunks: {boxes[number]} {boxes[other]}"
    if whole and filled != size.numel():
        yield f"key:{name} invalid fill tensor-volume: {size.numel()} chunks-volume: {filled}"
