"""From any layout to any other, by way of a list of entries: batch, row, column, value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import SPARSE_LAYOUTS, Tensor
from rushlight._interface.autograd import record
from rushlight.sparse.parts import (
    add_rows,
    block_shape,
    coalesce,
    flat_places,
    in_order,
    is_sparse,
    split_places,
    spots,
    to_dense,
)
from rushlight.sparse.tensors import WORDS, SparseTensor, bare, make_compressed, make_coo

__all__ = ["Entries", "convert", "dense_to_coo", "entries_of", "to_sparse"]

COO = SPARSE_LAYOUTS["sparse_coo"]


class Entries:
    """Single elements (dense dims left whole) of a batch of matrices: `values` (n, *dense) at (batch, row, column)."""

    __slots__ = ("batch", "column", "row", "shape", "sparse_dims", "values")

    def __init__(
        self, batch: Tensor, row: Tensor, column: Tensor, values: Tensor, shape: Sequence[int], sparse_dims: int
    ) -> None:
        self.batch, self.row, self.column, self.values = batch, row, column, values
        self.shape, self.sparse_dims = tuple(shape), sparse_dims

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        return self.shape[: self.sparse_dims - 2]

    @property
    def matrix(self) -> tuple[int, int]:
        rows, columns = self.shape[self.sparse_dims - 2 : self.sparse_dims]
        return rows, columns


def entries_of(x: Any) -> Entries:
    """The entries of a sparse tensor with at least two sparse dims, outside of any graph."""
    x = bare(x)
    if type(x) is SparseTensor:
        x = coalesce(x)
        n = x._where.size(0)
        batch = flat_places(x._where[: n - 2], tuple(x.shape[: n - 2])) if n > 2 else rushlight.zeros_like(x._where[0])
        return Entries(batch, x._where[n - 2], x._where[n - 1], x._held, x.shape, n)
    batch, row, column = spots(x)
    n, block = x._pointers.dim() - 1, block_shape(x)
    rest = tuple(x._held.shape[n + 1 + len(block) :])
    if block:
        high, wide = block
        count = batch.numel()
        batch = batch.reshape(-1, 1, 1).expand(count, high, wide).reshape(-1)
        row = (
            (row.reshape(-1, 1, 1) * high + rushlight.arange(high, device=row.device).reshape(1, -1, 1))
            .expand(count, high, wide)
            .reshape(-1)
        )
        column = (
            (column.reshape(-1, 1, 1) * wide + rushlight.arange(wide, device=row.device).reshape(1, 1, -1))
            .expand(count, high, wide)
            .reshape(-1)
        )
    return Entries(batch, row, column, x._held.reshape(-1, *rest), x.shape, n + 2)


def coo_of(entries: Entries) -> Any:
    """The entries in coordinates, in order."""
    sizes = (math.prod(entries.batch_sizes), *entries.matrix)
    places = flat_places(rushlight.stack([entries.batch, entries.row, entries.column]), sizes)
    return make_coo(
        split_places(places, (*entries.batch_sizes, *entries.matrix)), entries.values, entries.shape, in_order(places)
    )


def compressed_of(entries: Entries, layout: Any, block: tuple[int, ...]) -> Any:
    """The entries in a compressed layout; every batch must have as many as any other."""
    rows, columns = entries.matrix
    high, wide = block or (1, 1)
    by_row = layout.name in ("sparse_csr", "sparse_bsr")
    line, other = (entries.row // high, entries.column // wide) if block else (entries.row, entries.column)
    lines, across = rows // high, columns // wide
    if not by_row:
        line, other, lines, across = other, line, across, lines
    batches = math.prod(entries.batch_sizes)
    places = (entries.batch * lines + line) * across + other
    unique, inverse = rushlight.unique(places, return_inverse=True)
    rest = tuple(entries.values.shape[1:])
    if block:
        inside = (inverse * high + entries.row % high) * wide + entries.column % wide
        values = add_rows(inside, entries.values, unique.numel() * high * wide).reshape(-1, high, wide, *rest)
    else:
        values = entries.values[inverse.argsort()] if unique.numel() else entries.values
    counts = places.new_zeros(batches * lines)
    if unique.numel():
        counts = rushlight.bincount(unique // across, minlength=batches * lines)
    counts = counts.reshape(batches, lines)
    pointers = rushlight.cat([counts.new_zeros((batches, 1)), counts.cumsum(1)], 1)
    each = unique.numel() // batches if batches else 0
    if batches > 1 and not bool((pointers[:, -1] == each).all()):
        raise RuntimeError("Expect the same number of specified elements per batch.")
    lead = entries.batch_sizes
    others = (unique % across if unique.numel() else unique).reshape(*lead, each)
    return make_compressed(
        layout,
        pointers.reshape(*lead, lines + 1),
        others,
        values.reshape(*lead, each, *values.shape[1:]),
        entries.shape,
    )


def dense_to_coo(x: Tensor, sparse_dims: int) -> Any:
    """A strided tensor's places that are not zero; with dense dims a place counts when any element there is not zero."""
    if not x.dim():  # one value at no coordinate
        kept = x.reshape(1).nonzero().reshape(-1)
        return make_coo(kept.new_zeros((0, kept.numel())), x.reshape(1)[kept], (), True)
    there: Any = x != 0
    if sparse_dims < x.dim():
        there = there.flatten(sparse_dims).any(-1)
    where = there.nonzero().t().contiguous()
    return make_coo(where, x[tuple(where)], x.shape, True)


