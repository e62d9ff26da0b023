"""Shape operators that need new memory: joining, repeating, flipping, padding, triangles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import ge, le
from typing import Any

from rushlight._ops.bodies import (
    along,
    check_range,
    common,
    format_of_all,
    like_input,
    not_implemented,
    pad_dim,
    slice_bounds,
    take_slice,
    wrap,
)
from rushlight._ops.shapes.views import diagonal_of
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import BOOL, FLOAT8, INT64
from rushlight._types.layout import image_strides, numel, preserved, wrap_dim
from rushlight._types.shape_env import require_equal

__all__: list[str] = []


# ***** joining *****


def _no_tensors(name: str, tensors: Sequence[Any]) -> None:
    if not tensors:
        raise (ValueError if name == "cat" else RuntimeError)(
            "torch.cat(): expected a non-empty list of Tensors"
            if name == "cat"
            else f"{name} expects a non-empty TensorList"
        )


def _joined(name: str, tensors: Sequence[Any], dim: int) -> Any:
    """Tensors joined along a dim; a 1-dim tensor without elements is left out, as in PyTorch."""
    _no_tensors("cat", tensors)
    values = common(tensors)
    for i, x in enumerate(values):
        if not x.shape:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    kept = [x for x in values if x.shape != (0,)]
    if not kept:  # any dim will do
        return values[0]
    first = kept[0]
    dim = wrap(dim, first)
    for i, x in enumerate(kept):
        if len(x.shape) != len(first.shape):
            raise RuntimeError(
                f"Tensors must have same number of dimensions: got {len(first.shape)} and {len(x.shape)}"
            )
        for d, (n, m) in enumerate(zip(first.shape, x.shape, strict=True)):
            if d != dim and not require_equal(n, m) and n != m:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size {n} but got size {m} for tensor number {i} in the list."
                )
    return prim.cat(*kept, dim=dim)


@operator(
    "cat(Tensor[] tensors, int dim=0) -> Tensor",
    method=False,
    out=True,
    like=format_of_all,
    aliases=("concat", "concatenate"),
    tags=("apart",),
)
def cat(tensors: Sequence[Any], dim: int) -> Any:
    """out.shape[dim] = sum of the sizes there: tensors joined along a dim; their other sizes are equal."""
    return _joined("cat", tensors, dim)


def _one_shape(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two shapes are equal; sizes without a value are taken to be."""
    return len(shape) == len(other) and all(require_equal(a, b) or a == b for a, b in zip(shape, other, strict=True))


def _stacked(tensors: Sequence[Any], dim: int) -> Any:
    _no_tensors("stack", tensors)
    first = tensors[0]
    for i, x in enumerate(tensors):
        if not _one_shape(x.shape, first.shape):
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first.shape)} at entry 0 and {list(x.shape)} at entry {i}"
            )
    at = wrap_dim(dim, len(first.shape) + 1)
    return prim.cat(*(build.expand_dims(x, (at,)) for x in common(tensors)), dim=at)


@operator("stack(Tensor[] tensors, int dim=0) -> Tensor", method=False, out=True)
def stack(tensors: Sequence[Any], dim: int) -> Any:
    """out[..., k, ...] = tensors[k]: tensors of one shape along a new dim."""
    return _stacked(tensors, dim)


def _at_least(x: Any, ndim: int) -> Any:
    """PyTorch's rule for `hstack` and its kin: numbers become rows, rows become matrices, matrices get a third dim at
    the end."""
    if ndim >= 1 and not x.shape:
        x = build.reshape(x, (1,))
    if ndim >= 2 and len(x.shape) == 1:
        x = build.reshape(x, (1, *x.shape))
    return build.reshape(x, (*x.shape, 1)) if ndim >= 3 and len(x.shape) == 2 else x


@operator("hstack(Tensor[] tensors) -> Tensor", method=False, out=True, like=format_of_all, node="CatBackward0")
def hstack(tensors: Sequence[Any]) -> Any:
    """Joined along dim 1, or dim 0 for vectors."""
    _no_tensors("hstack", tensors)
    raised = [_at_least(x, 1) for x in tensors]
    return _joined("hstack", raised, 0 if len(raised[0].shape) == 1 else 1)


