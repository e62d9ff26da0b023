"""Views, and what moves elements without looking at them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add, mul
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight.onnx.exporting.numbers import arithmetic
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.values import Value, dims_text

np: Any = LazyModule("numpy")

END = 2**63 - 1


def resized(call: Call, x: Value, sizes: Sequence[Any], shape: Any) -> Value:
    """The elements in the shape that the result has; `sizes` where that is symbolic."""
    if shape is not None and all(type(s) is int for s in shape):
        return call.reshape(x, list(shape), shape=shape)
    return call.reshape(x, list(sizes), shape=shape)


@translates(
    "aten::view",
    "aten::reshape",
    "aten::_unsafe_view",
    "aten::_reshape_alias",
    "aten::view_copy",
    "aten::_reshape_copy",
)
def view(call: Call, x: Value, sizes: Sequence[Any], *_: Any) -> Value:
    return resized(call, x, sizes, call.shape)


@translates("aten::view_as", "aten::reshape_as")
def view_as(call: Call, x: Value, other: Value) -> Value:
    return call.reshape(x, call.dims(other), shape=call.shape)


@translates("aten::flatten.using_ints")
def flatten(call: Call, x: Value, start: int = 0, end: int = -1) -> Value:
    if not x.ndim:
        return call.reshape(x, [1])
    first, last = start % x.ndim, end % x.ndim
    dims = call.dims(x)
    known = all(isinstance(d, int) for d in dims[first : last + 1])
    middle = call.product(dims[first : last + 1]) if known or 0 in dims else -1
    return resized(call, x, [*dims[:first], middle, *dims[last + 1 :]], call.shape)


@translates("aten::unflatten.int")
def unflatten(call: Call, x: Value, dim: int, sizes: Sequence[Any]) -> Value:
    dims = call.dims(x)
    return resized(call, x, [*dims[: dim % x.ndim], *sizes, *dims[dim % x.ndim + 1 :]], call.shape)


@translates("aten::ravel")
def ravel(call: Call, x: Value) -> Value:
    return resized(call, x, [-1], call.shape)


@translates("aten::unsqueeze", "aten::unsqueeze_copy")
def unsqueeze(call: Call, x: Value, dim: int) -> Value:
    return call.unsqueeze(x, [dim])


@translates(
    "aten::squeeze",
    "aten::squeeze.dim",
    "aten::squeeze.dims",
    "aten::squeeze_copy",
    "aten::squeeze_copy.dim",
    "aten::squeeze_copy.dims",
)
def squeeze(call: Call, x: Value, dim: Any = None) -> Value:
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return call.squeeze(x, [d for d in dims if x.shape and x.shape[d] == 1])


@translates("aten::permute", "aten::permute_copy")
def permute(call: Call, x: Value, dims: Sequence[int]) -> Value:
    return call.transpose(x, [d % x.ndim for d in dims])


@translates("aten::transpose.int", "aten::transpose_copy.int", "aten::swapaxes", "aten::swapdims")
def transpose(call: Call, x: Value, first: int, second: int) -> Value:
    if not x.ndim:
        return x
    perm = list(range(x.ndim))
    a, b = first % x.ndim, second % x.ndim
    perm[a], perm[b] = b, a
    return call.transpose(x, perm)


@translates("aten::t", "aten::numpy_T", "aten::t_copy", "aten::mT", "aten::adjoint", "aten::mH", "aten::matrix_H")
def turned(call: Call, x: Value) -> Value:
    if x.ndim < 2:
        return x
    if "T" in call.name and "mT" not in call.name:
        return call.transpose(x, list(range(x.ndim))[::-1])
    return transpose(call, x, -1, -2)


@translates("aten::movedim.int", "aten::movedim.intlist", "aten::moveaxis.int", "aten::moveaxis.intlist")
def movedim(call: Call, x: Value, source: Any, target: Any) -> Value:
    sources = [s % x.ndim for s in ([source] if isinstance(source, int) else source)]
    targets = [t % x.ndim for t in ([target] if isinstance(target, int) else target)]
    rest = iter([d for d in range(x.ndim) if d not in sources])
    placed = dict(zip(targets, sources, strict=True))
    return call.transpose(x, [placed[d] if d in placed else next(rest) for d in range(x.ndim)])


@translates("aten::expand", "aten::broadcast_to", "aten::expand_copy")
def expand(call: Call, x: Value, sizes: Sequence[Any], *, implicit: bool = False) -> Value:
    if call.shape == x.shape:
        return x
    if all(type(s) is int for s in call.shape or ("",)):
        return call.expand(x, list(call.shape), shape=call.shape)
    # ONNX's Expand keeps a dim where it is asked for 1.
    return call.expand(x, [1 if isinstance(s, int) and s == -1 else s for s in sizes], shape=call.shape)


@translates("aten::expand_as")
def expand_as(call: Call, x: Value, other: Value) -> Value:
    return call.expand(x, call.shape_vector(other), shape=call.shape)


@translates("aten::broadcast_tensors")
def broadcast_tensors(call: Call, tensors: Sequence[Value]) -> list[Value]:
    made = []
    for i, x in enumerate(tensors):
        shape = call.results[i][1]
        if x.shape == shape:
            made.append(x)
            continue
        if not all(type(s) is int for s in shape):
            raise call.refuse("symbolic sizes", "use expand with the sizes")
        made.append(call.expand(x, list(shape), shape=shape))
    return made


@translates("aten::slice.Tensor", "aten::slice_copy.Tensor")
def slice_(call: Call, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Value:
    start = 0 if start is None else start
    end = END if end is None else end
    if isinstance(start, int) and isinstance(end, int) and start == 0 and end >= END and step == 1:
        return x
    if (
        x.shape == call.shape
        and isinstance(start, int)
        and start == 0
        and step == 1
        and all(type(s) is int for s in x.shape or ())
    ):
        return x
    return call.slice(x, dim, start, end, step, shape=call.shape)


@translates("aten::narrow", "aten::narrow_copy")
def narrow(call: Call, x: Value, dim: int, start: Any, length: Any) -> Value:
    if isinstance(start, int) and start < 0:
        start = arithmetic(call, add, call.dim(x, dim), start)
    return call.slice(x, dim, start, arithmetic(call, add, start, length), shape=call.shape)


@translates("aten::select.int", "aten::select_copy.int")
def select(call: Call, x: Value, dim: int, index: Any) -> Value:
    at = call.scalar(index, rushlight.int64)
    return call.gather(x, at, dim % x.ndim, shape=call.shape)


@translates("aten::cat", "aten::concat", "aten::concatenate")
def cat(call: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    kept = [t for t in tensors if t.shape != (0,)] or [tensors[0]]  # PyTorch leaves empty vectors out
    return call.concat([call.cast(t, call.dtype) for t in kept], dim, shape=call.shape)


@translates("aten::stack")
def stack(call: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    place = dim % (len(call.shape or ()) or 1)
    return call.concat([call.unsqueeze(call.cast(t, call.dtype), [place]) for t in tensors], place, shape=call.shape)


def _pieces(call: Call, x: Value, dim: int, sizes: Sequence[Any]) -> list[Value]:
    if len(sizes) == 1:
        return [x]
    vector = call.ints(sizes)
    return call.ops("Split", x, vector, results=[(x.dtype, shape) for _, shape in call.results], axis=dim)


def _result_sizes(call: Call, dim: int) -> list[Any]:
    sizes = [shape[dim] for _, shape in call.results]
    if not all(type(s) is int for s in sizes):
        raise call.refuse("a dim of symbolic size", "give the sizes of the pieces")
    return sizes


@translates("aten::split.Tensor", "aten::chunk", "aten::unsafe_split.Tensor", "aten::unsafe_chunk", "aten::split_copy.Tensor",
            "aten::tensor_split.sections", "aten::tensor_split.indices", "aten::hsplit.int", "aten::vsplit.int")  # fmt: skip
def split(call: Call, x: Value, size: Any, dim: int = 0) -> list[Value]:
    dim = {"aten::hsplit.int": 1, "aten::vsplit.int": 0}.get(call.name, dim)
    sizes = [shape[dim] for _, shape in call.results]
    if all(type(s) is int for s in sizes) or "split.Tensor" not in call.name:
        return _pieces(call, x, dim, _result_sizes(call, dim))
    made, step = [], size
    for i, (_, shape) in enumerate(call.results):
        start = arithmetic(call, _mul, step, i)
        end = END if i + 1 == len(call.results) else arithmetic(call, _mul, step, i + 1)
        made.append(call.slice(x, dim, start, end, shape=shape))
    return made


def _mul(a: Any, b: Any) -> Any:
    return a * b


@translates(
    "aten::split_with_sizes", "aten::split.sizes", "aten::unsafe_split_with_sizes", "aten::split_with_sizes_copy"
)
def split_with_sizes(call: Call, x: Value, sizes: Sequence[Any], dim: int = 0) -> list[Value]:
    return _pieces(call, x, dim, sizes)


@translates("aten::unbind.int", "aten::unbind_copy.int")
def unbind(call: Call, x: Value, dim: int = 0) -> list[Value]:
    return [
        call.gather(x, call.const(i, rushlight.int64), dim % x.ndim, shape=shape)
        for i, (_, shape) in enumerate(call.results)
    ]


@translates("aten::flip", "aten::fliplr", "aten::flipud")
def flip(call: Call, x: Value, dims: Sequence[int] | None = None) -> Value:
    return flipped(call, x, {"aten::fliplr": [1], "aten::flipud": [0]}.get(call.name, dims or []))


def flipped(call: Call, x: Value, dims: Sequence[int]) -> Value:
    """Elements of these dims in reverse order."""
    if not dims or not x.ndim:
        return x
    axes = call.ints([d % x.ndim for d in dims])
    ends = [call.ints([n] * len(dims)) for n in (-1, -END, -1)]
    return call.op("Slice", x, ends[0], ends[1], axes, ends[2], shape=x.shape)


@translates("aten::roll")
def roll(call: Call, x: Value, shifts: Sequence[Any], dims: Sequence[int] | None = None) -> Value:
    shifts, dims = [shifts] if isinstance(shifts, int) else shifts, [dims] if isinstance(dims, int) else dims
    if not dims:
        flat = call.reshape(x, [-1], shape=(dims_text(-1),))
        return call.reshape(_rolled(call, flat, shifts[0], 0), call.dims(x), shape=call.shape)
    for shift, d in zip(shifts, dims, strict=True):
        x = _rolled(call, x, shift, d)
    return x


def _rolled(call: Call, x: Value, shift: Any, dim: int) -> Value:
    size = x.shape[dim] if x.shape else None
    if isinstance(size, int) and isinstance(shift, int):
        if not size or not shift % size:
            return x
        shift = shift % size
    elif not isinstance(shift, int):
        raise call.refuse("a symbolic shift")
    if shift == 0:
        return x
    tail, head = call.slice(x, dim, -shift, END), call.slice(x, dim, 0, -shift)
    return call.concat([tail, head], dim, shape=x.shape)


@translates("aten::repeat", "aten::tile")
def repeat(call: Call, x: Value, times: Sequence[Any]) -> Value:
    times = list(times)
    if len(times) < x.ndim:
        times = [1] * (x.ndim - len(times)) + times
    x = call.unsqueeze(x, list(range(len(times) - x.ndim)))
    if all(isinstance(t, int) and t == 1 for t in times):
        return x
    return call.out("Tile", x, call.ints(times))


@translates("aten::repeat_interleave.self_int")
def repeat_interleave(call: Call, x: Value, times: Any, dim: int | None = None, *, output_size: Any = None) -> Value:
    if dim is None or not x.ndim:
        x, dim = call.reshape(x, [-1], shape=("n",)), 0
    dim %= x.ndim
    wide = call.unsqueeze(x, [dim + 1])
    wide = call.op("Tile", wide, call.ints([times if d == dim + 1 else 1 for d in range(x.ndim + 1)]))
    dims = call.dims(x)
    size = -1 if not isinstance(dims[dim], int) else arithmetic(call, mul, dims[dim], times)
    return resized(call, wide, [*dims[:dim], size, *dims[dim + 1 :]], call.shape)


@translates("aten::diagonal", "aten::diagonal_copy", "aten::linalg_diagonal")
def diagonal(call: Call, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Indices of both dims as one, of the two dims taken together."""
    if call.name == "aten::linalg_diagonal":
        dim1, dim2 = -2, -1
    a, b = dim1 % x.ndim, dim2 % x.ndim
    rest = [d for d in range(x.ndim) if d not in (a, b)]
    last = call.transpose(x, [*rest, a, b])
    count, width = call.shape[-1], (x.shape or ())[b]
    if not isinstance(count, int) or not isinstance(width, int):
        raise call.refuse("a diagonal of symbolic size")
    first = offset if offset >= 0 else -offset * width
    places = call.ints([first + i * (width + 1) for i in range(count)])
    dims = call.dims(last)
    flat = call.reshape(last, [*dims[:-2], call.product(dims[-2:])], shape=(*(last.shape or ())[:-2], "n"))
    return call.gather(flat, places, x.ndim - 2, shape=call.shape)


