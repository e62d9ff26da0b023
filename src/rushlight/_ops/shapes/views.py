"""Views: other shapes and strides over the same memory."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._ops.bodies import slice_bounds, take_slice, taken, wrap
from rushlight._ops.table import Operator, view
from rushlight._prims import build, prim
from rushlight._types.layout import Cut, infer_size, numel, wrap_dim
from rushlight._types.shape_env import require_between, require_equal
from rushlight._types.symbols import truncated

__all__: list[str] = []


def _inverse(perm: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


# ***** shape *****


@view("view(Tensor input, int[] size) -> Tensor", spaces=())
def view_(x: Any, size: Any) -> Any:
    """out.flat[i] = input.flat[i]: the same elements under another shape; RuntimeError if no strides can show them so
    (`reshape` copies then)."""
    return prim.reshape(x, shape=infer_size(size, numel(x.shape)))


def _expanded(x: Any, size: Sequence[int]) -> tuple[int, ...]:
    lead = len(size) - len(x.shape)
    if lead < 0:
        raise RuntimeError(
            f"expand({x.dtype.name}{list(x.shape)}, size={list(size)}): the number of sizes provided ({len(size)}) must be greater or equal to "
            f"the number of dimensions in the tensor ({len(x.shape)})"
        )
    target = list(size)
    for d in reversed(range(len(size))):  # errors name the last dim that does not fit
        wanted, existing = size[d], x.shape[d - lead] if d >= lead else 1
        if wanted == -1:
            if d < lead:
                raise RuntimeError(
                    f"The expanded size of the tensor ({wanted}) isn't allowed in a leading, non-existing dimension {d}"
                )
            target[d] = existing
        elif d >= lead and existing != 1 and existing != wanted or wanted < -1:
            raise RuntimeError(
                f"The expanded size of the tensor ({wanted}) must match the existing size ({existing}) at non-singleton dimension {d}.  "
                f"Target sizes: {list(size)}.  Tensor sizes: {list(x.shape)}"
            )
    return tuple(target)


@view("expand(Tensor input, int[] size, *, bool implicit=False) -> Tensor", spaces=())
def expand(x: Any, size: Any, *, implicit: bool) -> Any:
    """Dims of size 1 repeated without copying (stride 0), and new dims in front; -1 keeps a size."""
    target = _expanded(x, size)
    return prim.broadcast(x, shape=target, dims=tuple(range(len(target) - len(x.shape), len(target))))


@view("broadcast_to(Tensor input, int[] size) -> Tensor", node="ExpandBackward0")
def broadcast_to(x: Any, size: Any) -> Any:
    """expand(input, size): dims of size 1 repeated without copying."""
    return expand(x, size, implicit=False)


@view(
    "squeeze(Tensor input, int[1]? dim=None) -> Tensor",
    node=lambda input, dim: f"SqueezeBackward{0 if dim is None else 1 if len(dim) == 1 else 2}",
)
def squeeze(x: Any, dim: Any) -> Any:
    """Dims of size 1 dropped: all, or those named (a larger one stays)."""
    dims = range(len(x.shape)) if dim is None else _distinct(x, dim)
    return prim.reshape(x, shape=tuple(s for d, s in enumerate(x.shape) if d not in dims or s != 1))


def _distinct(x: Any, dims: Sequence[int]) -> list[int]:
    wrapped = [wrap(d, x) for d in dims]
    if len(set(wrapped)) != len(wrapped):
        raise RuntimeError(
            f"dim {next(d for d in wrapped if wrapped.count(d) > 1)} appears multiple times in the list of dims"
        )
    return wrapped


@view("unsqueeze(Tensor input, int dim) -> Tensor")
def unsqueeze(x: Any, dim: int) -> Any:
    """A dim of size 1 inserted at `dim` of the result."""
    n = len(x.shape)
    at = wrap_dim(dim, n + 1)
    shape = (*x.shape[:at], 1, *x.shape[at:])
    if not n:
        return prim.reshape(x, shape=shape)
    return prim.broadcast(x, shape=shape, dims=tuple(d for d in range(n + 1) if d != at))


@view("unflatten(Tensor input, int dim, int[] sizes) -> Tensor", node="ViewBackward0")
def unflatten(x: Any, dim: int, sizes: Any) -> Any:
    """One dim split into several; one of `sizes` may be -1."""
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    dim = wrap(dim, x)
    size = x.shape[dim] if x.shape else 1
    try:
        parts = infer_size(sizes, size)
    except RuntimeError:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} ({size}) in the input tensor"
        ) from None
    return prim.reshape(x, shape=(*x.shape[:dim], *parts, *x.shape[dim + 1 :]))


# ***** order of dims *****


@view("permute(Tensor input, int[] dims) -> Tensor")
def permute(x: Any, dims: Any) -> Any:
    """out.shape[i] = input.shape[dims[i]]: dims in the order given."""
    if len(dims) != len(x.shape):
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of dimensions "
            f"i.e. input.dim() = {len(x.shape)} is not equal to len(dims) = {len(dims)}"
        )
    wrapped = [wrap(d, x) for d in dims]
    if len(set(wrapped)) != len(wrapped):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return prim.transpose(x, perm=tuple(wrapped))


def _swapped(x: Any, first: int, second: int) -> Any:
    i, j = wrap(first, x), wrap(second, x)
    perm = list(range(len(x.shape)))
    if perm:
        perm[i], perm[j] = perm[j], perm[i]
    return prim.transpose(x, perm=tuple(perm))


@view("transpose(Tensor input, int dim0, int dim1) -> Tensor", aliases=("swapdims",))
def transpose(x: Any, dim0: int, dim1: int) -> Any:
    """out[..., j, ..., i, ...] = input[..., i, ..., j, ...]: two dims exchanged."""
    return _swapped(x, dim0, dim1)


@view("swapaxes(Tensor input, int axis0, int axis1) -> Tensor", node="TransposeBackward0")
def swapaxes(x: Any, axis0: int, axis1: int) -> Any:
    """out[..., j, ..., i, ...] = input[..., i, ..., j, ...]: two dims exchanged."""
    return _swapped(x, axis0, axis1)


@view("t(Tensor input) -> Tensor")
def t(x: Any) -> Any:
    """out[j, i] = input[i, j]: a matrix transposed; vectors and numbers are unchanged."""
    if len(x.shape) > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {len(x.shape)}D")
    return prim.transpose(x, perm=(1, 0) if len(x.shape) == 2 else tuple(range(len(x.shape))))


@view(
    "movedim(Tensor input, int[1] source, int[1] destination) -> Tensor", aliases=("moveaxis",), node="PermuteBackward0"
)
def movedim(x: Any, source: Any, destination: Any) -> Any:
    """out.shape[destination] = input.shape[source]: dims moved; the others keep their order."""
    if len(source) != len(destination):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(source)} dims) should contain the same number of dims as destination "
            f"({list(destination)} dims)"
        )
    ndim = len(x.shape)
    froms, tos = [wrap(d, x) for d in source], [wrap(d, x) for d in destination]
    for dims, what in ((froms, "source"), (tos, "destination")):
        if len(set(dims)) != len(dims):
            raise RuntimeError(
                f"movedim: repeated dim in `{what}` ({list(source if what == 'source' else destination)})"
            )
    if ndim == 0:
        return prim.transpose(x, perm=())
    perm: list[int] = [-1] * ndim
    for a, b in zip(froms, tos, strict=True):
        perm[b] = a
    rest = iter(d for d in range(ndim) if d not in froms)
    return prim.transpose(x, perm=tuple(next(rest) if p == -1 else p for p in perm))


# ***** parts *****


def _but_one(spec: Any, dim: int, index: int) -> list[int]:
    dim %= spec.ndim
    return [*spec.strides[:dim], *spec.strides[dim + 1 :]]


@view("select(Tensor input, int dim, int index) -> Tensor", strides=_but_one)
def select(x: Any, dim: int, index: int) -> Any:
    """input[..., index, ...]: one index along dim; the dim is removed."""
    if not x.shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = wrap(dim, x)
    size = x.shape[dim]
    if not -size <= index < size:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(x.shape)} at dimension {dim}")
    index += size if index < 0 else 0
    return build.squeeze(_part(x, dim, index, index + 1), (dim,))


def _part(x: Any, dim: int, start: int, stop: int, step: int = 1) -> Any:
    return take_slice(x, dim, start, stop, step)


@view("slice(Tensor input, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor", spaces=(), method=False)
def slice_(x: Any, dim: int, start: int | None, end: int | None, step: int) -> Any:
    """input[..., start:end:step, ...]: a range along dim."""
    if not x.shape:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    dim = wrap(dim, x)
    first, last = slice_bounds(start, end, x.shape[dim])
    return _part(x, dim, first, max(first, last), step)


@view("narrow(Tensor input, int dim, int start, int length) -> Tensor", node="SliceBackward0", tags=("index_tensor",))
def narrow(x: Any, dim: int, start: int, length: int) -> Any:
    """input[..., start:start + length, ...]: `length` indices along dim."""
    if not x.shape:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    dim = wrap(dim, x)
    size = x.shape[dim]
    if not -size <= start <= size:
        raise IndexError(f"start out of range (expected to be in range of [{-size}, {size}], but got {start})")
    start += size if start < 0 else 0
    if start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return _part(x, dim, start, start + length)


def diagonal_of(x: Any, offset: int, dim1: int, dim2: int) -> Any:
    """The diagonal of two dims (wrapped), as a last dim."""
    rows, columns = x.shape[dim1], x.shape[dim2]
    start_row, start_column = max(-offset, 0), max(offset, 0)
    size = max(min(rows - start_row, columns - start_column), 0)
    rest = [d for d in range(len(x.shape)) if d not in (dim1, dim2)]
    moved = build.transpose(x, (*rest, dim1, dim2))
    return prim.diagonal(moved, start=(start_row, start_column), size=size)


@view("diagonal(Tensor input, int offset=0, int dim1=0, int dim2=1) -> Tensor", aliases=())
def diagonal(x: Any, offset: int, dim1: int, dim2: int) -> Any:
    """out[..., i] = input[i, i + offset, ...]: the diagonal of two dims, `offset` above the main one, as the last dim."""
    first, second = wrap(dim1, x), wrap(dim2, x)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return diagonal_of(x, offset, first, second)


@view("unfold(Tensor input, int dimension, int size, int step) -> Tensor", spaces=())
def unfold(x: Any, dimension: int, size: int, step: int) -> Any:
    """out[..., i, ..., j] = x[..., i step + j, ...]: windows of `size` along a dim; their number replaces the dim,
    their elements are a new last dim."""
    if not x.shape:
        wrap(dimension, x)
        if size > 1 or size < 0 or step <= 0:
            raise RuntimeError(
                f"maximum size for tensor at dimension 0 is 1 but size is {size}"
                if size > 1
                else f"step is {step} but must be > 0"
            )
        return prim.reshape(x, shape=(1,)) if size else take_slice(prim.reshape(x, shape=(1,)), 0, 0, 0)
    dim = wrap(dimension, x)
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > x.shape[dim]:
        raise RuntimeError(f"maximum size for tensor at dimension {dim} is {x.shape[dim]} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if size == 0:
        return _empty_windows(x, dim, step)
    return prim.window(x, dims=(dim,), size=(size,), stride=(step,), dilation=(1,))


def _empty_windows(x: Any, dim: int, step: int) -> Any:
    """Windows without elements: as many as there are starts, plus the end."""
    count = x.shape[dim] // step + 1
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :], 0)
    empty = take_slice(x, dim, 0, 0)
    return prim.reshape(empty, shape=shape)


# ***** several parts at once *****


def parts_view(schema: str, **options: Any) -> Callable[[Callable[..., Cut]], Operator]:
    """Declare a view operator by the function that says where it cuts its input: body and layouts follow from it."""

    def declare(where: Callable[..., Cut]) -> Operator:
        @functools.wraps(where)
        def body(x: Any, *args: Any, **kwargs: Any) -> list[Any]:
            return taken(x, where(x, *args, **kwargs))

        return view(schema, cut=where, **options)(body)

    return declare


def _by_sizes(dim: int, sizes: Sequence[int]) -> Cut:
    """Parts of these sizes, one after the other."""
    stops = list(itertools.accumulate(sizes))
    return Cut(dim, list(zip([0, *stops[:-1]], stops, strict=True)))


def _joined(cts: Sequence[Any], x: Any, dim: int, sizes: Sequence[int]) -> Any:
    """The cotangent of a value cut into parts: the parts' cotangents joined, zeros where one is missing."""
    whole = []
    for ct, size in zip(cts, sizes, strict=True):
        shape = (*x.shape[:dim], size, *x.shape[dim + 1 :])
        whole.append(build.full(shape, 0, x.dtype) if ct is None else ct)
    return prim.cat(*whole, dim=dim) if whole else build.zeros_like(x)