def _grad_rule(x: Any) -> Any:
    """Backward of a conversion: the gradient in the layout in which `x` came."""
    layout, block = x.layout, block_shape(x) if is_sparse(x) and x.layout is not COO else ()

    def rule(grad: Any) -> tuple[Any]:
        if layout is rushlight.strided:
            return (to_dense(grad),)
        if not is_sparse(grad) or grad.layout is layout:
            return (grad,)
        return (convert(grad, layout, block),)

    return rule


def convert(x: Any, layout: Any, block: tuple[int, ...] = ()) -> Any:
    """A sparse tensor in another layout; the gradient flows through."""
    if layout is COO:
        made = coalesce(bare(x)) if type(x) is SparseTensor else coo_of(entries_of(x))
    else:
        entries = entries_of(x)
        if block and any(s % b for s, b in zip(entries.matrix, block, strict=True)):
            raise RuntimeError(
                f"tensor sparse size {list(entries.matrix)} must be divisible by given blocksize {list(block)}"
            )
        made = compressed_of(entries, layout, block)
    return record("ToSparseBackward0", [x], made, _grad_rule(x))


def _blocksize(value: Any, name: str) -> tuple[int, ...]:
    if value is None:
        return ()
    size = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(size) != 2:
        raise RuntimeError(f"{name}: blocksize needs to be a tuple of size 2, but got {len(size)}")
    if any(b <= 0 for b in size):
        raise RuntimeError(f"{name}: blocksize needs to be positive, but got {list(size)}")
    return size


def to_sparse(x: Any, layout: Any, sparse_dim: int | None, blocksize: Any, dense_dim: int | None) -> Any:
    """The general conversion: from any layout to a sparse one, with PyTorch's refusals."""
    here, there = WORDS[x.layout.name], WORDS[layout.name]
    source = {"strided": "dense", "sparse_coo": "coo"}.get(x.layout.name, "sparse_compressed")
    name = f"{source}_to_{layout.name if layout is not COO else 'sparse'}"
    blocked = layout.name in ("sparse_bsr", "sparse_bsc")
    if blocked and blocksize is None:
        if is_sparse(x) and x.layout is layout:
            return x
        raise RuntimeError(
            f"{source}_to_sparse: conversion from {here} to {there} without blocksize argument given is not supported"
        )
    if not blocked and blocksize is not None:
        raise RuntimeError(
            f"{source}_to_sparse: conversion from {here} to {there} with blocksize argument given is not supported"
        )
    block = _blocksize(blocksize, name)
    if not is_sparse(x):
        return _from_dense(x, layout, block, sparse_dim, dense_dim, name)
    if dense_dim is not None and dense_dim != x.dense_dim():
        raise RuntimeError(
            f"{source}_to_sparse: conversion from {here} to {there} with dense_dim argument !=self.dense_dim() is not supported"
        )
    if layout is COO:
        wanted = x.sparse_dim() if type(x) is SparseTensor else 2
        if sparse_dim is not None and sparse_dim != wanted:
            said = "self.sparse_dim()" if type(x) is SparseTensor else "2"
            prefix = "to_sparse" if type(x) is SparseTensor else "sparse_compressed_to_sparse"
            raise RuntimeError(
                f"{prefix}: conversion from {here} to {there} with sparse_dim argument !={said} is not supported"
            )
    elif type(x) is SparseTensor and x.sparse_dim() != 2:
        raise RuntimeError(
            f"{name}: conversion from Sparse to {there} for input tensors with sparse_dim()!=2 is not supported"
        )
    if x.layout is layout and (not block or block == block_shape(x)):
        return x
    if type(x) is not SparseTensor and block_shape(x) and layout is not COO:
        if x.layout is layout:
            raise RuntimeError(
                f"to_{layout.name}: conversion from {here} to {there} with blocksize changed from {list(block_shape(x))} to {list(block)} is not "
                "supported"
            )
        if not blocked or block != block_shape(x):
            raise RuntimeError(f"{name}: expected SparseCsr or SparseCsc layout but got {here}")
    return convert(x, layout, block)


def _from_dense(
    x: Tensor, layout: Any, block: tuple[int, ...], sparse_dim: int | None, dense_dim: int | None, name: str
) -> Any:
    plain = x.detach()
    if layout is COO:
        n = x.dim() if sparse_dim is None else sparse_dim
        if not 0 <= n <= x.dim():
            raise RuntimeError(f"dense_to_sparse: sparse_dim argument must be in [0,{x.dim()}] range, but {n} is given")
        if x.dim() and not n:
            raise RuntimeError("dense_to_sparse: sparse_dim argument must be in >0 when self.dim()>0")
        return record("ToSparseBackward0", [x], dense_to_coo(plain, n), _grad_rule(x))
    n = x.dim() - (dense_dim or 0)
    if n < 2:
        raise IndexError(f"{name}: a matrix is needed: {x.dim()} dims, {dense_dim or 0} of them dense")
    if block and any(s % b for s, b in zip(x.shape[n - 2 : n], block, strict=True)):
        sizes = ",".join(map(str, x.shape[n - 2 : n]))
        raise RuntimeError(
            f"{name}: tensor sparse size ({sizes}) must be divisible by given blocksize ({','.join(map(str, block))})"
        )
    entries = entries_of(dense_to_coo(plain, n))
    return record("ToSparseBackward0", [x], compressed_of(entries, layout, block), _grad_rule(x))