@operator(
    "vstack(Tensor[] tensors) -> Tensor",
    method=False,
    out=True,
    like=format_of_all,
    aliases=("row_stack",),
    node="CatBackward0",
)
def vstack(tensors: Sequence[Any]) -> Any:
    """Joined along dim 0, vectors as rows."""
    _no_tensors("vstack", tensors)
    return _joined("vstack", [_at_least(x, 2) for x in tensors], 0)


@operator("dstack(Tensor[] tensors) -> Tensor", method=False, out=True, like=format_of_all, node="CatBackward0")
def dstack(tensors: Sequence[Any]) -> Any:
    """Joined along dim 2."""
    _no_tensors("dstack", tensors)
    return _joined("dstack", [_at_least(x, 3) for x in tensors], 2)


@operator("column_stack(Tensor[] tensors) -> Tensor", method=False, out=True, like=format_of_all, node="CatBackward0")
def column_stack(tensors: Sequence[Any]) -> Any:
    """hstack((x if x.ndim > 1 else x[:, None])): joined along dim 1, vectors as columns."""
    _no_tensors("column_stack", tensors)
    raised = [build.reshape(x, (numel(x.shape), 1)) if len(x.shape) <= 1 else x for x in tensors]
    return _joined("column_stack", raised, 1)


@operator("block_diag_core(Tensor[] tensors) -> Tensor", spaces=(), method=False, node="BlockDiagBackward0")
def block_diag_core(tensors: Sequence[Any]) -> Any:
    """Matrices along the diagonal, 0 elsewhere."""
    blocks = [_at_least(x, 2) for x in common(tensors)]
    width, at, rows = sum(b.shape[1] for b in blocks), 0, []
    for block in blocks:
        rows.append(pad_dim(block, 1, at, width - at - block.shape[1]))
        at += block.shape[1]
    return prim.cat(*rows, dim=0)


# ***** turning *****


def _flip_dims(x: Any, dims: Sequence[int]) -> tuple[int, ...]:
    wrapped = tuple(wrap(d, x) for d in dims)
    if len(set(wrapped)) != len(wrapped):
        raise RuntimeError(
            f"dim {next(d for d in wrapped if wrapped.count(d) > 1)} appears multiple times in the list of dims"
        )
    return wrapped if x.shape else ()


def _flipped(x: Any, dims: Sequence[int]) -> Any:
    return prim.flip(x, dims=tuple(dims)) if dims else x


@operator("flip(Tensor input, int[] dims) -> Tensor", like=like_input)
def flip(x: Any, dims: Any) -> Any:
    """out[..., i, ...] = x[..., n - 1 - i, ...]: the order of elements along dims reversed."""
    return _flipped(x, _flip_dims(x, dims))


@operator("fliplr(Tensor input) -> Tensor", like=like_input, node="FlipBackward0")
def fliplr(x: Any) -> Any:
    """out[:, i] = x[:, n - 1 - i]: columns in reverse."""
    if len(x.shape) < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return _flipped(x, (1,))


@operator("flipud(Tensor input) -> Tensor", like=like_input, node="FlipBackward0")
def flipud(x: Any) -> Any:
    """out[i] = x[n - 1 - i]: rows in reverse."""
    if not x.shape:
        raise RuntimeError("Input must be >= 1-d.")
    return _flipped(x, (0,))


def _rotated_layout(shape: Any, specs: Any, arguments: Any) -> Any:
    """The layout of a flip, with the two dims exchanged for odd quarter turns; a row-major copy for no turn."""
    x, (_, k, (first, second)) = specs[0], arguments
    strides = list(preserved(x.shape, x.strides))
    if k % 2:
        strides[first], strides[second] = strides[second], strides[first]
    return tuple(strides) if k % 4 else None


@operator(
    "rot90(Tensor input, int k=1, int[] dims=[0, 1]) -> Tensor", like=_rotated_layout, tags=("laid_by_arguments",)
)
def rot90(x: Any, k: int, dims: Any) -> Any:
    """out[i, j] = x[j, n - 1 - i], k times over: rotated by k quarter turns from the first dim toward the second."""
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if len(x.shape) < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {len(x.shape)}")
    first, second = (wrap(d, x) for d in dims)
    if first == second:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    perm = list(range(len(x.shape)))
    perm[first], perm[second] = second, first
    quarter = k % 4
    if quarter == 1:
        return build.transpose(_flipped(x, (second,)), perm)
    if quarter == 2:
        return _flipped(x, (first, second))
    return build.transpose(_flipped(x, (first,)), perm) if quarter == 3 else x