def _no_scalar(name: str, x: Any) -> None:
    if not x.shape:
        raise RuntimeError(
            f"{name} expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
            if name == "tensor_split"
            else f"{name} expects at least a 1-dimensional tensor"
        )


def _countable(parts: int) -> int:
    """The number of views to make; RuntimeError for more than memory holds."""
    if parts > 1 << 31:
        raise RuntimeError(f"a tensor cannot be cut into {parts} parts: their list would be larger than memory")
    return parts


def _split_sizes(x: Any, sections: Any, dim: int) -> list[int]:
    if isinstance(sections, (tuple, list)):
        sizes = [truncated(s) for s in sections]
        if any(s < 0 for s in sizes):
            raise RuntimeError(
                f"split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={sizes}"
            )
        total = sum(sizes)
        if not require_equal(total, x.shape[dim]) and total != x.shape[dim]:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {x.shape[dim]} (input tensor's size at dimension {dim}), but got "
                f"split_sizes={sizes}"
            )
        for end in itertools.accumulate(sizes[:-1]):
            require_between(x.shape[dim] - end, 0, math.inf)
        return sizes
    size = truncated(sections)
    if size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    if size == 0:
        if x.shape[dim] != 0:
            raise RuntimeError(
                f"split_size can only be 0 if dimension size is 0, but got dimension size of {x.shape[dim]}"
            )
        return [0]
    whole, rest = divmod(x.shape[dim], size)
    return [size] * _countable(whole) + ([rest] if rest or not whole else [])


