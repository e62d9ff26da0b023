"""Transposing, choosing and joining sparse tensors: the indices move, values come along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import SPARSE_LAYOUTS, Tensor
from rushlight._interface.autograd import record
from rushlight._interface.tensors import wrap_dim
from rushlight.sparse.layouts import convert
from rushlight.sparse.parts import block_shape, coalesce, is_sparse, pick, values_of, with_values
from rushlight.sparse.tensors import (
    COO,
    WORDS,
    CompressedTensor,
    SparseBase,
    SparseTensor,
    adopt,
    backend_of,
    bare,
    into_out,
    make_compressed,
    make_coo,
)

__all__: list[str] = []

_SWAPPED = {
    "sparse_csr": "sparse_csc",
    "sparse_csc": "sparse_csr",
    "sparse_bsr": "sparse_bsc",
    "sparse_bsc": "sparse_bsr",
}


# ***** transposing *****


def _permuted(x: Any, order: Sequence[int]) -> Any:
    """A tensor in coordinates with its dims in another order; sparse and dense dims stay apart."""
    n = x._where.size(0)
    sparse, dense = list(order[:n]), list(order[n:])
    if any(d >= n for d in sparse):
        raise RuntimeError(
            "permute(sparse_coo): transpositions between sparse and dense dimensions are not allowed."
            f"Found transpositions between dimensions {list(order)}"
        )
    where = x._where[sparse] if sparse != list(range(n)) else x._where
    held = x._held.permute(0, *[d - n + 1 for d in dense])
    kept = x._sorted and sparse == list(range(n))
    return make_coo(where, held, [x.shape[d] for d in order], kept)


def permute(x: Any, order: Sequence[int], node: str) -> Any:
    """Another order of dims; backward has the inverse order."""
    if sorted(order) != list(range(x.dim())):
        if len(order) != x.dim():
            raise RuntimeError(
                f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of dimensions "
                f"i.e. input.dim() = {x.dim()} is not equal to len(dims) = {len(order)}"
            )
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    inverse = [list(order).index(d) for d in range(len(order))]
    made = _permuted(bare(x), order) if type(x) is SparseTensor else _swapped(bare(x), order)

    def rule(grad: Any) -> tuple[Any]:
        return (grad.permute(inverse) if not is_sparse(grad) else permute(grad, inverse, node),)

    return record(node, [x], made, rule)


def _swapped(x: Any, order: Sequence[int]) -> Any:
    """A compressed tensor with rows and columns exchanged: the other layout over the same parts."""
    n = x._pointers.dim() - 1
    same = list(range(x.dim()))
    if list(order) == same:
        return bare(x)
    same[n], same[n + 1] = n + 1, n
    if list(order) != same:
        if sorted(order[:n]) == list(range(n)) and list(order[n:]) == list(range(n, x.dim())):
            lead = list(order[:n])
            first, second, values = (
                p.permute(*lead, *range(n, p.dim())).contiguous() for p in (x._pointers, x._others, x._held)
            )
            return make_compressed(x._format, first, second, values, [x.shape[d] for d in order])
        raise RuntimeError(
            f"transpose(): can only transpose dimensions of the same type (Batch, Sparse, Dense) of a tensor in layout {WORDS[x.layout.name]}"
        )
    held = x._held.transpose(n + 1, n + 2) if block_shape(x) else x._held
    return make_compressed(
        SPARSE_LAYOUTS[_SWAPPED[x._format.name]], x._pointers, x._others, held, [x.shape[d] for d in order]
    )


def _swap(x: Any, first: int, second: int, node: str = "TransposeBackward0") -> Any:
    order = list(range(x.dim()))
    if not order:
        return x
    a, b = wrap_dim(first, x.dim()), wrap_dim(second, x.dim())
    order[a], order[b] = b, a
    return permute(x, order, node)


@SparseBase.implements("transpose", "swapaxes", "swapdims")
def _transpose(function: Any, input: Any, dim0: int, dim1: int) -> Any:
    n = input._where.size(0) if type(input) is SparseTensor else 0
    if n and max(wrap_dim(dim0, input.dim()), wrap_dim(dim1, input.dim())) >= n:
        raise RuntimeError(
            f"sparse transpose: transposed dimensions must be sparse Got sparse_dim: {n}, d0: {dim0}, d1: {dim1}"
        )
    return _swap(input, dim0, dim1)


def _transpose_in_place(self: Any, dim0: int, dim1: int) -> Any:
    """`transpose` in place."""
    _refuse_in_place(self)
    return adopt(self, _transpose(None, self, dim0, dim1))


def _refuse_in_place(x: Any) -> None:
    if type(x) is CompressedTensor:
        raise RuntimeError(
            f"torch.transpose_: in-place transposition is not supported for {WORDS[x.layout.name]} layout"
        )


@SparseBase.implements("t")
def _t(function: Any, input: Any) -> Any:
    if input.dim() > 2:
        raise RuntimeError(
            f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {input.dim()}D tensor"
        )
    return _swap(input, 0, 1, "TBackward0") if input.dim() == 2 else input


def _t_in_place(self: Any) -> Any:
    """`t` in place."""
    _refuse_in_place(self)
    return adopt(self, _t(None, self))


def _squeeze_in_place(self: Any, *dims: Any) -> Any:
    """Raises `NotImplementedError`, as in PyTorch."""
    raise NotImplementedError(f"Could not run 'aten::squeeze_' with arguments from the '{backend_of(self)}' backend.")


# Methods of the class and not handlers: Tensor's own change the strides of what they are called on, and do not ask.
for _name, _method in (
    ("t_", _t_in_place),
    ("transpose_", _transpose_in_place),
    ("swapaxes_", _transpose_in_place),
    ("swapdims_", _transpose_in_place),
    ("squeeze_", _squeeze_in_place),
    ("unsqueeze_", _squeeze_in_place),
):
    setattr(SparseBase, _name, _method)


@SparseBase.implements("mT", "H", "mH", "adjoint")
def _(function: Any, input: Any) -> Any:
    made = _swap(input, -2, -1)
    return made.conj() if getattr(function, "__name__", "") in ("H", "mH", "adjoint") and input.is_complex() else made


@SparseTensor.implements("T")
def _(function: Any, input: Any) -> Any:
    return permute(input, range(input.dim() - 1, -1, -1), "PermuteBackward0")


@SparseTensor.implements("permute")
def _(function: Any, input: Any, *dims: Any, **kwargs: Any) -> Any:
    given = kwargs.get("dims", dims)
    order = list(given[0]) if len(given) == 1 and not isinstance(given[0], int) else list(given)
    return permute(input, [wrap_dim(d, input.dim()) for d in order], "PermuteBackward0")


@SparseTensor.implements("movedim", "moveaxis")
def _(function: Any, input: Any, source: Any, destination: Any) -> Any:
    ndim = input.dim()
    start = [wrap_dim(d, ndim) for d in ([source] if isinstance(source, int) else source)]
    end = [wrap_dim(d, ndim) for d in ([destination] if isinstance(destination, int) else destination)]
    places: list[int | None] = [None] * ndim
    for a, b in zip(start, end, strict=True):
        places[b] = a
    rest = iter(d for d in range(ndim) if d not in start)
    return permute(input, [next(rest) if p is None else p for p in places], "PermuteBackward0")


# ***** choosing entries *****


def _chosen(x: Any, kept: Tensor, where: Tensor, shape: Sequence[int], in_order: bool, node: str) -> Any:
    """The entries `kept` of the coalesced tensor `x` at new places; an entry may be taken several times."""
    pattern = bare(x)
    held = pattern._held[kept]
    made = make_coo(where, held, shape, in_order) if where.size(0) else held.sum(0, dtype=held.dtype)
    taken = bare(made) if is_sparse(made) else None

    def rule(grad: Any) -> tuple[Any]:
        picked = pick(grad, taken) if taken is not None else grad.unsqueeze(0).expand(kept.numel(), *grad.shape)
        values = pattern._held.new_zeros(pattern._held.shape).index_add(0, kept, picked)
        return (with_values(pattern, values),)

    return record(node, [x], made, rule)


def _by_values(x: Any, values: Tensor, shape: Sequence[int], node: str) -> Any:
    """A change of dense dims alone, made by `values`, which has its own history."""
    made = make_coo(x._where, values, shape, x._sorted)
    return with_values(made, values, node)


@SparseBase.implements("select")
def select(function: Any, input: Any, dim: int, index: int) -> Any:
    """One slice along a dim: a tensor in coordinates, strided where no sparse dim is left."""
    ndim = input.dim()
    if not ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim, size = wrap_dim(dim, ndim), input.shape[wrap_dim(dim, ndim)]
    if not -size <= index < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {dim}"
        )
    index = index + size if index < 0 else index
    shape = [s for d, s in enumerate(input.shape) if d != dim]
    if type(input) is CompressedTensor:
        batch = input._pointers.dim() - 1
        if dim < batch or dim >= batch + 2:
            return _select_compressed(input, dim, index, shape)
        if batch:
            raise RuntimeError(
                "select(): selecting sparse dimensions is not supported for batched sparse compressed tensors."
            )
        input = convert(input, COO)
    x, n = coalesce(input), input._where.size(0)
    if dim >= n:
        return _by_values(bare(x), values_of(x).select(dim - n + 1, index), shape, "SelectBackward0")
    kept = (x._where[dim] == index).nonzero().reshape(-1)
    where = x._where[[d for d in range(n) if d != dim]][:, kept] if n > 1 else x._where.new_empty((0, kept.numel()))
    return _chosen(x, kept, where, shape, False, "SelectBackward0")


def _select_compressed(x: Any, dim: int, index: int, shape: Sequence[int]) -> Any:
    """One slice along a dim of the batch, or along a dense one: the layout stays."""
    batch, pointers, others = x._pointers.dim() - 1, x._pointers, x._others
    if dim < batch:
        pointers, others, place = pointers.select(dim, index), others.select(dim, index), dim
    else:
        place = dim - 1 + len(block_shape(x))  # rows and columns are one dim of the values, beside those of blocks
    values = values_of(x).select(place, index)
    return with_values(make_compressed(x.layout, pointers, others, values, shape), values, "SelectBackward0")


@SparseTensor.implements("index_select")
def _(function: Any, input: Any, dim: int, index: Tensor, *, out: Any = None) -> Any:
    dim = wrap_dim(dim, input.dim())
    if index.dim() != 1 or index.dtype not in (rushlight.int64, rushlight.int32):
        raise IndexError(
            f"index_select() argument index must be 1-D and of an integer type, got {index.dim()} dims of {index.dtype}"
        )
    size = input.shape[dim]
    index = index.long()
    if index.numel() and not bool(((index >= -size) & (index < size)).all()):
        raise IndexError(
            f"index_select(): index contains an entry that is out of range for tensor of size {list(input.shape)} at dimension {dim}"
        )
    index = rushlight.where(index < 0, index + size, index)
    x, n = coalesce(input), input._where.size(0)
    shape = [index.numel() if d == dim else s for d, s in enumerate(x.shape)]
    if dim >= n:
        return into_out(
            _by_values(bare(x), values_of(x).index_select(dim - n + 1, index), shape, "IndexSelectBackward0"), out
        )
    order = index.argsort(stable=True)
    ranked, line = index[order].contiguous(), x._where[dim].contiguous()
    first = rushlight.searchsorted(ranked, line)
    counts = rushlight.searchsorted(ranked, line, right=True) - first
    kept = rushlight.arange(line.numel(), device=line.device).repeat_interleave(counts)
    place = order[first[kept] + rushlight.arange(kept.numel(), device=line.device) - (counts.cumsum(0) - counts)[kept]]
    by_place = place.argsort(stable=True)
    kept, place = kept[by_place], place[by_place]
    where = x._where[:, kept]
    where = rushlight.stack([place if d == dim else where[d] for d in range(n)])
    return into_out(_chosen(x, kept, where, shape, False, "IndexSelectBackward0"), out)


@SparseTensor.implements("narrow_copy")
def _(function: Any, input: Any, dim: int, start: int, length: int, *, out: Any = None) -> Any:
    dim = wrap_dim(dim, input.dim())
    size = input.shape[dim]
    if length < 0 or start < 0 or start + length > size:
        raise RuntimeError(f"Invalid range to narrow. range(start, start+length) must be a subset of range(0, {size}).")
    x, n = coalesce(input), input._where.size(0)
    shape = [length if d == dim else s for d, s in enumerate(x.shape)]
    if dim >= n:
        return into_out(
            _by_values(bare(x), values_of(x).narrow(dim - n + 1, start, length), shape, "NarrowCopyBackward0"), out
        )
    line = x._where[dim]
    kept = ((line >= start) & (line < start + length)).nonzero().reshape(-1)
    where = rushlight.stack([x._where[d][kept] - (start if d == dim else 0) for d in range(n)])
    return into_out(_chosen(x, kept, where, shape, True, "NarrowCopyBackward0"), out)


@SparseBase.implements("unbind")
def _(function: Any, input: Any, dim: int = 0) -> Any:
    dim = wrap_dim(dim, input.dim())
    return tuple([select(None, input, dim, k) for k in range(input.shape[dim])])


@SparseBase.implements("__iter__")
def _(function: Any, self: Any) -> Any:
    return iter(self.unbind(0))


@SparseBase.implements("__getitem__")
def _(function: Any, self: Any, index: Any) -> Any:
    items = list(index) if isinstance(index, tuple) else [index]
    count = builtin_sum(1 for i in items if i is not None and i is not ...)
    if ... in [i for i in items if not isinstance(i, Tensor)]:
        place = next(k for k, i in enumerate(items) if i is ...)
        items[place : place + 1] = [slice(None)] * (self.dim() - count)
    made, dim = self, 0
    for item in items:
        if (
            isinstance(item, Tensor)
            and item.dim() == 0
            and not item.dtype.is_floating_point
            and item.dtype is not rushlight.bool
        ):
            item = int(item)
        if item is None:
            made, dim = made.unsqueeze(dim), dim + 1
        elif isinstance(item, int) and not isinstance(item, bool):
            made = made.select(dim, item)
        elif isinstance(item, slice) and item == slice(None):
            dim += 1
        else:
            what = "as_strided" if isinstance(item, slice) else "index.Tensor"
            if type(self) is CompressedTensor and isinstance(item, slice):
                raise RuntimeError(f"Sparse {self.layout.name[7:].upper()} tensors do not have strides")
            raise NotImplementedError(
                f"Could not run 'aten::{what}' with arguments from the '{backend_of(self)}' backend."
            )
    return made


@SparseBase.implements("__setitem__")
def _(function: Any, self: Any, index: Any, value: Any) -> Any:
    raise TypeError("Cannot assign to a sparse tensor")


builtin_sum = sum


# ***** joining *****


@SparseTensor.implements("cat", "concat", "concatenate")
def cat(function: Any, tensors: Any, dim: int = 0, *, out: Any = None) -> Any:
    """Tensors in coordinates one after the other along a sparse or a dense dim."""
    given = list(tensors)
    odd = next((t for t in given if not is_sparse(t)), None)
    if odd is not None or any(type(t) is not SparseTensor for t in given):
        raise RuntimeError(
            "cat(): all tensors must be sparse in coordinates where one is, got layouts "
            + ", ".join(WORDS[t.layout.name] for t in given)
        )
    first = given[0]
    dim, n = wrap_dim(dim, first.dim()), first._where.size(0)
    for t in given:
        if t._where.size(0) != n or t.dim() != first.dim():
            raise RuntimeError(
                f"All tensors must have the same sizes: {list(first.shape)}... and the same number of sparse dimensions as the first tensor "
                f"({n}), but got {list(t.shape)} and {t._where.size(0)}"
            )
        if any(a != b for d, (a, b) in enumerate(zip(first.shape, t.shape, strict=True)) if d != dim):
            raise RuntimeError(
                f"All tensors must have the same shape: {list(first.shape)} (except in the concatenating dimension), got {list(t.shape)}"
            )
    joined = _joined(given, dim, n)
    counts = [t._where.size(1) for t in given]
    patterns = [bare(t) for t in given]
    plain = bare(joined)

    def rule(grad: Any) -> list[Any]:
        values, found, start, offset = pick(grad, plain), [], 0, 0
        for pattern, count in zip(patterns, counts, strict=True):
            part = values.narrow(0, start, count)
            if dim >= n:
                part = part.narrow(dim - n + 1, offset, pattern.shape[dim])
            found.append(with_values(pattern, part))
            start, offset = start + count, offset + pattern.shape[dim]
        return found

    return into_out(record("CatBackward0", given, joined, rule), out)


def _joined(given: list[Any], dim: int, n: int) -> Any:
    shape = list(given[0].shape)
    shape[dim] = builtin_sum(t.shape[dim] for t in given)
    wheres, values, offset = [], [], 0
    for t in given:
        where, held = t._where, t._held
        if dim < n:
            where = rushlight.stack([where[d] + (offset if d == dim else 0) for d in range(n)])
        else:
            wide = held.new_zeros((held.size(0), *shape[n:]))
            wide.narrow(dim - n + 1, offset, t.shape[dim]).copy_(held)
            held = wide
        offset += t.shape[dim]
        wheres.append(where)
        values.append(held)
    return make_coo(rushlight.cat(wheres, 1), rushlight.cat(values, 0), shape, False)


@CompressedTensor.implements("cat", "concat", "concatenate", "stack", "vstack", "hstack")
def _(function: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
    first = next(t for t in tensors if type(t) is CompressedTensor)
    raise RuntimeError(f"Sparse {first.layout.name[7:].upper()} tensors do not have is_contiguous")


@SparseTensor.implements("vstack", "row_stack")
def _(function: Any, tensors: Any, *, out: Any = None) -> Any:
    return cat(None, [t.unsqueeze(0) if t.dim() == 1 else t for t in tensors], 0, out=out)


@SparseTensor.implements("hstack")
def _(function: Any, tensors: Any, *, out: Any = None) -> Any:
    return cat(None, tensors, 0 if tensors[0].dim() == 1 else 1, out=out)


@SparseTensor.implements("stack")
def _(function: Any, tensors: Any, dim: int = 0, *, out: Any = None) -> Any:
    return cat(None, [t.unsqueeze(dim) for t in tensors], dim, out=out)


@SparseTensor.implements("unsqueeze")
def _(function: Any, input: Any, dim: int) -> Any:
    ndim, n = input.dim(), input._where.size(0)
    dim = wrap_dim(dim, ndim + 1)
    shape = [*input.shape[:dim], 1, *input.shape[dim:]]
    if dim > n:
        x = coalesce(input) if input._rg else input
        return _by_values(bare(x), values_of(x).unsqueeze(dim - n + 1), shape, "UnsqueezeBackward0")
    where = input._where
    rows = [where[d] for d in range(n)]
    rows.insert(dim, where.new_zeros((where.size(1),)))
    made = make_coo(rushlight.stack(rows), input._held, shape, False)

    def rule(grad: Any) -> tuple[Any]:
        return (select(None, grad, dim, 0) if is_sparse(grad) else grad.squeeze(dim),)

    return record("UnsqueezeBackward0", [input], made, rule)


@SparseBase.implements("expand", "expand_as", "broadcast_to", "repeat", "tile")
def _(function: Any, input: Any, *sizes: Any, **kwargs: Any) -> Any:
    if not is_sparse(input):  # only the template is sparse
        return input.expand(sizes[0].shape)
    raise RuntimeError(f"expand is unsupported for {WORDS[input.layout.name]} tensors")


@SparseTensor.implements("reshape", "reshape_as", "flatten", "view_as", "ravel", "unflatten")
def _(function: Any, input: Any, *sizes: Any, **kwargs: Any) -> Any:
    if not is_sparse(input):
        return input.reshape(sizes[0].shape)
    raise RuntimeError("reshape is not implemented for sparse tensors")