@operator("roll(Tensor input, int[1] shifts, int[1] dims=[]) -> Tensor",
          like=lambda shape, specs: specs[0].strides if 0 in shape else image_strides(shape, specs[0].shape, specs[0].strides),
          tags=("sized",))  # fmt: skip
def roll(x: Any, shifts: Any, dims: Any) -> Any:
    """out[..., (i + shift) % n, ...] = x[..., i, ...]: elements moved cyclically along dims; without dims in the
    flattened input."""
    if not shifts:
        raise RuntimeError("`shifts` required")
    if dims or len(shifts) != 1:
        if len(shifts) != len(dims):
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
        if not x.shape:
            raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    return _moved_round(x, shifts, dims, 1)


@roll.gradient
def _(ct: Any, out: Any, x: Any, shifts: Any, dims: Any) -> Any:
    return _moved_round(ct, shifts, dims, -1)


def _moved_round(x: Any, shifts: Any, dims: Any, sign: int) -> Any:
    if not dims:
        return _rolled_flat(x, len(x.shape) - 1, sign * shifts[0] % numel(x.shape)) if x.shape and numel(x.shape) else x
    along: dict[int, int] = {}
    for shift, dim in zip(shifts, dims, strict=True):
        along[wrap(dim, x)] = along.get(wrap(dim, x), 0) + sign * shift
    return _rolled(x, tuple(along.items()))


def _rolled_flat(x: Any, dim: int, shift: int) -> Any:
    """x with the elements of dims 0 to `dim`, taken as one, moved: an element that leaves a row at its end enters the
    next one."""
    if dim == 0:
        return _rolled(x, ((0, shift),))
    size = x.shape[dim]
    rows, columns = divmod(shift, size)
    first = _rolled_flat(take_slice(x, dim, 0, size - columns), dim - 1, rows)
    return (
        prim.cat(_rolled_flat(take_slice(x, dim, size - columns, size), dim - 1, rows + 1), first, dim=dim)
        if columns
        else first
    )


def _rolled(x: Any, moves: tuple[tuple[int, int], ...]) -> Any:
    """x with elements of each dim moved; it is joined from slices of x, each copied as a whole."""
    if not moves:
        return x
    (dim, shift), rest = moves[0], moves[1:]
    size = x.shape[dim]
    shift = shift % size if size else 0
    if shift == 0:
        return _rolled(x, rest)
    return prim.cat(
        *(_rolled(take_slice(x, dim, *piece), rest) for piece in ((size - shift, size), (0, size - shift))), dim=dim
    )


# ***** repeating *****


@operator("repeat(Tensor input, int[] repeats) -> Tensor", spaces=(), tags=("sized",))
def repeat(x: Any, repeats: Any) -> Any:
    """out[..., i, ...] = x[..., i % n, ...]: x repeated along each dim; more repeats than dims make new dims in front."""
    if len(repeats) < len(x.shape):
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    if any(n < 0 for n in repeats):
        raise RuntimeError(f"Repeats must be non-negative, got {list(repeats)}")
    lead = len(repeats) - len(x.shape)
    sizes = (1,) * lead + x.shape
    shape = tuple(n for both in zip(repeats, sizes, strict=True) for n in both)
    dims = tuple(2 * d + 1 for d in range(lead, len(sizes)))
    spread = prim.broadcast(x, shape=shape, dims=dims)
    return build.reshape(spread, [n * size for n, size in zip(repeats, sizes, strict=True)])


@operator("tile(Tensor input, int[] dims) -> Tensor", node="RepeatBackward0", tags=("sized",))
def tile(x: Any, dims: Any) -> Any:
    """`repeat`, in which missing repeats in front count as 1."""
    return repeat(x, (1,) * max(len(x.shape) - len(dims), 0) + tuple(dims))


@operator("repeat_interleave(Tensor input, int repeats, int? dim=None) -> Tensor", name="repeat_interleave_core", spaces=(), method=False,
          node="ViewBackward0", tags=("sized",))  # fmt: skip
