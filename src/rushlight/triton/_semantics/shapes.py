"""Blocks made and reshaped."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from .ambient import builder, builtin
from .arithmetic import cast, where
from .constants import unwrap_deep
from .dtypes import BY_TRITON_NAME
from .promotion import broadcast_to_shape, broadcast_values
from .values import constant, make, member, tensor, to_tensor

__all__ = [
    "arange", "broadcast", "broadcast_to", "cat", "expand_dims", "flip", "full", "gather", "index", "interleave", "join", "num_programs",
    "permute", "program_id", "ravel", "reshape", "sizes_of", "split", "squeeze", "swizzle2d", "trans", "unsplat", "unsqueeze", "view", "zeros",
    "zeros_like",
]  # fmt: skip

_INT32 = BY_TRITON_NAME["int32"]


def sizes_of(words: Sequence[Any]) -> tuple[int, ...]:
    """Sizes given as one list or one by one."""
    if len(words) == 1 and isinstance(words[0], (tuple, list)):
        words = words[0]
    sizes = unwrap_deep(tuple(words))
    for size in sizes:
        if isinstance(size, tensor) or not isinstance(size, int):
            raise TypeError(f"Shape element must have type `constexpr[int]`, got {size!r}")
    return sizes


# ***** sources *****


@builtin
def program_id(axis: int) -> tensor:
    """Which program of the grid this is along an axis (0, 1 or 2): int32."""
    _check_axis("program_id", axis)
    return make(builder().program_id(axis), _INT32)


@builtin
def num_programs(axis: int) -> tensor:
    """How many programs the grid has along an axis: int32."""
    _check_axis("num_programs", axis)
    return make(builder().num_programs(axis), _INT32)


def _check_axis(what: str, axis: Any) -> None:
    if axis not in (0, 1, 2):
        raise ValueError(f"{what} axis must be 0, 1, or 2 but got {axis}")


@builtin
def arange(start: int, end: int) -> tensor:
    """The integers from `start` to before `end`, whose number is a power of 2."""
    if not (isinstance(start, int) and isinstance(end, int)):
        raise ValueError("arange's arguments must be of type tl.constexpr")
    if end <= start:
        raise ValueError("arange's end argument must be greater than the start argument")
    if (end - start) & (end - start - 1):
        raise ValueError("arange's range must be a power of 2")
    return make(builder().arange(start, end), _INT32)


@builtin
def full(shape: Any, value: Any, dtype: Any) -> tensor:
    """`value`, a number or a scalar, at each place of a shape."""
    sizes = sizes_of((shape,))
    if dtype is None:
        raise ValueError("dtype must be specified when value is not a tensor")
    if not isinstance(value, tensor):
        return constant(value, dtype.scalar, sizes)
    return broadcast_to_shape(cast(value, dtype), sizes)


@builtin
def zeros(shape: Any, dtype: Any) -> tensor:
    """0 at each place of a shape."""
    return full(shape, 0, dtype)


@builtin
def zeros_like(input: tensor) -> tensor:
    """0 in the shape and type of a block."""
    return constant(0, input.dtype, input.shape)


# ***** broadcasting *****


@member()
@builtin
def broadcast_to(input: Any, *shape: Any) -> tensor:
    """A block repeated to a shape."""
    return broadcast_to_shape(to_tensor(input), sizes_of(shape))


@builtin
def broadcast(input: Any, other: Any) -> tuple[tensor, ...]:
    """Both blocks in their common shape."""
    return broadcast_values(to_tensor(input), to_tensor(other))


@member()
@builtin
def expand_dims(input: Any, axis: Any) -> tensor:
    """New dims of size 1 at `axis`, a number or several."""
    x = to_tensor(input)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = len(x.shape) + len(axes)
    for one in sorted(_axis(a, ndim) for a in axes):
        x = make(builder().expand_dims(x.handle, one), x.dtype)
    return x


@member()
def unsqueeze(input: Any, dim: Any) -> tensor:
    return expand_dims(input, dim)


@member()
@builtin
def squeeze(x: tensor, dim: int) -> tensor:
    """Without a dim of size 1."""
    dim = _axis(dim, len(x.shape))
    if x.shape[dim] != 1:
        raise ValueError(f"dim {dim} of {list(x.shape)} has not size 1")
    return reshape(x, x.shape[:dim] + x.shape[dim + 1 :])


def _axis(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise ValueError(f"invalid axis {axis}. Expected {-ndim} <= axis < {ndim}")
    return axis % ndim


# ***** order *****


@member()
@builtin
def reshape(input: Any, *shape: Any, can_reorder: bool = False) -> tensor:
    """The elements in row-major order in another shape."""
    x, sizes = to_tensor(input), sizes_of(shape)
    numel = 1
    for size in sizes:
        numel *= size
    if numel != x.handle.type.numel:
        raise ValueError(
            f"reshape() cannot change total number of elements in tensor: {list(x.shape)} to {list(sizes)}"
        )
    return make(builder().reshape(x.handle, sizes), x.dtype)


@member()
def view(input: Any, *shape: Any) -> tensor:
    """As `reshape`."""
    return reshape(input, *shape)


@member()
@builtin
def ravel(x: Any, can_reorder: bool = False) -> tensor:
    """All elements in one dim."""
    return reshape(x, [to_tensor(x).handle.type.numel])


@member()
@builtin
def permute(input: tensor, *dims: Any) -> tensor:
    """Dims in another order."""
    order = [_axis(d, len(input.shape)) for d in sizes_of(dims)]
    if sorted(order) != list(range(len(input.shape))):
        raise ValueError(f"permute dims must be a permutation of 0, 1, ..., n-1, but were {order}")
    return make(builder().permute(input.handle, order), input.dtype)


@member()
@builtin
def trans(input: tensor, *dims: Any) -> tensor:
    """The last two dims swapped, or dims in the order that is given."""
    if dims and not (len(dims) == 1 and dims[0] is None):
        return permute(input, *dims)
    n = len(input.shape)
    if n < 2:
        raise ValueError("tl.trans invoked with a 0- or 1-dimensional tensor")
    return permute(input, [*range(n - 2), n - 1, n - 2])


setattr(tensor, "T", property(trans))  # noqa: B010


@builtin
def join(a: Any, b: Any) -> tensor:
    """Two blocks side by side in a new last dim."""
    x, y = broadcast_values(to_tensor(a), to_tensor(b))
    if not x.shape:
        one, other = (make(builder().splat(v.handle, (1,)), v.dtype) for v in (x, y))
        return reshape(join(one, other), [2])
    return make(builder().value("join", x.handle, cast(y, x.dtype).handle), x.dtype)


@member()
@builtin
def split(a: tensor) -> tuple[tensor, tensor]:
    """The halves along a last dim of size 2."""
    if not a.shape or a.shape[-1] != 2:
        raise ValueError(f"split needs a last dim of size 2, and has {list(a.shape)}")
    first, second = (
        make(v, a.dtype)
        for v in builder().emit("split", a.handle if len(a.shape) > 1 else reshape(a, [1, 2]).handle).results
    )
    return (first, second) if len(a.shape) > 1 else (unsplat(first), unsplat(second))


def unsplat(x: tensor) -> tensor:
    """The element of a block with one."""
    if x.handle.type.numel != 1:
        raise ValueError(f"a block of {list(x.shape)} is no scalar")
    flat = reshape(x, [1])
    return make(builder().reduce([flat.handle], 0, lambda b, lefts, rights: lefts)[0], x.dtype)


@builtin
def interleave(a: Any, b: Any) -> tensor:
    """Elements of both in turn along the last dim."""
    both = join(a, b)
    shape = both.shape
    return reshape(both, shape[:-1]) if len(shape) == 1 else reshape(both, [*shape[:-2], 2 * shape[-2]])


@builtin
def cat(input: tensor, other: tensor, can_reorder: bool = False, dim: int = 0) -> tensor:
    """The elements of both along a dim.  (They keep their order, also with `can_reorder`.)"""
    if input.dtype != other.dtype:
        raise TypeError(f"cat of {input.dtype} and {other.dtype}")
    n = len(input.shape)
    dim = _axis(dim, n)
    order = [dim, *(d for d in range(n) if d != dim)]
    back = [order.index(d) for d in range(n)]
    x, y = (builder().permute(v.handle, order) if dim else v.handle for v in (input, other))
    both = make(builder().value("cat", x, y), input.dtype)
    return permute(both, back) if dim else both


@member()
@builtin
def gather(src: tensor, index: tensor, axis: int) -> tensor:
    """src at the places that `index` names along `axis`."""
    if not index.dtype.is_int():
        raise TypeError(f"index must have an integer dtype, and has {index.dtype}")
    axis = _axis(axis, len(src.shape))
    return make(builder().value("gather", src.handle, index.handle, axis=axis), src.dtype)


@member()
@builtin
def flip(x: tensor, dim: int | None = None) -> tensor:
    """In the opposite order along a dim (the last one)."""
    dim = _axis(-1 if dim is None else dim, len(x.shape))
    return gather(x, _places(x.shape, dim, lambda i: x.shape[dim] - 1 - i), dim)


def _places(shape: Sequence[int], dim: int, of: Any) -> tensor:
    """of(i) at place i of a dim, repeated along the others."""
    at = of(arange(0, shape[dim]))
    for _ in range(dim):
        at = expand_dims(at, 0)
    for _ in range(len(shape) - dim - 1):
        at = expand_dims(at, -1)
    return broadcast_to_shape(at, shape)


# ***** indexing *****


@member("__getitem__")
def index(x: tensor, places: Any) -> Any:
    """New dims by None, whole dims by `:`; a scalar in place of a dim of size 1 is refused."""
    places = unwrap_deep(places)
    if not isinstance(places, builtins.tuple):
        places = (places,)
    result, dim = x, 0
    for place in places:
        if place is None:
            result = expand_dims(result, dim)
        elif not (isinstance(place, slice) and place == slice(None)):
            raise ValueError(
                f"unsupported tensor index: {place!r}; a block takes None and `:` (tl.gather picks elements)"
            )
        dim += 1
    return result


@member()
def item(x: tensor) -> tensor:
    """The element of a block with one."""
    return unsplat(x) if x.shape else x


@builtin
def swizzle2d(i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any) -> tuple[Any, Any]:
    """Row and column of place (i, j) of a matrix when rows are taken in groups of `size_g`, column by column in each."""
    at = i * size_j + j
    group = at // (size_g * size_j)
    first = group * size_g
    rows = where(to_tensor(size_i - first) < size_g, size_i - first, size_g)
    within = at % (size_g * size_j)
    return first + within % rows, within // rows
