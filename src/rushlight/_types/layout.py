"""Shapes and strides as pure values: all view algebra, without memory.

Shapes are tuples of sizes, strides tuples of steps counted in elements, both outermost first.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from rushlight._types.shape_env import is_unknown, require_equal
from rushlight._types.symbols import is_symbolic

__all__ = [
    "BELOW_ALL", "Cut", "LARGEST", "Size", "broadcast_shapes", "broadcast_strides", "channels_last_strides", "checked_strides", "collapse", "contiguous_strides",
    "dense_strides", "extent", "filled_strides", "infer_size", "is_contiguous", "is_dense", "numel", "overflowed", "preserved", "restride",
    "suggests_channels_last", "view_strides", "wrap_dim", "wrap_dims",
]  # fmt: skip

Shape = tuple[int, ...]
LARGEST = (1 << 63) - 1  # the largest size, stride, offset or number of elements
# Subtracted from an index it is out of range for any size; an error adds it again to name the index
BELOW_ALL = 1 << 62


def _as_size(size: Any, item: int) -> int:
    try:
        return size if isinstance(size, int) else operator.index(size)
    except TypeError:
        raise TypeError(f"torch.Size() takes an iterable of 'int' (item {item} is '{type(size).__name__}')") from None


class Size(tuple[int, ...]):
    """A shape for users: a tuple that prints as `torch.Size([2, 3])`."""

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = ()) -> Size:
        self_ = tuple.__new__(cls, sizes)
        return (
            self_
            if all(isinstance(size, int) for size in self_)
            else tuple.__new__(cls, map(_as_size, self_, range(len(self_))))
        )

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"

    def numel(self) -> int:
        """Number of elements of a tensor of this shape."""
        return numel(self)

    def __add__(self, other: Any) -> Size:
        return Size(tuple.__add__(self, other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Size:
        return Size(other + tuple(self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, count: Any) -> Size:
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__

    def __getitem__(self, item: Any) -> Any:
        part = tuple.__getitem__(self, item)
        return Size(part) if isinstance(item, slice) else part

    def __reduce__(self) -> tuple[Any, ...]:
        return (Size, (tuple(self),))


def numel(shape: Sequence[int]) -> int:
    """Product of the sizes; 1 for no dims."""
    count = 1
    for size in shape:
        count *= size
    return count


def wrap_dim(dim: int, ndim: int) -> int:
    """Convert a possibly negative dim to 0..ndim-1 (a 0-dim tensor counts as 1-dim); IndexError outside."""
    if type(dim) is not int and isinstance(dim, int):
        dim = operator.index(dim)  # of a symbol: which dim it is decides what is computed
    bound = ndim or 1
    if not -bound <= dim < bound:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {dim})")
    return dim + bound if dim < 0 else dim


def wrap_dims(dims: int | Sequence[int] | None, ndim: int) -> Shape:
    """Several dims wrapped, in the order given; None means all; RuntimeError when one appears twice."""
    if dims is None:
        return tuple(range(ndim))
    wrapped = tuple(wrap_dim(d, ndim) for d in ((dims,) if isinstance(dims, int) else dims))
    if len(set(wrapped)) != len(wrapped):
        repeated = next(d for d in wrapped if wrapped.count(d) > 1)
        raise RuntimeError(f"dim {repeated} appears multiple times in the list of dims")
    return wrapped


def contiguous_strides(shape: Sequence[int]) -> Shape:
    """Row-major strides.  Empty dims count as size 1, as in PyTorch."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size if size > 1 else 1
    return tuple(reversed(strides))


def checked_strides(shape: Sequence[int], strides: Sequence[int] | None) -> Shape:
    """Strides of a layout that native code may read; None means row-major.  RuntimeError if it is invalid.

    Sizes and the number of elements must fit 63 bits.  A stride of more than 64 bits is truncated to them, as PyTorch's
    arithmetic does, and may not be negative then.
    """
    if any(n < 0 for n in shape):
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {next(n for n in shape if n < 0)}: {list(shape)}"
        )
    counts = list(accumulate(shape, operator.mul))
    if counts and (counts[-1] > LARGEST or max(counts) > 2 * LARGEST + 1 or max(shape) > LARGEST):
        fresh = f"Storage size calculation overflowed with sizes={list(shape)}"
        raise RuntimeError(fresh if strides is None else "numel: integer multiplication overflow")
    rows = contiguous_strides(shape)
    if strides is None:
        if any(s > LARGEST for s in rows):
            raise RuntimeError("Stride calculation overflowed")
        return rows
    cut = tuple([(s + LARGEST + 1 & 2 * LARGEST + 1) - LARGEST - 1 for s in strides])
    if any(s < 0 for s in cut):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(cut)}")
    return cut


