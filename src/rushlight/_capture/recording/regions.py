"""Regions of memory as views of arrays: from shape, strides and offset alone to the primitives that lead there.

An array of a program stands for the elements of a stretch of memory in a `Layout`.  Another region of the same stretch
is read, or written, through view primitives of that array.

    >>> from rushlight._capture.recording.regions import path_to
    >>> path_to((4, 6), (6, 1), 0, (4, 3), (6, 2), 1)               # columns 1, 3 and 5
    [('slice', {'starts': (0, 1), 'stops': (4, 6), 'steps': (1, 2)})]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight._prims import build, prim
from rushlight._prims.memory import replaced
from rushlight._types.dtype import INT64
from rushlight._types.layout import contiguous_strides, extent
from rushlight._types.symbols import hint, is_symbolic

__all__ = [
    "Layout",
    "Path",
    "RegionError",
    "gathered",
    "lies_apart",
    "packed_like",
    "path_to",
    "scattered",
    "rewritten",
    "shown",
]

Step = tuple[str, dict[str, Any]]
Path = list[Step]


class RegionError(RuntimeError):
    """A region that is not a view of an array."""


class Layout(NamedTuple):
    """Where the elements of an array lie: element `index` is at `offset + sum(index * strides)`."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def end(self) -> int:
        """The place behind the last element."""
        return self.offset + (extent(self.shape, self.strides) if 0 not in self.shape else 0)


def path_to(
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int,
    to_shape: Sequence[int],
    to_strides: Sequence[int],
    to_offset: int,
) -> Path:
    """The primitives from an array of the first layout to one of the second, over the same memory.

    RegionError where the second shows places that the first does not, or where its elements overlap so that it is no
    view.
    """
    shape, to_shape = tuple(shape), tuple(to_shape)
    if (shape, tuple(strides), offset) == (to_shape, tuple(to_strides), to_offset):
        return []
    if 0 in to_shape:
        return _empty(shape, to_shape)
    finder = _Finder(_sizes_and_strides(shape, strides))
    try:
        return finder.path(shape, offset, to_shape, tuple(to_strides), to_offset)
    except RegionError:
        return _through_slice(finder, shape, offset, to_shape, tuple(to_strides), to_offset)


def _through_slice(
    finder: _Finder,
    shape: tuple[int, ...],
    offset: int,
    to_shape: tuple[int, ...],
    to_strides: tuple[int, ...],
    to_offset: int,
) -> Path:
    """A path through the stretch of memory in which the region lies: rows of the region need not be rows of the array."""
    if len(finder.axes) != 1 or finder.axes[0].stride != 1:
        raise RegionError("a region across the rows of an array with gaps")
    (count,), start = [finder.axes[0].size], to_offset - offset
    stop = max((s * n for s, n, _ in _sizes_and_strides(to_shape, to_strides) if s), default=1)
    if start < 0 or start + stop > count:
        raise RegionError("a region whose last row is not whole")
    flat = path_to(shape, finder.strides(shape), 0, (count,), (1,), 0)
    part: Path = [("slice", {"starts": (start,), "stops": (start + stop,), "steps": (1,)})]
    inner = _Finder([(1, stop, 0)] if stop > 1 else [])
    return [*flat, *part, *inner.path((stop,), 0, to_shape, to_strides, 0)]


def _empty(shape: tuple[int, ...], to_shape: tuple[int, ...]) -> Path:
    """No element is no element."""
    path: Path = []
    if 0 not in shape:
        ones = (1,) * len(shape)
        path.append(("slice", {"starts": (0,) * len(shape), "stops": (0, *shape[1:]), "steps": ones}))
        if not shape:
            path = [("reshape", {"shape": (1,)}), ("slice", {"starts": (0,), "stops": (0,), "steps": (1,)})]
    path.append(("reshape", {"shape": to_shape}))
    return path


def _sizes_and_strides(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int, int]]:
    """(stride, size, dim) of the dims that step, the farthest first."""
    return sorted(
        [(s, n, d) for d, (n, s) in enumerate(zip(shape, strides, strict=True)) if n > 1], key=lambda t: (-t[0], t[2])
    )