@parts_view("split(Tensor input, ints split_size_or_sections, int dim=0) -> Tensor[]",
      node=lambda split_size_or_sections, **_: "SplitBackward0" if isinstance(split_size_or_sections, int) else "SplitWithSizesBackward0")  # fmt: skip
def split(x: Any, split_size_or_sections: Any, dim: int) -> Cut:
    """out[k] = input[..., k size:(k + 1) size, ...]: parts of one size (the last may be smaller), or of the sizes
    listed, along dim."""
    return _split(x, split_size_or_sections, dim)


def _split(x: Any, sections: Any, dim: int) -> Cut:
    _no_scalar("split", x)
    dim = wrap(dim, x)
    return _by_sizes(dim, _split_sizes(x, sections, dim))


@split.gradient
def _(cts: Any, outs: Any, x: Any, split_size_or_sections: Any, dim: int) -> Any:
    dim = wrap(dim, x)
    return _joined(_as_list(cts), x, dim, _split_sizes(x, split_size_or_sections, dim))


def _as_list(cts: Any) -> list[Any]:
    return list(cts) if isinstance(cts, (tuple, list)) else [cts]


@parts_view("split_with_sizes(Tensor input, int[] split_sizes, int dim=0) -> Tensor[]")
def split_with_sizes(x: Any, split_sizes: Any, dim: int) -> Cut:
    """out[k] = the next sizes[k] indices of input along dim."""
    return _split(x, tuple(split_sizes), dim)