@translates("aten::unfold", "aten::unfold_copy")
def unfold(call: Call, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows along a dim: a table of indices, whose second dim becomes the last."""
    if not x.ndim:
        return call.reshape(x, [1])
    dim %= x.ndim
    count = (call.shape or ())[dim]
    if isinstance(count, int):
        places = call.array(_grid(count, size, step), rushlight.int64)
    else:
        length = call.dim(x, dim)
        zero, one = call.const(0, rushlight.int64), call.const(1, rushlight.int64)
        starts = call.op(
            "Range",
            zero,
            call.op("Sub", call.scalar(length, rushlight.int64), call.const(size - 1, rushlight.int64)),
            call.const(step, rushlight.int64),
        )
        inner = call.op("Range", zero, call.const(size, rushlight.int64), one)
        places = call.op("Add", call.unsqueeze(starts, [1]), inner, shape=(count, size))
    made = call.gather(x, places, dim)
    return call.transpose(made, [d for d in range(x.ndim + 1) if d != dim + 1] + [dim + 1])


def _grid(count: int, size: int, step: int) -> Any:
    return np.arange(count, dtype=np.int64)[:, None] * step + np.arange(size, dtype=np.int64)


@translates("aten::as_strided", "aten::as_strided_copy")
def as_strided(call: Call, x: Value, sizes: Sequence[Any], strides: Sequence[Any], offset: Any = None) -> Value:
    """Elements at computed places of the flat tensor."""
    if not all(isinstance(n, int) for n in (*sizes, *strides)) or isinstance(offset, Value):
        raise call.refuse("symbolic sizes")
    places = np.full((), offset or 0, np.int64)
    for size, stride in zip(sizes, strides, strict=True):
        places = places[..., None] + np.arange(size, dtype=np.int64) * stride
    return call.gather(call.reshape(x, [-1], shape=("n",)), call.array(places), 0, shape=call.shape)


@translates("aten::pixel_shuffle", "aten::pixel_unshuffle")
def pixel_shuffle(call: Call, x: Value, factor: int) -> Value:
    lead = call.dims(x)
    x = call.reshape(x, [-1, *lead[-3:]], shape=("n", *(x.shape or ())[-3:])) if len(lead) != 4 else x
    if "unshuffle" in call.name:
        return _unshuffled(call, x, factor, lead)
    made = call.op("DepthToSpace", x, blocksize=factor, mode="CRD")
    if len(lead) == 4:
        return made
    return resized(call, made, [*lead[:-3], *call.dims(_shaped(made, 4))[-3:]], call.shape)


def _shaped(x: Value, ndim: int) -> Value:
    x.shape = x.shape or tuple(f"d{i}" for i in range(ndim))
    return x


def _unshuffled(call: Call, x: Value, factor: int, lead: list[Any]) -> Value:
    n, c, h, w = call.dims(x)
    if not isinstance(h, int) or not isinstance(w, int) or not isinstance(c, int):
        raise call.refuse("an image of symbolic size")
    split_ = call.reshape(x, [n, c, h // factor, factor, w // factor, factor], shape=tuple("abcdef"))
    moved = call.transpose(split_, [0, 1, 3, 5, 2, 4])
    return resized(call, moved, [*lead[:-3], c * factor * factor, h // factor, w // factor], call.shape)


@translates("aten::channel_shuffle", "aten::native_channel_shuffle")
def channel_shuffle(call: Call, x: Value, groups: int) -> Value:
    n, c, *rest = call.dims(x)
    parts = call.reshape(x, [n, groups, c // groups, *rest], shape=tuple(f"d{i}" for i in range(x.ndim + 1)))
    moved = call.transpose(parts, [0, 2, 1, *range(3, x.ndim + 1)])
    return resized(call, moved, [n, c, *rest], call.shape)


@translates("aten::meshgrid", "aten::meshgrid.indexing")
def meshgrid(call: Call, tensors: Sequence[Value], *, indexing: str = "ij") -> list[Value]:
    made = []
    for i, x in enumerate(tensors):
        place = {0: 1, 1: 0}.get(i, i) if indexing == "xy" and len(tensors) > 1 else i
        flat = call.reshape(x, [-1], shape=("n",)) if x.ndim != 1 else x
        wide = call.unsqueeze(flat, [d for d in range(len(tensors)) if d != place])
        shape = call.results[i][1]
        sizes = [call.dim(t, 0) if t.ndim else 1 for t in tensors]
        if indexing == "xy" and len(tensors) > 1:
            sizes[0], sizes[1] = sizes[1], sizes[0]
        made.append(call.expand(wide, sizes, shape=shape))
    return made


@translates("aten::atleast_1d", "aten::atleast_2d", "aten::atleast_3d")
def atleast(call: Call, x: Value) -> Value:
    return resized(call, x, list(call.shape or ()), call.shape)


__all__ = ["END", "resized", "transpose"]


@translates("aten::rot90")
def rot90(call: Call, x: Value, k: int = 1, dims: Sequence[int] = (0, 1)) -> Value:
    k, a, b = k % 4, dims[0] % x.ndim, dims[1] % x.ndim
    if k == 0:
        return x
    if k == 2:
        return flipped(call, x, [a, b])
    made = transpose(call, flipped(call, x, [b]) if k == 1 else x, a, b)
    return made if k == 1 else flipped(call, made, [b])


@translates("aten::diag_embed")
def diag_embed(call: Call, x: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """Each element where its row and its column are one diagonal."""
    size = x.shape[-1] if x.shape else None
    if not isinstance(size, int):
        raise call.refuse("a diagonal of symbolic size")
    wide, shift = size + abs(offset), max(-offset, 0)
    rank = x.ndim + 1
    keep = np.eye(wide, k=offset, dtype=np.bool_)
    places = np.clip(np.arange(wide) - shift, 0, max(size - 1, 0)).astype(np.int64)
    rows = call.unsqueeze(call.gather(x, call.array(places), x.ndim - 1), [x.ndim])
    made = call.op("Where", call.array(keep), rows, call.const(0, x.dtype), dtype=x.dtype)
    made.shape = (*(x.shape or ())[:-1], wide, wide)
    a, b = dim1 % rank, dim2 % rank
    order = list(range(rank - 2))
    for place, source in sorted(((a, rank - 2), (b, rank - 1))):
        order.insert(place, source)
    return call.transpose(made, order)


@translates("aten::block_diag")
def block_diag(call: Call, tensors: Sequence[Value]) -> Value:
    width = call.shape[1]
    if not isinstance(width, int):
        raise call.refuse("blocks of symbolic size")
    rows, start = [], 0
    for x in tensors:
        block = call.cast(call.reshape(x, [1] * (2 - x.ndim) + call.dims(x)), call.dtype)
        columns = (block.shape or ())[1]
        pads = call.ints([0, start, 0, width - start - columns])  # type: ignore[operator]
        rows.append(call.op("Pad", block, pads))
        start += columns  # type: ignore[operator]
    return call.concat(rows, 0, shape=call.shape)


@translates("aten::sum_to_size")
def sum_to_size(call: Call, x: Value, sizes: Sequence[Any]) -> Value:
    lead = x.ndim - len(sizes)
    summed = [d for d in range(x.ndim) if d < lead or sizes[d - lead] == 1 and (x.shape or ())[d] != 1]
    made = call.reduce("ReduceSum", x, summed, True) if summed else x
    return call.squeeze(made, list(range(lead)))
