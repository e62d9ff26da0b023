"""Sums, norms and softmax of sparse tensors, diagonals."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.autograd import record
from rushlight._interface.operators import function_of
from rushlight._interface.tensors import wrap_dim
from rushlight.sparse.layouts import convert
from rushlight.sparse.parts import add_rows, coalesce, flat_places, is_sparse, needs_dtype, values_of, with_values
from rushlight.sparse.tensors import COO, WORDS, SparseBase, SparseTensor, backend_of, bare, make_coo

__all__ = ["log_softmax", "softmax", "spdiags", "spsolve", "sum"]


def sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    """Sum over the dims `dim` (all by default) of a tensor in coordinates.

    Over all of them, or over all sparse dims, the result is strided, else in coordinates. The gradient has the places
    of `input`.

    >>> import rushlight as torch
    >>> torch.sparse.sum(torch.eye(3).to_sparse(), dim=0).to_dense()
    tensor([1., 1., 1.])
    """
    if type(input) is not SparseTensor:
        raise RuntimeError(f"coalesce expected sparse coordinate tensor layout but got {WORDS[input.layout.name]}")
    if dim is not None and len(_dims(dim, input.dim())) < input.dim():
        dtype = dtype or input.dtype  # integers stay what they are, unlike in `Tensor.sum`
    return _sum_coo(input, dim, False, dtype)


def _dims(dim: Any, ndim: int) -> list[int]:
    if dim is None:
        return list(range(ndim))
    given = [dim] if isinstance(dim, int) else list(dim)
    found = sorted(wrap_dim(d, ndim) for d in given) if given else list(range(ndim))
    if len(set(found)) != len(found):
        raise RuntimeError("dim appears multiple times in the list of dims")
    return found


def _sum_coo(x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    dims = _dims(dim, x.dim())
    made = _summed(coalesce(x), dims, dtype)
    for d in dims if keepdim else ():
        made = made.unsqueeze(d)
    return made


def _summed(x: Any, dims: list[int], dtype: Any) -> Any:
    """The sum of a coalesced tensor; strided where no sparse dim is left."""
    n, ndim = x._where.size(0), x.dim()
    if not x.dtype.is_floating_point and not x.dtype.is_complex and dtype is None:
        dtype = rushlight.int64
    values = values_of(x, "SparseSumBackward0")
    if dtype is not None:
        values = values.to(dtype)
    if len(dims) == ndim:
        return values.sum()
    dense = [d - n + 1 for d in dims if d >= n]
    if dense:
        values = values.sum(dense)
    kept = [d for d in range(n) if d not in dims]
    if not kept:
        return values.sum(0)
    shape = tuple(s for d, s in enumerate(x.shape) if d not in dims)
    places = bare(x)._where[kept]
    if len(kept) == n:
        return with_values(make_coo(places, values, shape, True), values, "SparseSumBackward0")
    unique, inverse = rushlight.unique(flat_places(places, shape[: len(kept)]), return_inverse=True)
    first = unique.new_full((unique.numel(),), places.size(1)).index_reduce(
        0, inverse, rushlight.arange(places.size(1), device=places.device), "amin", include_self=True
    )
    values = add_rows(inverse, values, unique.numel())
    return with_values(make_coo(places[:, first], values, shape, True), values, "SparseSumBackward0")


@SparseBase.implements("sum")
def _(function: Any, input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if dim is None:
        shape = tuple(input.shape)
        return record("SumBackward0", [input], bare(input)._held.sum(dtype=dtype), lambda grad: (grad.expand(shape),))
    if type(input) is SparseTensor:
        return _sum_coo(input, dim, keepdim, dtype)
    if not keepdim:
        raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
    if input.layout.name != "sparse_csr":
        raise RuntimeError(
            f"Currently the only compressed sparse format supported for sum.dim_IntList is CSR, but got layout {WORDS[input.layout.name]}"
        )
    needs_dtype("_sparse_csr_sum_cpu", input, never=("bool",))
    made = _sum_coo(convert(input, COO), dim, True, dtype)
    return convert(made, input.layout) if is_sparse(made) else made.to_sparse(layout=input.layout)


@SparseTensor.implements("norm", "_norm_method", "native_norm")
def _(
    function: Any,
    input: Any,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    out: Any = None,
    dtype: Any = None,
) -> Any:
    if dim is not None and len(_dims(dim, input.dim())) != input.dim():
        raise RuntimeError(
            "norm_sparse currently only supports full reductions, so 'dim' must either be empty or contain all dimensions of the input"
        )
    values = values_of(coalesce(input), "NormBackward0")
    return rushlight.norm(values.reshape(-1), 2 if p in (None, "fro") else p, dtype=dtype)


@SparseTensor.implements("any")
def _(function: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    if args or kwargs:
        raise NotImplementedError(
            f"Could not run 'aten::any.dim' with arguments from the '{backend_of(input)}' backend."
        )
    return coalesce(bare(input))._held.any()


@SparseTensor.implements("dist")
def _(function: Any, input: Any, other: Any, p: Any = 2) -> Any:
    return rushlight.norm(input - other, p)


# ***** softmax *****


def _softmax(name: str, input: Any, dim: int, dtype: Any) -> Any:
    if type(input) is not SparseTensor:
        raise NotImplementedError(
            f"Could not run 'aten::_sparse_{name}' with arguments from the '{backend_of(input)}' backend."
        )
    dtype = dtype or input.dtype
    needs_dtype(name, input._held.new_empty(0, dtype=dtype), only=frozenset(("float32", "float64")))
    x = coalesce(input)
    n, dim = x._where.size(0), wrap_dim(dim, x.dim())
    values = values_of(x).to(dtype)
    node = "SparseLogSoftmaxBackward0" if name == "log_softmax" else "SparseSoftmaxBackward0"
    if dim >= n:
        return with_values(bare(x), function_of(name)(values, dim - n + 1), node)
    others = [d for d in range(n) if d != dim]
    group, count = _groups(x, others)
    if not values.size(0):
        return with_values(bare(x), values, node)
    rest = tuple(values.shape[1:])
    top = (
        values.detach()
        .new_full((count, *rest), float("-inf"))
        .index_reduce(0, group, values.detach(), "amax", include_self=True)
    )
    shifted = values - rushlight.where(top.isfinite(), top, 0.0)[group]
    total = add_rows(group, shifted.exp(), count)
    made = shifted - total.log()[group] if name == "log_softmax" else shifted.exp() / total[group]
    return with_values(bare(x), made, node)


def _groups(x: Any, dims: list[int]) -> tuple[Tensor, int]:
    """For each entry the number of the line on which it lies, lines being told apart by the coordinates `dims`."""
    if not dims:
        return x._where.new_zeros(x._where.size(1)), 1
    places = flat_places(x._where[dims], [x.shape[d] for d in dims])
    unique, inverse = rushlight.unique(places, return_inverse=True)
    return inverse, unique.numel()


def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Softmax along `dim` over the entries of a tensor in coordinates: what is not stored counts as minus infinity.

    >>> import rushlight as torch
    >>> torch.sparse.softmax(torch.tensor([[0.0, 2.0], [3.0, 3.0]]).to_sparse(), 1).to_dense()
    tensor([[0.0000, 1.0000],
            [0.5000, 0.5000]])
    """
    return _softmax("softmax", input, dim, dtype)


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """The logarithm of `softmax`, computed at once."""
    return _softmax("log_softmax", input, dim, dtype)