def repeat_interleave_core(x: Any, repeats: int, dim: int | None) -> Any:
    """out[..., i, ...] = x[..., i // repeats, ...]: each element repeated along dim (of the flattened input without
    one)."""
    if repeats < 0:
        raise RuntimeError("Repeats must be non-negative")
    if dim is None:
        x, dim = build.reshape(x, (numel(x.shape),)), 0
    at = wrap(dim, x)
    x = x if x.shape else build.reshape(x, (1,))
    shape = (*x.shape[: at + 1], repeats, *x.shape[at + 1 :])
    spread = prim.broadcast(x, shape=shape, dims=tuple(d for d in range(len(shape)) if d != at + 1))
    return build.reshape(spread, (*x.shape[:at], x.shape[at] * repeats, *x.shape[at + 1 :]))


# ***** padding *****


def _pad_pairs(x: Any, pad: Sequence[int]) -> list[tuple[int, int, int]]:
    """(dim, before, after), from PyTorch's list, which starts at the last dim."""
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(pad) // 2 > len(x.shape):
        raise RuntimeError(
            f"Padding length should be less than or equal to two times the input dimension but got padding length {len(pad)} and "
            f"input of dimension {len(x.shape)}"
        )
    return [(len(x.shape) - 1 - i, pad[2 * i], pad[2 * i + 1]) for i in range(len(pad) // 2)]


def _reflected(x: Any, dim: int, before: int, after: int) -> Any:
    """Mirrored at the edge, which is not repeated."""
    size = x.shape[dim]
    if before >= size or after >= size:
        raise RuntimeError(
            f"Argument #4: Padding size should be less than the corresponding input dimension, but got: padding ({before}, {after}) at dimension "
            f"{dim} of input {list(x.shape)}"
        )
    parts = [_mirror(x, dim, 1, before + 1)] if before > 0 else []
    parts.append(take_slice(x, dim, max(-before, 0), size - max(-after, 0)))
    parts += [_mirror(x, dim, size - 1 - after, size - 1)] if after > 0 else []
    return prim.cat(*parts, dim=dim)


def _mirror(x: Any, dim: int, start: int, stop: int) -> Any:
    return prim.flip(take_slice(x, dim, start, stop), dims=(dim,))


def _replicated(x: Any, dim: int, before: int, after: int) -> Any:
    """The edge repeated."""
    size = x.shape[dim]

    def edge(at: int, count: int) -> Any:
        return build.broadcast_to(take_slice(x, dim, at, at + 1), (*x.shape[:dim], count, *x.shape[dim + 1 :]))

    parts = [edge(0, before)] if before > 0 else []
    parts.append(take_slice(x, dim, max(-before, 0), size - max(-after, 0)))
    parts += [edge(size - 1, after)] if after > 0 else []
    return prim.cat(*parts, dim=dim)


def _wrapped(x: Any, dim: int, before: int, after: int) -> Any:
    """Padding from the opposite side."""
    size = x.shape[dim]
    if before > size or after > size:
        raise RuntimeError("Padding value causes wrapping around more than once.")
    if size + before + after < 0:
        raise RuntimeError("Negative padding value is resulting in an empty dimension")
    x = take_slice(x, dim, max(-before, 0), size - max(-after, 0))
    size = x.shape[dim]
    parts = [take_slice(x, dim, size - before, size)] if before > 0 else []
    parts.append(x)
    parts += [take_slice(x, dim, 0, after)] if after > 0 else []
    return prim.cat(*parts, dim=dim)


_MODES = {"reflect": _reflected, "replicate": _replicated, "circular": _wrapped}


def _pad_node(mode: str = "constant", pad: Any = (), **_: Any) -> str:
    dims = len(pad) // 2
    return {
        "reflect": f"ReflectionPad{dims}DBackward0",
        "replicate": f"ReplicationPad{dims}DBackward0",
        "circular": "CopySlices",
    }.get(mode, "ConstantPadNdBackward0")


def _pad_layout(shape: Any, specs: Any, arguments: Any) -> Any:
    """Channels last if the input is, except for circular padding."""
    return None if arguments[2] == "circular" else image_strides(shape, specs[0].shape, specs[0].strides)


@operator("pad(Tensor input, int[] pad, str mode='constant', float? value=None) -> Tensor", spaces=("nn.functional",), method=False,
          like=_pad_layout, tags=("laid_by_arguments", "sized"), node=_pad_node)  # fmt: skip
def pad(x: Any, pad: Any, mode: str, value: float | None) -> Any:
    """out[..., i + left, ...] = x[..., i, ...]: room around x, from the last dim on, filled with `value` or from x;
    negative pads cut off."""
    pairs = _pad_pairs(x, pad)
    if mode == "constant":
        lo, hi = [0] * len(x.shape), [0] * len(x.shape)
        for dim, before, after in pairs:
            lo[dim], hi[dim] = before, after
            if x.shape[dim] + before + after < 0:
                raise RuntimeError(
                    f"The input size {x.shape[dim]}, plus negative padding {before} and {after} resulted in a negative output size, "
                    "which is invalid."
                )
        return _constant_pad(x, lo, hi, value or 0)
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode not in _MODES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if not (len(pairs) == len(x.shape) - 2 or len(pairs) == len(x.shape) - 1) or not 1 <= len(pairs) <= 3:
        raise NotImplementedError("Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now")
    if any(size == 0 for size in x.shape[len(x.shape) - len(pairs) :]) or any(s == 0 for s in x.shape[1:]):
        raise RuntimeError(
            f"Expected {len(pairs) + 1}D or {len(pairs) + 2}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: {list(x.shape)}"
        )
    if mode != "circular":
        if x.dtype is BOOL or x.dtype in FLOAT8:
            raise not_implemented(f"{'reflection' if mode == 'reflect' else 'replication'}_pad{len(pairs)}d", x.dtype)
        if len(x.shape) == len(pairs) + 1 and not x.shape[0]:
            raise RuntimeError(
                f"{mode} padding of a single input expects at least one channel, but got: {list(x.shape)}"
            )
    for dim, before, after in pairs:
        if before or after:
            x = _MODES[mode](x, dim, before, after)
    return x


def _constant_pad(x: Any, lo: Sequence[int], hi: Sequence[int], value: Any) -> Any:
    """Cuts come first: RuntimeError if one removes more than there is, though the other side may make up for it."""
    for d, (size, a, b) in enumerate(zip(x.shape, lo, hi, strict=True)):
        if min(a, b) < 0 and size + min(a, 0) + min(b, 0) < 0:
            raise RuntimeError(
                f"padding ({a}, {b}) cuts off more than the {size} elements of dim {d}: narrow(): length must be non-negative."
            )
    check_range(value, x.dtype)
    starts = tuple(max(-a, 0) for a in lo)
    stops = tuple(n - max(-b, 0) for n, b in zip(x.shape, hi, strict=True))
    if any(starts) or stops != x.shape:
        x = prim.slice(x, starts=starts, stops=stops, steps=(1,) * len(x.shape))
    return build.pad(x, [max(a, 0) for a in lo], [max(b, 0) for b in hi], [0] * len(x.shape), value=value)


@operator(
    "constant_pad_nd(Tensor input, int[] pad, Scalar value=0) -> Tensor",
    static=("value",),
    method=False,
    tags=("sized",),
)
def constant_pad_nd(x: Any, pad: Any, value: Any) -> Any:
    """pad(input, pad, "constant", value)."""
    lo, hi = [0] * len(x.shape), [0] * len(x.shape)
    for dim, before, after in _pad_pairs(x, pad):
        lo[dim], hi[dim] = before, after
    return _constant_pad(x, lo, hi, value)


# ***** triangles and diagonals *****


def _triangle(name: str, doc: str, inside: Callable[[Any, Any], Any]) -> None:
    def body(x: Any, diagonal: int) -> Any:
        if len(x.shape) < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        last = len(x.shape) - 1
        row, column = (along(x.shape, d) for d in (last - 1, last))
        bound = max(-x.shape[-2] - 1, min(diagonal, x.shape[-1] + 1))
        return build.select(inside(column - row, bound), x, 0)

    operator(
        f"{name}(Tensor input, int diagonal=0) -> Tensor",
        out="exact",
        inplace=True,
        inplace_spaces=(),
        tags=("sized",),
        doc=doc,
    )(body)


_triangle("tril", "What lies on and below a diagonal, 0 elsewhere.", le)
_triangle("triu", "What lies on and above a diagonal, 0 elsewhere.", ge)


def _embedded(x: Any, offset: int, dim1: int, dim2: int) -> Any:
    """The last dim on the diagonal of two new dims."""
    ndim = len(x.shape) + 1
    first, second = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    size = x.shape[-1] + abs(offset)
    lead = x.shape[:-1]
    rows = pad_dim(x, len(lead), max(-offset, 0), max(offset, 0))
    shape = (*lead, size, size)
    spread = prim.broadcast(rows, shape=shape, dims=tuple(range(len(lead) + 1)))
    row, column = (along(shape, d) for d in (ndim - 2, ndim - 1))
    square = build.select(build.eq(column - row, offset), spread, 0)
    rest = iter(range(ndim - 2))
    perm = [ndim - 2 if d == first else ndim - 1 if d == second else next(rest) for d in range(ndim)]
    return build.transpose(square, perm)


@operator("diag_embed(Tensor input, int offset=0, int dim1=-2, int dim2=-1) -> Tensor")
def diag_embed(x: Any, offset: int, dim1: int, dim2: int) -> Any:
    """The last dim on a diagonal of two new dims, 0 elsewhere."""
    if not x.shape:
        raise IndexError("Dimension out of range: diag_embed expects at least a 1-dimensional tensor")
    return _embedded(x, offset, dim1, dim2)


@operator("diagflat(Tensor input, int offset=0) -> Tensor", node="DiagEmbedBackward0")
def diagflat(x: Any, offset: int) -> Any:
    """out[i, i + offset] = x.flat[i], 0 elsewhere."""
    return _embedded(build.reshape(x, (numel(x.shape),)), offset, 0, 1)


@operator(
    "diag(Tensor input, int diagonal=0) -> Tensor",
    out="exact",
    node=lambda input, diagonal: "DiagEmbedBackward0" if len(input.shape) == 1 else "DiagonalBackward0_copy",
)
def diag(x: Any, diagonal: int) -> Any:
    """out[i, i + diagonal] = x[i] for a vector; out[i] = x[i, i + diagonal] for a matrix."""
    if len(x.shape) == 1:
        return _embedded(x, diagonal, 0, 1)
    if len(x.shape) != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {len(x.shape)}D")
    return diagonal_of(x, diagonal, 0, 1)


@operator("diagonal_scatter(Tensor input, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor", like=like_input)
def diagonal_scatter(x: Any, src: Any, offset: int, dim1: int, dim2: int) -> Any:
    """out[i, i + offset] = src[i], `input` elsewhere."""
    first, second = wrap(dim1, x), wrap(dim2, x)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    shape = diagonal_of(x, offset, first, second).shape
    if src.shape != shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = {list(shape)}"
        )
    rest = [d for d in range(len(x.shape)) if d not in (first, second)]
    perm = (*rest, first, second)
    moved = build.transpose(x, perm)
    ndim = len(perm)
    rows = pad_dim(
        build.convert(src, x.dtype), ndim - 2, max(-offset, 0), moved.shape[-2] - max(-offset, 0) - src.shape[-1]
    )
    spread = prim.broadcast(rows, shape=moved.shape, dims=tuple(range(ndim - 1)))
    row, column = (along(moved.shape, d) for d in (ndim - 2, ndim - 1))
    start = max(-offset, 0)
    here = build.eq(column - row, offset) & (row >= start) & (row < start + src.shape[-1])
    return build.transpose(build.select(here, spread, moved), sorted(range(ndim), key=perm.__getitem__))


def _patched(x: Any, src: Any, dim: int, start: int, stop: int, step: int) -> Any:
    """`x` with src at start:stop:step along dim."""
    count = (stop - start + step - 1) // step
    wanted = (*x.shape[:dim], count, *x.shape[dim + 1 :])
    if src.shape != wanted:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = {list(wanted)}"
        )
    if count == 0:
        return x
    lo, hi, gap = ([0] * len(x.shape) for _ in range(3))
    lo[dim], hi[dim], gap[dim] = start, x.shape[dim] - start - (count - 1) * step - 1, step - 1
    spread = build.pad(build.convert(src, x.dtype), lo, hi, gap)
    at = prim.iota(shape=x.shape, dim=dim, dtype=INT64) - start
    inside = (at >= 0) & (at < (count - 1) * step + 1)
    if step > 1:
        inside = inside & build.eq(prim.rem_trunc(at, build.full_like(at, step)), 0)
    return build.select(inside, spread, x)