@split_with_sizes.gradient
def _(cts: Any, outs: Any, x: Any, split_sizes: Any, dim: int) -> Any:
    return _joined(_as_list(cts), x, wrap(dim, x), split_sizes)


def _chunk_sizes(x: Any, chunks: int, dim: int) -> list[int]:
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = -(-x.shape[dim] // chunks)
    if size == 0:
        return [0] * chunks
    return _split_sizes(x, size, dim)


@parts_view("chunk(Tensor input, int chunks, int dim=0) -> Tensor[]",
      node=lambda input, dim, **_: "SplitBackward0" if input.shape[dim] != 0 else "SplitWithSizesBackward0")  # fmt: skip
def chunk(x: Any, chunks: int, dim: int) -> Cut:
    """parts of ceil(n / chunks) indices along a dim of size n, at most `chunks`; the last may be smaller."""
    _no_scalar("chunk", x)
    dim = wrap(dim, x)
    return _by_sizes(dim, _chunk_sizes(x, chunks, dim))


@chunk.gradient
def _(cts: Any, outs: Any, x: Any, chunks: int, dim: int) -> Any:
    dim = wrap(dim, x)
    return _joined(_as_list(cts), x, dim, _chunk_sizes(x, chunks, dim))


def _tensor_split_sizes(x: Any, where: Any, dim: int) -> list[tuple[int, int]]:
    """(start, stop) of every part."""
    size = x.shape[dim]
    if isinstance(where, int):
        if where <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {where}")
        small, rest = divmod(size, _countable(where))
        sizes = [small + 1] * rest + [small] * (where - rest)
        return list(_by_sizes(dim, sizes).bounds)
    bounds = []
    start = 0
    for stop in [*where, size]:
        low, high = slice_bounds(start, stop, size)
        bounds.append((low, max(low, high)))
        start = stop
    return bounds


@parts_view("tensor_split(Tensor input, ints indices_or_sections, int dim=0) -> Tensor[]", node="SliceBackward0")
def tensor_split(x: Any, indices_or_sections: Any, dim: int) -> Cut:
    """parts of n // sections indices along a dim of size n, the first n % sections one longer; or parts that end at the
    indices listed."""
    return _tensor_split(x, indices_or_sections, dim)


def _tensor_split(x: Any, where: Any, dim: int) -> Cut:
    _no_scalar("tensor_split", x)
    dim = wrap(dim, x)
    return Cut(dim, _tensor_split_sizes(x, where, dim))


def _even(name: str, x: Any, where: Any, dim: int) -> Cut:
    if isinstance(where, int) and (where <= 0 or x.shape[dim] % where):
        raise RuntimeError(
            f"{name} attempted to split along dimension {dim}, but the size of the dimension {x.shape[dim]} is not divisible by the split_size {where}!"
        )
    return _tensor_split(x, where, dim)


def _least(name: str, x: Any, ndim: int) -> None:
    if len(x.shape) < ndim:
        raise RuntimeError(
            f"torch.{name} requires a tensor with at least {ndim} dimension, but got a tensor with {len(x.shape)} dimensions!"
        )


@parts_view("hsplit(Tensor input, ints indices_or_sections) -> Tensor[]", node="SliceBackward0")
def hsplit(x: Any, indices_or_sections: Any) -> Cut:
    """tensor_split(input, ..., dim=1): along columns; along dim 0 for vectors."""
    _least("hsplit", x, 1)
    return _even("torch.hsplit", x, indices_or_sections, 0 if len(x.shape) == 1 else 1)


@parts_view("vsplit(Tensor input, ints indices_or_sections) -> Tensor[]", node="SliceBackward0")
def vsplit(x: Any, indices_or_sections: Any) -> Cut:
    """tensor_split(input, ..., dim=0): along rows."""
    _least("vsplit", x, 2)
    return _even("torch.vsplit", x, indices_or_sections, 0)


@parts_view("dsplit(Tensor input, ints indices_or_sections) -> Tensor[]", node="SliceBackward0")
def dsplit(x: Any, indices_or_sections: Any) -> Cut:
    """tensor_split(input, ..., dim=2): along depth."""
    _least("dsplit", x, 3)
    return _even("torch.dsplit", x, indices_or_sections, 2)


@parts_view("unbind(Tensor input, int dim=0) -> Tensor[]")
def unbind(x: Any, dim: int) -> Cut:
    """out[k] = input[..., k, ...] for all indices k along dim; the dim is removed."""
    if not x.shape:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    dim = wrap(dim, x)
    return Cut(dim, [(i, i + 1) for i in range(_countable(x.shape[dim]))], drops=True)


@unbind.gradient
def _(cts: Any, outs: Any, x: Any, dim: int) -> Any:
    dim = wrap(dim, x)
    raised = [None if ct is None else build.expand_dims(ct, (dim,)) for ct in _as_list(cts)]
    return _joined(raised, x, dim, [1] * len(raised))