def lies_apart(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether each dim of a region steps over those inside it, so that no two elements are at one place."""
    reach = 1
    for stride, size, _ in reversed(_sizes_and_strides(shape, strides)):
        if stride < reach:
            return False
        reach += stride * (size - 1)
    return True


def packed_like(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides of an array without gaps whose dims are in the order of a region's, whose elements may overlap."""
    found, step = [1] * len(shape), 1
    for d in sorted(range(len(shape)), key=lambda d: (strides[d], -d)):
        found[d], step = step, step * shape[d]
    return tuple(found) if all(s for s, n in zip(strides, shape, strict=True) if n > 1) else contiguous_strides(shape)


class _Axis(NamedTuple):
    """A dim of the given array by memory: `size` steps of `stride`."""

    stride: int
    size: int


class _Finder:
    """Finds a region among the axes of an array, farthest first."""

    __slots__ = ("axes", "order")

    def __init__(self, found: list[tuple[int, int, int]]) -> None:
        self.order = [d for _, _, d in found]
        self.axes: list[_Axis] = []  # dims that go on where the next one ends are one axis
        reach = 1
        for stride, size, _ in reversed(found):
            if stride < reach:
                raise RegionError("an array whose own elements overlap")
            reach = stride * (size - 1) + reach
            if self.axes and self.axes[0].stride * self.axes[0].size == stride:
                self.axes[0] = _Axis(self.axes[0].stride, self.axes[0].size * size)
            else:
                self.axes.insert(0, _Axis(stride, size))

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Strides of the array of one axis, of this shape."""
        found, step = [1] * len(shape), self.axes[0].stride
        for d in reversed(self.order):
            found[d] = step
            step *= shape[d]
        return tuple(found)

    def path(
        self,
        shape: tuple[int, ...],
        offset: int,
        to_shape: tuple[int, ...],
        to_strides: tuple[int, ...],
        to_offset: int,
    ) -> Path:
        starts = to_offset - offset
        if starts < 0:
            raise RegionError(f"a region that begins {hint(-starts)} elements before the array")
        wanted = _sizes_and_strides(to_shape, to_strides)
        repeated = [t for t in wanted if t[0] == 0]
        wanted = [t for t in wanted if t[0] != 0]
        path: Path = []
        cuts = self._cuts_of([(s, n) for s, n, _ in wanted], starts)
        perm = (*self.order, *[d for d in range(len(shape)) if d not in self.order])
        if perm != tuple(range(len(shape))):
            path.append(("transpose", {"perm": perm}))
        permuted = tuple(shape[d] for d in perm)
        split = [n for cut in cuts for n in cut.sizes]
        if tuple(split) != permuted:
            path.append(("reshape", {"shape": tuple(split)}))
        sliced = [part for cut in cuts for part in cut.parts]
        kept = [-(-(stop - start) // step) for start, stop, step in sliced]
        if kept != split:
            path.append(
                (
                    "slice",
                    {
                        "starts": tuple(a for a, _, _ in sliced),
                        "stops": tuple(b for _, b, _ in sliced),
                        "steps": tuple(c for _, _, c in sliced),
                    },
                )
            )
        path += _arranged(tuple(kept), [(n, d) for _, n, d in wanted], [(n, d) for _, n, d in repeated], to_shape)
        return path

    def _cuts_of(self, wanted: list[tuple[int, int]], start: int) -> list[_Cut]:
        """`_cuts` for the dims as they are, or where those do not fit for dims that go on where the next one ends as
        one.
        """
        try:
            return self._cuts(wanted, start)
        except RegionError:
            merged = _merged(wanted)
            if merged == wanted:
                raise
            return self._cuts(merged, start)

    def _cuts(self, wanted: list[tuple[int, int]], start: int) -> list[_Cut]:
        """How each axis is divided and sliced, so that the kept parts are the dims that are wanted, in order."""
        rest = list(wanted)
        cuts: list[_Cut] = []
        for axis in self.axes:
            first, start = divmod(start, axis.stride)
            mine: list[tuple[int, int]] = []
            while rest and rest[0][0] >= axis.stride:
                stride, size = rest.pop(0)
                if stride % axis.stride:
                    raise RegionError(f"steps of {hint(stride)} across rows of {hint(axis.stride)}")
                mine.append((stride // axis.stride, size))
            inner = sum(s * (n - 1) for s, n in rest) + start
            if inner >= axis.stride:
                raise RegionError("rows that go on in the next row")
            cuts.append(_cut(axis.size, first, mine))
        if rest or start:
            raise RegionError("a region between the elements of the array")
        return cuts


def _merged(wanted: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Dims as (step, size), with those that go on where the next one ends as one."""
    merged: list[tuple[int, int]] = []
    for step, size in reversed(wanted):
        if merged and merged[0][0] * merged[0][1] == step:
            merged[0] = merged[0][0], merged[0][1] * size
        else:
            merged.insert(0, (step, size))
    return merged


class _Cut(NamedTuple):
    """An axis as several: their sizes, and what is kept of each as (start, stop, step)."""

    sizes: list[int]
    parts: list[tuple[int, int, int]]


def _cut(size: int, first: int, wanted: list[tuple[int, int]]) -> _Cut:
    """An axis of `size` elements so that dims of (step, size), beginning at `first`, are slices of its parts."""
    reach = first + sum(s * (n - 1) for s, n in wanted)
    if reach >= size:
        raise RegionError(f"a region of {hint(reach + 1)} places in an axis of {hint(size)}")
    sizes, parts = [], []
    for k, (step, count) in enumerate(wanted):
        inner = wanted[k + 1 :]
        if not inner:
            sizes.append(size)
            stop = first + step * (count - 1) + 1
            parts.append((first, _far(stop, step, count, first, size), step))
            return _Cut(sizes, parts)
        block = _block(size, step, inner)
        row, first = divmod(first, block)
        if first + sum(s * (n - 1) for s, n in inner) >= block:
            raise RegionError("rows that go on in the next row")
        jump = step // block
        sizes.append(size // block)
        parts.append((row, _far(row + jump * (count - 1) + 1, jump, count, row, size // block), jump))
        size = block
    sizes.append(size)
    parts.append((first, first + 1, 1))
    return _Cut(sizes, parts)


def _far(stop: int, step: int, count: int, start: int, size: int) -> int:
    """The end of a slice: that of the axis where the slice is as long as one to the end."""
    return size if -(-(size - start) // step) == count else stop


def _block(size: int, step: int, inner: list[tuple[int, int]]) -> int:
    """The size of the rows into which an axis is divided for a dim of this step: a divisor of both, the largest."""
    reach = sum(s * (n - 1) for s, n in inner)
    if reach >= step or reach >= (block := _common_divisor(size, step)):  # windows that overlap need no divisor
        raise RegionError(f"rows of {hint(step)} in an axis of {hint(size)}")
    return block


def _common_divisor(size: Any, step: Any) -> Any:
    """The greatest one; of formulas the one that divides the other, where one does."""
    if is_symbolic(size) or is_symbolic(step):
        if size % step == 0:
            return step
        if step % size == 0:
            return size
    return math.gcd(size, step)


def _arranged(
    kept: tuple[int, ...], wanted: list[tuple[int, int]], repeated: list[tuple[int, int]], to_shape: tuple[int, ...]
) -> Path:
    """From dims in the order of memory, with others of size 1 among them, to those of the region."""
    path: Path = []
    sizes = tuple(n for n, _ in wanted)
    shape = kept
    order = [d for _, d in wanted]
    perm = tuple(sorted(range(len(order)), key=lambda k: order[k]))
    if perm != tuple(range(len(perm))):
        if shape != sizes:
            path.append(("reshape", {"shape": sizes}))
        path.append(("transpose", {"perm": perm}))
        shape = tuple(sizes[p] for p in perm)
    repeats = {d for _, d in repeated}
    ones = tuple(1 if d in repeats else n for d, n in enumerate(to_shape))
    if shape != ones:
        path.append(("reshape", {"shape": ones}))
    if repeats:
        path.append(("broadcast", {"shape": to_shape, "dims": tuple(range(len(to_shape)))}))
    return path


# ***** values *****


def shown(x: Any, path: Path) -> Any:
    """The array at the end of a path."""
    for name, params in path:
        x = getattr(prim, name)(x, **params)
    return x


def rewritten(x: Any, part: Any, path: Path) -> Any:
    """The array `x` with `part` in the elements to which a path leads.  RegionError where it shows one of them twice."""
    if any(name == "broadcast" for name, _ in path):
        raise RegionError("a write to elements that are shown several times")
    return replaced(x, part, tuple([(name, tuple(params.items())) for name, params in path]))


def scattered(flat: Any, part: Any, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
    """A one-dimensional array with `part` in the elements of a region, which must not overlap itself."""
    return prim.index_put(flat, part, _places(shape, strides, offset), accumulate=False)


def gathered(flat: Any, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
    """The region of a one-dimensional array, element by element: for regions that overlap themselves."""
    return prim.index(flat, _places(shape, strides, offset))


def _places(shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
    """The place of every element of a region, as an array."""
    shape = tuple(shape)
    index = build.full(shape, offset, INT64)
    for dim, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        if size > 1 and stride:
            step = prim.iota(shape=shape, dim=dim, dtype=INT64)
            index = prim.add(index, prim.mul(step, build.full(shape, stride, INT64)))
    return index


def rows(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides."""
    return tuple(contiguous_strides(tuple(shape)))