@operator("select_scatter(Tensor input, Tensor src, int dim, int index) -> Tensor", like=like_input, tags=("sized",))
def select_scatter(x: Any, src: Any, dim: int, index: int) -> Any:
    """out[..., index, ...] = src, `input` elsewhere."""
    at = wrap(dim, x)
    if not x.shape or not -x.shape[at] <= index < x.shape[at]:
        raise IndexError(
            f"select_scatter(): index {index} out of range for tensor of size {list(x.shape)} at dimension {dim}"
        )
    index = index + x.shape[at] if index < 0 else index
    wanted = (*x.shape[:at], *x.shape[at + 1 :])
    if src.shape != wanted:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = {list(wanted)}"
        )
    return _patched(x, build.expand_dims(src, (at,)), at, index, index + 1, 1)


@operator(
    "slice_scatter(Tensor input, Tensor src, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor",
    out=True,
    like=like_input,
    tags=("sized",),
)
def slice_scatter(x: Any, src: Any, dim: int, start: int | None, end: int | None, step: int) -> Any:
    """out[..., start:end:step, ...] = src, `input` elsewhere."""
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    at = wrap(dim, x)
    first, last = slice_bounds(start, end, x.shape[at])
    return _patched(x, src, at, first, max(first, last), step)


# ***** channels and pixels *****


