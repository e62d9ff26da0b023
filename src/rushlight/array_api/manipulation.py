"""Shapes and orders: joining, splitting, moving and repeating, and taking elements by index."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.array_api.dtypes import joined

__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims", "repeat", "reshape", "roll", "squeeze",
    "stack", "take", "take_along_axis", "tile", "unstack",
]  # fmt: skip


def axes_of(x: Tensor, axis: Any) -> tuple[int, ...]:
    """The dims that `axis` names (None: all), counted from the front. Raises IndexError for one that is not there,
    ValueError for one twice.
    """
    if axis is None:
        return tuple(range(x.ndim))
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for one in axes:
        if not -x.ndim <= one < x.ndim:
            raise IndexError(f"axis {one} is out of range for an array of {x.ndim} dims")
    found = tuple(one % x.ndim for one in axes)
    if len(set(found)) != len(found):
        raise ValueError(f"axes {axes} name a dim of an array of {x.ndim} dims twice")
    return found


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """The arrays as views of their common shape."""
    return tuple(rushlight.broadcast_tensors(*arrays))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """A view of `x` with this shape; dims of size 1 and dims before the first repeat. Raises ValueError where that does
    not fit.
    """
    try:
        return rushlight.broadcast_to(x, tuple(shape))
    except RuntimeError as error:
        raise ValueError(f"broadcast_to: shape {tuple(x.shape)} does not broadcast to {tuple(shape)}") from error


def _of_one_dtype(arrays: Any) -> list[Tensor]:
    common = joined(*[a.dtype for a in arrays])
    return [a.to(common) for a in arrays]


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """Arrays one after another along a dim, in their common dtype; `axis=None` flattens them first."""
    parts = _of_one_dtype(arrays)
    if axis is None:
        parts, axis = [p.reshape(-1) for p in parts], 0
    if len({p.ndim for p in parts}) > 1:  # PyTorch lets one-dimensional empty tensors pass
        raise ValueError(f"concat: expected arrays of as many dims, found shapes {[tuple(p.shape) for p in parts]}")
    return rushlight.cat(parts, axis)


def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Arrays of one shape as slices of a new dim, in their common dtype."""
    return rushlight.stack(_of_one_dtype(arrays), axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along a dim, as views."""
    return tuple(x.unbind(axis))


def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    """A view with a new dim of size 1 at `axis`."""
    return rushlight.unsqueeze(x, axis)


def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """A view without these dims. Raises ValueError where one has another size than 1."""
    axes = axes_of(x, axis)
    wrong = [x.shape[a] for a in axes if x.shape[a] != 1]
    if wrong:
        raise ValueError(f"squeeze: expected dims of size 1 at axis {axis}, found sizes {wrong} in {tuple(x.shape)}")
    return rushlight.squeeze(x, axes)


def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """Elements in reverse along these dims (all by default)."""
    return rushlight.flip(x, axes_of(x, axis))


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """Elements moved by `shift` places along dims (flattened by default); what leaves at one end enters at the other."""
    if axis is None:
        count = sum(shift) if isinstance(shift, tuple) else shift
        return rushlight.roll(x.reshape(-1), count % max(x.numel(), 1)).reshape(x.shape)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    sizes = [x.shape[a] for a in axes]
    return rushlight.roll(x, tuple(s % max(n, 1) for s, n in zip(shifts, sizes)), axes)


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """A view with dims moved to other places; the others keep their order."""
    return rushlight.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """A view with the dims in another order."""
    return rushlight.permute(x, tuple(axes))


def reshape(x: Tensor, /, shape: Any, *, copy: bool | None = None) -> Tensor:
    """The elements under another shape, one size of which may be -1: what is left.

    `copy`: True always copies, None only where it must, False raises ValueError where it must or the shape does not
    fit.
    """
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if copy is False:
        try:
            return x.view(shape)
        except RuntimeError as error:
            raise ValueError(
                f"reshape: {tuple(x.shape)} has no view of shape {shape}, and copy=False forbids a copy"
            ) from error
    made = rushlight.reshape(x, shape)
    return made.clone() if copy else made


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Every element `repeats` times (a number, or an array with one for each place) along a dim, flattened by default."""
    if isinstance(repeats, Tensor):
        repeats = repeats.to(rushlight.int64)
    return rushlight.repeat_interleave(x.reshape(-1) if axis is None else x, repeats, 0 if axis is None else axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The array as a tile, so many times along each dim."""
    return rushlight.tile(x, tuple(repetitions))


def _positions(indices: Tensor, size: int) -> Tensor:
    """Indices as PyTorch takes them: int64, counted from the front."""
    wide = indices.to(rushlight.int64)
    return rushlight.where(wide < 0, wide + size, wide)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The slices of `x` along a dim at these places; dims of `indices` stand where the dim stood.

    `axis` may be left out where `x` has one dim. Negative indices count from the end.

        >>> import rushlight.array_api as xp
        >>> xp.take(xp.asarray([10, 20, 30]), xp.asarray([2, 0, -1]))
        tensor([30, 10, 30])
    """
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take: expected an axis for an array of {x.ndim} dims, found none")
        axis = 0
    (axis,) = axes_of(x, axis)
    taken = rushlight.index_select(x, axis, _positions(indices, x.shape[axis]).reshape(-1))
    return taken.reshape(tuple(x.shape[:axis]) + tuple(indices.shape) + tuple(x.shape[axis + 1 :]))


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The element of `x` at the place along a dim that `indices` names, for every place of `indices`; the other dims
    broadcast.

    >>> import rushlight.array_api as xp
    >>> x = xp.asarray([[3, 1, 2], [9, 7, 8]])
    >>> xp.take_along_axis(x, xp.argsort(x))
    tensor([[1, 2, 3],
            [7, 8, 9]])
    """
    (axis,) = axes_of(x, axis)
    return rushlight.take_along_dim(x, _positions(indices, x.shape[axis]), axis)