def overflowed(shape: Sequence[int], strides: Sequence[int]) -> str:
    """The error for a layout that spans more bytes than 63 bits can count."""
    return f"Storage size calculation overflowed with sizes={list(shape)} and strides={list(strides)}"


def filled_strides(shape: Sequence[int], strides: Sequence[int]) -> Shape:
    """Strides with negative ones computed: each becomes the next dim's size times its stride, as in PyTorch.

    RuntimeError for a negative stride of a dim with several elements.
    """
    if len(shape) != len(strides):
        raise RuntimeError(f"unequal size length ({len(shape)}) and stride length ({len(strides)})")
    if 0 not in shape and any(n > 1 and s < 0 for n, s in zip(shape, strides, strict=True)):
        raise RuntimeError(overflowed(shape, strides))
    filled: list[int] = []
    following = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        filled.append(stride if stride >= 0 else following)
        following = filled[-1] * max(size, 1)
    return tuple(reversed(filled))


def channels_last_strides(shape: Sequence[int]) -> Shape:
    """Strides that put dim 1 innermost: NHWC for 4 dims, NDHWC for 5."""
    if len(shape) not in (4, 5):
        raise RuntimeError(
            f"required rank {4 if len(shape) < 5 else 5} tensor to use channels_last format, got {len(shape)} dims"
        )
    return dense_strides(shape, [0, *range(2, len(shape)), 1])


def dense_strides(shape: Sequence[int], order: Sequence[int]) -> Shape:
    """Dense strides if `order` lists the dims from outermost to innermost in memory."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= shape[dim] if shape[dim] > 1 else 1
    return tuple(strides)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements are row-major without gaps; strides of size-1 dims do not matter, nor do any without elements."""
    return 0 in shape or _steps_evenly(shape, strides)