@operator(
    "pixel_shuffle(Tensor input, int upscale_factor) -> Tensor",
    spaces=("torch", "nn.functional"),
    method=False,
    like="image",
)
def pixel_shuffle(x: Any, upscale_factor: int) -> Any:
    """[*, C r^2, H, W] as [*, C, H r, W r]."""
    if len(x.shape) < 3:
        raise RuntimeError(
            f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {len(x.shape)} dimension(s)"
        )
    r = upscale_factor
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *lead, channels, height, width = x.shape
    if channels % (r * r):
        raise RuntimeError(
            f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but input.size(-3)={channels} "
            f"is not divisible by {r * r}"
        )
    n = len(lead)
    split = build.reshape(x, (*lead, channels // (r * r), r, r, height, width))
    moved = build.transpose(split, (*range(n + 1), n + 3, n + 1, n + 4, n + 2))
    return build.reshape(moved, (*lead, channels // (r * r), height * r, width * r))


@operator(
    "pixel_unshuffle(Tensor input, int downscale_factor) -> Tensor",
    spaces=("torch", "nn.functional"),
    method=False,
    like="image",
)
def pixel_unshuffle(x: Any, downscale_factor: int) -> Any:
    """[*, C, H r, W r] as [*, C r^2, H, W]."""
    if len(x.shape) < 3:
        raise RuntimeError(
            f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {len(x.shape)} dimension(s)"
        )
    r = downscale_factor
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *lead, channels, height, width = x.shape
    for size, what, dim in ((height, "height", -2), (width, "width", -1)):
        if size % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {what} to be divisible by downscale_factor, but input.size({dim})={size} is not divisible by {r}"
            )
    n = len(lead)
    split = build.reshape(x, (*lead, channels, height // r, r, width // r, r))
    moved = build.transpose(split, (*range(n + 1), n + 2, n + 4, n + 1, n + 3))
    return build.reshape(moved, (*lead, channels * r * r, height // r, width // r))


@operator("channel_shuffle(Tensor input, int groups) -> Tensor", spaces=("torch", "nn.functional"), method=False, like="image",
          aliases=("native_channel_shuffle",))  # fmt: skip
def channel_shuffle(x: Any, groups: int) -> Any:
    """[*, g (C / g), H, W] as [*, (C / g) g, H, W]: channels of the groups interleaved."""
    if len(x.shape) < 3:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(x.shape)}")
    batch, channels, *space = x.shape
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if channels % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {channels} channels and {groups} groups."
        )
    split = build.reshape(x, (batch, groups, channels // groups, *space))
    return build.reshape(build.transpose(split, (0, 2, 1, *range(3, len(split.shape)))), x.shape)