# ***** diagonals, systems *****


def spdiags(diagonals: Any, offsets: Any, shape: Any, layout: Any = None) -> Any:
    """A matrix whose diagonal number `offsets[k]` is taken from row k of `diagonals`, by columns.

    `layout` is coordinates (the default), CSR or CSC. Raises `RuntimeError` for repeated offsets and shapes that do not
    fit.

    >>> import rushlight as torch
    >>> torch.sparse.spdiags(torch.arange(1, 4).reshape(1, 3), torch.tensor([1]), (3, 3)).to_dense()
    tensor([[0, 2, 0],
            [0, 0, 3],
            [0, 0, 0]])
    """
    rows = diagonals.unsqueeze(0) if diagonals.dim() == 1 else diagonals
    places = offsets.unsqueeze(0) if offsets.dim() == 0 else offsets
    _check_diagonals(rows, places, tuple(shape), layout)
    high, wide = shape
    columns = rushlight.arange(rows.shape[1], device=rows.device)
    line = columns.unsqueeze(0) - places.unsqueeze(1)
    inside = (line >= 0) & (line < high) & (columns < wide).unsqueeze(0)
    taken = inside.nonzero()
    where = rushlight.stack([line[inside], taken[:, 1]])
    values = rows[taken[:, 0], taken[:, 1]]
    made = with_values(make_coo(where, values, (high, wide), False), values, "SpdiagsBackward0")
    return made if layout in (None, COO) else convert(made, layout)


def _check_diagonals(rows: Any, places: Any, shape: tuple[int, ...], layout: Any) -> None:
    if rows.dim() != 2:
        raise RuntimeError("Diagonals must be vector or matrix")
    if len(shape) != 2:
        raise RuntimeError("Output shape must be 2d")
    if places.dim() != 1:
        raise RuntimeError("Offsets must be scalar or vector")
    if rows.shape[0] != places.shape[0]:
        raise RuntimeError(
            f"Number of diagonals ({rows.shape[0]}) does not match the number of offsets ({places.shape[0]})"
        )
    if layout is not None and layout.name not in ("sparse_coo", "sparse_csc", "sparse_csr"):
        raise RuntimeError(
            f"Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {WORDS[layout.name]}"
        )
    if places.dtype is not rushlight.int64:
        raise RuntimeError(f"Offset Tensor must have dtype Long but got {places.dtype.scalar}")
    if rushlight.unique(places).numel() != places.numel():
        raise RuntimeError("Offset tensor contains duplicate values")
    for offset in places.tolist():
        if not -shape[0] <= offset <= shape[1]:
            raise RuntimeError(f"Diagonal number {offset} lies outside of a matrix of {shape[0]} by {shape[1]}")


def spsolve(input: Any, other: Any, *, left: bool = True) -> Any:
    """Raises `NotImplementedError`: PyTorch solves sparse systems on GPUs alone."""
    raise NotImplementedError(f"Could not run 'aten::_spsolve' with arguments from the '{backend_of(input)}' backend.")
