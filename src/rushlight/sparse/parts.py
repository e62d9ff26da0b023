"""Places and values: the arithmetic of indices, and the four maps from which the gradients of all sparse operators are
made.

`to_dense` and `pick` are each other's transposes, and so are `values_of` and `with_values`.  Each is recorded with the
other as its backward, so that derivatives of any order need no further code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.autograd import record
from rushlight.sparse.tensors import SparseBase, SparseTensor, bare, make_compressed, make_coo

__all__ = [
    "add_rows", "blocks_of", "coalesce", "from_blocks", "flat_places", "gather", "is_sparse", "like", "masked", "needs_dtype", "pick", "spots", "split_places",
    "to_dense", "values_of", "with_values",
]  # fmt: skip


SINGLE_AND_DOUBLE = frozenset(("float32", "float64", "complex64", "complex128"))


def needs_dtype(kernel: str, x: Any, *, only: frozenset[str] | None = None, never: tuple[str, ...] = ()) -> None:
    """Raise as PyTorch does where its kernel for the CPU lacks a dtype; those of GPUs have more."""
    name = x.dtype.name
    if x.device.type == "cuda":
        return
    if name in never or only is not None and name not in only:
        word = rushlight.empty(0, dtype=x.dtype, device="cpu").type().removeprefix("torch.").removesuffix("Tensor")
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{word}'")


def is_sparse(x: Any) -> bool:
    """Whether `x` is a sparse tensor of any layout."""
    return isinstance(x, SparseBase)


# ***** indices *****


def flat_places(where: Tensor, sizes: Sequence[int]) -> Tensor:
    """Each column of `where` (dims, n) as one number: its place in a row-major array of these sizes."""
    if where.size(0) == 1:
        return where[0]
    steps, step = [], 1
    for size in reversed(sizes):
        steps.append(step)
        step *= size
    return (where * rushlight.tensor(steps[::-1], dtype=rushlight.int64, device=where.device).reshape(-1, 1)).sum(0)


def split_places(places: Tensor, sizes: Sequence[int]) -> Tensor:
    """The inverse of `flat_places`."""
    if not sizes:
        return places.new_empty((0, places.numel()))
    rows: list[Tensor] = []
    for size in reversed(sizes):
        rows.append(places % size if size else places)
        places = places // size if size else places
    return rushlight.stack(rows[::-1])


def add_rows(places: Tensor, values: Tensor, count: int) -> Tensor:
    """(count, *rest): the rows of `values` added up at their places."""
    if values.dtype is rushlight.bool:
        return add_rows(places, values.to(rushlight.int32), count).to(rushlight.bool)
    return values.new_zeros((count, *values.shape[1:])).index_add(0, places, values)


def in_order(places: Tensor) -> bool:
    """Whether the numbers grow strictly."""
    return places.numel() < 2 or bool((places[1:] > places[:-1]).all())


def coalesce(x: Any) -> Any:
    """The same tensor with its coordinates in order and every one there once; values that met are added."""
    if x._sorted:
        return x
    n = x._where.size(0)
    sizes = tuple(x.shape[:n])
    where, values = x._where, x._held
    if where.size(1) > 1:
        places = flat_places(where, sizes) if n else where.new_zeros(where.size(1))
        if not in_order(places):
            unique, inverse = rushlight.unique(places, return_inverse=True)
            where, values = split_places(unique, sizes), add_rows(inverse, values, unique.numel())
        else:
            where, values = where.clone(), values.clone()
    else:
        where, values = where.clone(), values.clone()
    return record("CoalesceBackward0", [x], make_coo(where, values, x.shape, True), lambda grad: (grad,))


def same_places(a: Any, b: Any) -> bool:
    """Whether two sparse tensors share their indices, object for object."""
    if type(a) is not type(b) or a.shape != b.shape or a._held.shape != b._held.shape:
        return False
    if type(a) is SparseTensor:
        return a._where is b._where
    return a._format is b._format and a._pointers is b._pointers and a._others is b._others


# ***** the compressed layouts *****


def by_rows(x: Any) -> bool:
    """Whether rows are compressed (CSR, BSR) and not columns."""
    return x._format.name in ("sparse_csr", "sparse_bsr")


def block_shape(x: Any) -> tuple[int, ...]:
    """(height, width) of the blocks, () for layouts without."""
    if x._format.name in ("sparse_csr", "sparse_csc"):
        return ()
    n = x._pointers.dim()
    return tuple(x._held.shape[n : n + 2])


def spots(x: Any) -> tuple[Tensor, Tensor, Tensor]:
    """(batch, row, column) of each entry, batches after each other; rows and columns count blocks where there are
    blocks.
    """
    lead = math.prod(x._pointers.shape[:-1])
    pointers, others = x._pointers.reshape(lead, x._pointers.size(-1)).long(), x._others.reshape(-1).long()
    counts = pointers[:, 1:] - pointers[:, :-1]
    batches, lines = counts.shape
    each = x._others.size(-1)
    line = rushlight.arange(lines, device=others.device).repeat(batches).repeat_interleave(counts.reshape(-1))
    batch = rushlight.arange(batches, device=others.device).repeat_interleave(each)
    return (batch, line, others) if by_rows(x) else (batch, others, line)


def blocks_of(dense: Tensor, batch_dims: int, block: tuple[int, ...]) -> Tensor:
    """A strided tensor seen as (batches, rows, columns, *block, *dense dims)."""
    shape = tuple(dense.shape)
    rows, columns = shape[batch_dims : batch_dims + 2]
    rest = shape[batch_dims + 2 :]
    flat = dense.reshape(math.prod(shape[:batch_dims]), rows, columns, *rest)
    if not block:
        return flat
    high, wide = block
    cut = flat.reshape(flat.size(0), rows // high, high, columns // wide, wide, *rest)
    return cut.transpose(2, 3)


def from_blocks(blocks: Tensor, shape: Sequence[int], block: tuple[int, ...]) -> Tensor:
    """The inverse of `blocks_of`."""
    return (blocks.transpose(2, 3) if block else blocks).reshape(tuple(shape))


# ***** the four maps *****


def gather(dense: Tensor, x: Any) -> Tensor:
    """The elements of a strided tensor at the places of `x`, in the shape of its values."""
    if type(x) is SparseTensor:
        if not x._where.size(0):
            return dense.unsqueeze(0).expand(x._held.shape)
        return dense[tuple(x._where)]
    batch, row, column = spots(x)
    blocks = blocks_of(dense, x._pointers.dim() - 1, block_shape(x))
    return blocks[batch, row, column].reshape(x._held.shape)


def scatter(values: Tensor, x: Any) -> Tensor:
    """The strided tensor with these values at the places of `x`, zeros elsewhere; values that meet are added."""
    shape = tuple(x.shape)
    if type(x) is SparseTensor:
        n = x._where.size(0)
        sizes = shape[:n]
        if not n:
            return values.sum(0).to(values.dtype)
        return add_rows(flat_places(x._where, sizes), values, math.prod(sizes)).reshape(shape)
    block, n = block_shape(x), x._pointers.dim() - 1
    batch, row, column = spots(x)
    high, wide = block or (1, 1)
    sizes = (math.prod(shape[:n]), shape[n] // high if high else 0, shape[n + 1] // wide if wide else 0)
    rest = tuple(values.shape[n + 1 :])
    rows = add_rows((batch * sizes[1] + row) * sizes[2] + column, values.reshape(-1, *rest), math.prod(sizes))
    return from_blocks(rows.reshape(*sizes, *rest), shape, block)


def to_dense(x: Any, masked_grad: bool = True) -> Tensor:
    """The strided tensor with the same elements.

    Its gradient keeps only the places of `x`; without `masked_grad` all of them.
    """
    if not is_sparse(x):
        return x
    pattern = bare(x)

    def rule(grad: Any) -> tuple[Any]:
        if not masked_grad:
            return (grad if is_sparse(grad) else in_layout_of(grad, pattern),)
        return (masked(grad, coalesce(pattern) if type(pattern) is SparseTensor else pattern),)

    return record("ToDenseBackward0", [x], scatter(x._held, x), rule)


def in_layout_of(dense: Tensor, x: Any) -> Any:
    """A strided tensor in the layout of `x`, with all its places that are not zero."""
    if type(x) is SparseTensor:
        return dense.to_sparse(x._where.size(0))
    return dense.to_sparse(
        layout=x.layout,
        blocksize=block_shape(x) or None,
        dense_dim=x._held.dim() - x._pointers.dim() - len(block_shape(x)),
    )


def masked(x: Any, mask: Any) -> Any:
    """`x`, strided or sparse, at the places of `mask` alone: a tensor with the indices of `mask`."""
    if same_places(x, mask):
        return x
    mask = bare(mask)
    made = with_parts(mask, _found(x, mask))
    return record("SparseMaskBackward0", [x], made, lambda grad: (_spread(grad, mask, x),))


def _spread(grad: Any, mask: Any, x: Any) -> Any:
    """The gradient of `masked`: nothing outside of the mask."""
    grad = masked(grad, mask)
    return grad if is_sparse(x) else to_dense(grad)


def _found(x: Any, mask: Any) -> Tensor:
    """The elements of `x` at the places of `mask`, outside of any graph."""
    x = bare(x)
    if not is_sparse(x):
        return gather(x, mask)
    if type(x) is not SparseTensor or type(mask) is not SparseTensor or x._where.size(0) != mask._where.size(0):
        return gather(scatter(x._held, x), mask)
    x, n = coalesce(x), mask._where.size(0)
    sizes = tuple(x.shape[:n])
    held, wanted = flat_places(x._where, sizes), flat_places(mask._where, sizes)
    if not held.numel():
        return x._held.new_zeros((wanted.numel(), *x._held.shape[1:]))
    place = rushlight.searchsorted(held, wanted).clamp(max=held.numel() - 1)
    hit = (held[place] == wanted).reshape(-1, *[1] * (x._held.dim() - 1))
    return rushlight.where(hit, x._held[place], x._held.new_zeros(()))


def pick(grad: Any, pattern: Any) -> Tensor:
    """The elements of a gradient, strided or sparse, at the places of `pattern`; differentiable."""
    if not is_sparse(grad):
        return gather(grad, pattern)
    if same_places(grad, pattern):
        return values_of(grad)
    if type(pattern) is SparseTensor and not pattern._sorted:
        return gather(to_dense(grad), pattern)
    return values_of(masked(grad, pattern))


def with_parts(pattern: Any, values: Tensor) -> Any:
    """Other values at the places of `pattern`, outside of any graph."""
    if type(pattern) is SparseTensor:
        return make_coo(
            pattern._where, values, (*pattern.shape[: pattern._where.size(0)], *values.shape[1:]), pattern._sorted
        )
    return make_compressed(pattern._format, pattern._pointers, pattern._others, values, pattern.shape)


def with_values(pattern: Any, values: Tensor, name: str = "SparseConstructorBackward0") -> Any:
    """Other values at the places of `pattern`; their gradient is picked from that of the result."""
    made = with_parts(pattern, values)
    plain = bare(made)
    return record(name, [values], made, lambda grad: (pick(grad, plain),))


def values_of(x: Any, name: str = "ValuesBackward0") -> Tensor:
    """The values as part of the graph: their gradient becomes that of `x`, at the same places."""
    pattern = bare(x)
    return record(name, [x], pattern._held.detach(), lambda grad: (with_values(pattern, to_dense(grad)),))


def like(x: Any, values: Tensor) -> Any:
    """Values in the place of those of `x`: a strided tensor stands for itself."""
    return with_parts(x, values) if is_sparse(x) else values