def _steps_evenly(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether every stride of a dim larger than 1 is the product of the sizes after it."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


def is_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a 4- or 5-dim layout is dense with dim 1 innermost."""
    if len(shape) not in (4, 5):
        return False
    order = [0, *range(2, len(shape)), 1]
    return _steps_evenly([shape[d] for d in order], [strides[d] for d in order])


def suggests_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether PyTorch's operators treat a 4- or 5-dim layout as channels last: by the order of the strides alone, gaps
    allowed, row-major where sizes of 1 are ambiguous (`suggest_memory_format`)."""
    if len(shape) not in (4, 5) or strides[1] == 0:
        return False
    least = 0
    for d in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[d] == 0 or strides[d] < least or (d == 0 and least == strides[1]):
            return False
        least = strides[d] * max(shape[d], 1)
    return True


def image_strides(shape: Sequence[int], image: Sequence[int], strides: Sequence[int]) -> Shape | None:
    """Strides of a result computed from an image of shape `image`: channels last if the image suggests that, else None
    (row-major)."""
    return channels_last_strides(shape) if len(shape) == len(image) and suggests_channels_last(image, strides) else None


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill a block of memory, each address once, in some order of dims."""
    step = 1
    for stride, size in sorted((st, sz) for sz, st in zip(shape, strides, strict=True) if sz != 1):
        if size == 0:
            return True
        if stride != step:
            return False
        step *= size
    return True


def memory_order(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Dims from outermost to innermost in memory.  Expanded dims (stride 0) keep their position; of equal strides the
    greater size is outside, and equal dims keep their order."""
    order = list(reversed(range(len(shape))))  # innermost first
    for i in range(1, len(order)):  # insertion sort that skips incomparable dims
        at = i
        for j in range(i - 1, -1, -1):
            inner, outer = order[j], order[at]
            a, b = strides[inner], strides[outer]
            if a == 0 or b == 0 or (a == b and shape[inner] <= shape[outer]):
                continue
            if a < b:
                break
            order[j], order[at], at = outer, inner, j
    return order[::-1]


def restride(shape: Sequence[int], strides: Sequence[int]) -> Shape:
    """Strides of a fresh result shaped like an operand ("preserve format"): the same if dense, else dense in the same
    order."""
    if is_contiguous(shape, strides):
        return contiguous_strides(shape)
    if len(shape) == 4 and is_channels_last(shape, strides):
        return channels_last_strides(shape)
    if is_dense(shape, strides):
        return tuple(strides)
    return dense_strides(shape, memory_order(shape, strides))


def preserved(shape: Sequence[int], strides: Sequence[int]) -> Shape:
    """Strides of a copy of an operand (`clone`, `empty_like`): the same if it is dense, also along dims of one item, else
    dense in the same order.  Without elements it is dense, in any order."""
    kept = 0 in shape or is_dense(shape, strides)
    return tuple(strides) if kept else dense_strides(shape, memory_order(shape, strides))


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The number of elements that a layout spans, from its first to its last; 0 if it has none."""
    span = 1
    for size, stride in zip(shape, strides, strict=True):
        if size == 0:
            return 0
        span += (size - 1) * stride
    return span


def broadcast_shapes(*shapes: Sequence[int]) -> Shape:
    """The common shape; RuntimeError naming the sizes and the dim where two do not fit."""
    if any(is_symbolic(size) for shape in shapes for size in shape):
        return _broadcast_symbolic(*shapes)
    if len(shapes) == 2 and shapes[0] == shapes[1]:
        return tuple(shapes[0])
    ndim = max((len(s) for s in shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        offset = ndim - len(shape)
        for i, size in enumerate(shape):
            known = result[offset + i]
            if size != known:
                if known == 1:
                    result[offset + i] = size
                elif size != 1:
                    raise RuntimeError(_apart(result, shape))
    return tuple(result)


def _broadcast_symbolic(*shapes: Sequence[int]) -> Shape:
    """As `broadcast_shapes`; a size without a value is taken to be that of the other tensor, unless that is 1."""
    ndim = max(len(s) for s in shapes)
    result: list[int] = [1] * ndim
    for shape in shapes:
        offset = ndim - len(shape)
        for i, size in enumerate(shape, offset):
            known = result[i]
            if type(size) is int and size == 1 or size is known:
                continue
            if type(known) is int and known == 1:
                result[i] = size
            elif is_unknown(size - known):
                require_equal(size, known)
                result[i] = size if type(size) is int else known
            elif size != known:
                if known == 1:
                    result[i] = size
                elif size != 1:
                    raise RuntimeError(_apart(result, shape))
    return tuple(result)


def _apart(known: Sequence[int], shape: Sequence[int]) -> str:
    """Sizes and number of the last dim in which two shapes do not fit, as PyTorch counts from the end."""
    offset = len(known) - len(shape)
    d = max(
        offset + i for i, size in enumerate(shape) if size != known[offset + i] and 1 not in (size, known[offset + i])
    )
    return f"The size of tensor a ({known[d]}) must match the size of tensor b ({shape[d - offset]}) at non-singleton dimension {d}"


def broadcast_strides(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> Shape:
    """Strides of `shape` broadcast to `target`: 0 where a dim grows or is new."""
    offset = len(target) - len(shape)
    return (0,) * offset + tuple(
        0 if size == 1 and target[offset + i] != 1 else stride
        for i, (size, stride) in enumerate(zip(shape, strides, strict=True))
    )


def collapse(shape: Sequence[int], *operands: Sequence[int]) -> tuple[Shape, list[Shape]]:
    """Merge adjacent dims that every operand steps through evenly, and drop dims of size 1.

    Returns the merged shape and each operand's strides over it; () for a single element.
    """
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in operands]
    for dim, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all(s[-1] == o[dim] * size for s, o in zip(steps, operands, strict=True)):
            sizes[-1] *= size
            for s, o in zip(steps, operands, strict=True):
                s[-1] = o[dim]
        else:
            sizes.append(size)
            for s, o in zip(steps, operands, strict=True):
                s.append(o[dim])
    return tuple(sizes), [tuple(s) for s in steps]


def _one_formula(a: Any, b: Any) -> bool:
    """Whether two symbolic sizes are one."""
    return is_symbolic(a) and is_symbolic(b) and bool(a.terms == b.terms)


def _quotient(room: Any, size: Any) -> Any:
    """A size without a value, divided by a factor of its formula; None for others."""
    return room.quotient(size) if is_unknown(room) and is_symbolic(size) else None


def view_strides(shape: Sequence[int], strides: Sequence[int], new_shape: Sequence[int]) -> Shape | None:
    """Strides that show the same elements as `new_shape`, or None if that needs a copy."""
    if numel(shape) == 0:
        return tuple(strides) if tuple(shape) == tuple(new_shape) else contiguous_strides(new_shape)
    merged, (steps,) = collapse(shape, strides)
    if len(merged) == 1 and any(map(is_unknown, new_shape)):  # whatever the sizes are
        return tuple([step * steps[0] for step in contiguous_strides(new_shape)])
    result: list[int] = []
    at = len(merged) - 1
    room, step = (merged[at], steps[at]) if at >= 0 else (1, 1)
    for size in reversed(new_shape):
        if size == 1:
            result.append(step)
            continue
        if room == 1:
            at -= 1
            if at < 0:
                return None
            room, step = merged[at], steps[at]
        left = _quotient(room, size)
        if left is not None or _one_formula(room, size):  # also where the size may be zero
            result.append(step)
            room, step = 1 if left is None else left, step * size
            continue
        if room % size:
            return None
        result.append(step)
        step *= size
        room //= size
    return tuple(reversed(result)) if room == 1 and at <= 0 else None


def infer_size(shape: Sequence[int], count: int) -> Shape:
    """Replace one -1 by the remaining size; RuntimeError if `count` elements do not fit."""
    known, hole = 1, None
    for i, size in enumerate(shape):
        if size == -1:
            if hole is not None:
                raise RuntimeError("only one dimension can be inferred")
            hole = i
        elif size < 0:
            raise RuntimeError(f"invalid shape dimension {size} at index {i} of shape {list(shape)}")
        else:
            known *= size
    if hole is not None:
        if known == 0:
            raise RuntimeError(
                f"cannot reshape tensor of {count} elements into shape {list(shape)} because the unspecified dimension size -1 "
                "can be any value and is ambiguous"
            )
        left = count // known
        if require_equal(left * known, count) or count % known == 0:
            return (*shape[:hole], left, *shape[hole + 1 :])
    elif require_equal(known, count) or known == count:
        return tuple(shape)
    raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {count}")


def overlaps_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether an expanded dim maps many indices to one address, so that writes are ambiguous.

    As in PyTorch, overlapping windows (`unfold`) do not count: the test would be expensive, and programs write through
    them.
    """
    return any(stride == 0 and size > 1 for size, stride in zip(shape, strides, strict=True)) and 0 not in shape


class Cut(NamedTuple):
    """Parts of a tensor along `dim`: the ranges `bounds` (start, stop); with `drops` each holds one index, and the dim
    is removed.
    """

    dim: int
    bounds: Sequence[tuple[int, int]]
    drops: bool = False

    def layouts(self, shape: Sequence[int], strides: Sequence[int]) -> list[tuple[Shape, Shape, int]]:
        """Shape, strides and offset of each part of a tensor of this shape and these strides; neighbours of one size
        share the same shape object.
        """
        dim, step = self.dim, strides[self.dim]
        before, after = tuple(shape[:dim]), tuple(shape[dim + 1 :])
        if self.drops:
            rest, steps = (*before, *after), (*strides[:dim], *strides[dim + 1 :])
            return [(rest, steps, start * step) for start, _ in self.bounds]
        found: list[tuple[Shape, Shape, int]] = []
        steps, held, inner = tuple(strides), None, tuple(shape)
        for start, stop in self.bounds:
            size = stop - start
            if type(size) is not int or size != held:  # symbols are not compared: that would be a condition
                held, inner = size if type(size) is int else None, (*before, size, *after)
            found.append((inner, steps, start * step))
        return found

    def part(self, number: int) -> Cut:
        """One of the parts alone."""
        return self._replace(bounds=[self.bounds[number]])
