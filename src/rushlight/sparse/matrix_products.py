"""Matrix products with sparse operands: gathers, products of entries, sums over rows."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import SPARSE_LAYOUTS, Tensor
from rushlight._interface.autograd import as_it_is, record
from rushlight._interface.operators import casts
from rushlight.sparse.layouts import convert
from rushlight.sparse.parts import (
    SINGLE_AND_DOUBLE,
    add_rows,
    block_shape,
    by_rows,
    coalesce,
    is_sparse,
    masked,
    needs_dtype,
    spots,
    to_dense,
    values_of,
    with_parts,
    with_values,
)
from rushlight.sparse.reductions import sum as sum_of_entries
from rushlight.sparse.tensors import (
    COO,
    WORDS,
    CompressedTensor,
    SparseBase,
    SparseTensor,
    backend_of,
    bare,
    factors,
    into_out,
    make_coo,
)

CSR = SPARSE_LAYOUTS["sparse_csr"]
__all__ = ["addmm", "dsmm", "hspmm", "mm", "sampled_addmm", "smm", "spmm", "sspaddmm"]


def in_coordinates(x: Any) -> Any:
    """A matrix (or batch of matrices) in coordinates, outside of any graph."""
    return bare(x) if type(x) is SparseTensor else convert(bare(x), COO)


def _check_matrices(name: str, a: Any, b: Any) -> None:
    if a.dim() != 2 or b.dim() != 2:
        which = "self" if a.dim() != 2 else "mat2"
        raise RuntimeError(f"{name}: expected matrices, but {which} has {(a if which == 'self' else b).dim()} dims")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"{name}: mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})"
        )
    for x in (a, b):
        if type(x) is SparseTensor and x._where.size(0) != 2:
            raise RuntimeError(f"{name}: expected a matrix with 2 sparse dims, got one with {x._where.size(0)}")
    if a.dtype is not b.dtype:
        raise RuntimeError(f"{name}: expected both operands to have one dtype, got {a.dtype} and {b.dtype}")


def _times_dense(a: Any, b: Tensor) -> Tensor:
    """Sparse (m, k) @ strided (k, n), outside of any graph."""
    x = in_coordinates(a)
    rows, columns = x._where[0], x._where[1]
    return add_rows(rows, x._held.unsqueeze(1) * b[columns], a.shape[0])


def _times_sparse(a: Any, b: Any) -> Any:
    """Sparse @ sparse: every entry (i, k) meets the entries of row k; what falls on one place is added."""
    a, b = coalesce(in_coordinates(a)), coalesce(in_coordinates(b))
    inner = a._where[1]
    starts = rushlight.searchsorted(b._where[0].contiguous(), rushlight.arange(b.shape[0] + 1, device=b.device))
    counts = (starts[1:] - starts[:-1])[inner]
    left = rushlight.arange(inner.numel(), device=b.device).repeat_interleave(counts)
    right = rushlight.arange(left.numel(), device=b.device) - (counts.cumsum(0) - counts)[left] + starts[inner[left]]
    where = rushlight.stack([a._where[0][left], b._where[1][right]])
    return coalesce(make_coo(where, a._held[left] * b._held[right], (a.shape[0], b.shape[1]), False))


def _adjoint(x: Any) -> Any:
    return x.mH if x.is_complex() else x.transpose(-2, -1)


def _masked_product(g: Any, b: Any, x: Any) -> Any:
    """(g @ b^H) at the places of the sparse matrix `x` alone."""
    if is_sparse(g) or is_sparse(b):
        made = product(g, _adjoint(b))
        return masked(made, x) if not is_sparse(made) or made.layout is x.layout else masked(to_dense(made), x)
    if type(x) is SparseTensor:
        x = coalesce(bare(x))
        rows, columns = x._where[0], x._where[1]
    elif block_shape(x):
        return masked(g @ _adjoint(b), bare(x))
    else:
        _, rows, columns = spots(x)
    return with_values(bare(x), (g[rows] * b.conj()[columns]).sum(-1))


def product(a: Any, b: Any, node: str = "MmBackward0", masked_grad: bool = True) -> Any:
    """a @ b for matrices of which at least one is sparse.

    The gradient of a sparse operand keeps its places; without `masked_grad` that of a sparse matrix times a strided one
    has all.
    """
    if not is_sparse(a) and not is_sparse(b):
        return rushlight.mm(a, b)
    _check_matrices("mm" if node == "MmBackward0" else "addmm", a, b)
    if CompressedTensor in (type(a), type(b)):
        both = "_sparse" if is_sparse(a) and is_sparse(b) else ""
        needs_dtype(
            f"addm{'v' if node == 'MvBackward0' else 'm'}_out_sparse_csr_impl_mkl{both}", a, only=SINGLE_AND_DOUBLE
        )
    elif is_sparse(a) and is_sparse(b):
        needs_dtype("sparse_matmul", a, only=SINGLE_AND_DOUBLE)
    else:
        needs_dtype("addmm_sparse_dense", a, never=("bool",))
    if is_sparse(a) and is_sparse(b):
        made = _times_sparse(a, b)
        if CompressedTensor in (type(a), type(b)):
            if type(a) is not type(b):
                words = f"{WORDS[a.layout.name]} @ {WORDS[b.layout.name]}"
                raise RuntimeError(f"addmm: computation on CPU is not implemented for {words}")
            for x in (a, b):
                if type(x) is CompressedTensor and block_shape(x):
                    raise RuntimeError(
                        f"zeros_sparse_compressed expected sparse compressed (non-block) tensor layout but got {WORDS[x.layout.name]}"
                    )
            made = convert(made, CSR)
    elif is_sparse(a):
        made = _times_dense(a, b.detach())
    else:
        if type(b) is CompressedTensor and block_shape(b) and by_rows(b):
            raise RuntimeError(
                f"addmm: computation on CPU is not implemented for Strided + Strided @ {WORDS[b.layout.name]}"
            )
        made = _times_dense(bare(b).transpose(0, 1), a.detach().transpose(0, 1)).transpose(0, 1).contiguous()
    inputs, a, b = [a, b], as_it_is(a), as_it_is(b)

    def left(grad: Any) -> Any:
        keeps = is_sparse(a) and (masked_grad or is_sparse(b))
        return _masked_product(grad, b, a) if keeps else to_dense(product(to_dense(grad), _adjoint(b)))

    def right(grad: Any) -> Any:
        if not is_sparse(b) or not (masked_grad or is_sparse(a)):
            return to_dense(product(_adjoint(a), to_dense(grad)))
        return _transposed_back(_masked_product(_adjoint(grad), _adjoint(a), bare(b).transpose(0, 1)), b)

    return record(node, inputs, made, lambda grad: (lambda: left(grad), lambda: right(grad)), factors(a, b))


def _transposed_back(x: Any, b: Any) -> Any:
    made = _adjoint(x)
    return made if made.layout is b.layout else masked(to_dense(made), b)


# ***** products under their public names *****


@SparseBase.implements("mm")
def _(function: Any, input: Any, mat2: Any, *, out: Any = None) -> Any:
    return _into(product(input, mat2, masked_grad=False), out)


def _into(made: Any, out: Any) -> Any:
    """Into `out=`; products do not cast."""
    if out is not None and made.dtype is not out.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {made.dtype}, but got {out.dtype} instead")
    return into_out(made, out)


@SparseBase.implements("mv")
def _(function: Any, input: Any, vec: Any, *, out: Any = None) -> Any:
    if input.dim() != 2 or vec.dim() != 1:
        raise RuntimeError(
            f"mv: two tensor dim should be 2 and 1, but got SparseTensor Dim: {input.dim()}Tensor Dim: {vec.dim()}"
        )
    if input.shape[1] != vec.shape[0]:
        raise RuntimeError(f"mv: expected self.size(-1) == vec.size(-1), got {input.shape[1]} and {vec.shape[0]}")
    if is_sparse(vec) and not is_sparse(input):
        raise NotImplementedError("Could not run 'aten::mv' with a sparse vector")
    return _into(product(input, to_dense(vec).unsqueeze(1), "MvBackward0", False).squeeze(1), out)


@SparseBase.implements("matmul")
def matmul(function: Any, input: Any, other: Any, *, out: Any = None) -> Any:
    """`@` by the numbers of dims, as for strided tensors."""
    return _into(_matmul(input, other), out)


def _matmul(input: Any, other: Any) -> Any:
    dims = (input.dim(), other.dim())
    if dims == (2, 1):
        return rushlight.mv(input, other)
    if dims == (2, 2):
        return rushlight.mm(input, other)
    if dims == (1, 2) and is_sparse(other):
        return product(
            input.unsqueeze(0) if not is_sparse(input) else to_dense(input).unsqueeze(0), other, masked_grad=False
        ).squeeze(0)
    if dims == (3, 3):
        return rushlight.bmm(input, other)
    if is_sparse(other) and not is_sparse(input) and input.dim() > 2 and other.dim() == 2:
        flat = product(input.reshape(-1, input.shape[-1]), other, masked_grad=False)
        return flat.reshape(*input.shape[:-1], flat.shape[-1])
    raise RuntimeError(f"matmul: not supported for a sparse operand with {dims[0]} and {dims[1]} dims")


@SparseBase.implements("bmm")
def _(function: Any, input: Any, mat2: Any, *, out: Any = None) -> Any:
    if type(input) is not SparseTensor or is_sparse(mat2):
        if type(input) is CompressedTensor and not is_sparse(mat2) and input.dim() == 3:
            return _into(_batched(convert(input, COO), mat2), out)
        raise RuntimeError(
            "batch1 must be a 3D tensor"
            if type(input) is CompressedTensor
            else "bmm_sparse: Tensor 'mat2' must be dense"
        )
    if input._where.size(0) != 3:
        raise RuntimeError(f"bmm_sparse: Tensor 'self' must have 3 sparse dims, but has {input._where.size(0)}")
    if mat2.dim() != 3 or input.shape[0] != mat2.shape[0] or input.shape[2] != mat2.shape[1]:
        raise RuntimeError(f"bmm_sparse: shapes {list(input.shape)} and {list(mat2.shape)} cannot be multiplied")
    return _into(_batched(input, mat2), out)


def _batched(x: Any, dense: Tensor) -> Tensor:
    """A batch of sparse matrices as one with blocks on its diagonal."""
    needs_dtype("bmm_sparse_dense", x, never=("bool", "float16", "bfloat16"))
    x = coalesce(x)
    batches, high, inner = x.shape
    where = bare(x)._where
    shape = (batches * high, batches * inner)
    flat = with_values(
        make_coo(rushlight.stack([where[0] * high + where[1], where[0] * inner + where[2]]), x._held, shape, True),
        x._held,
    )
    made = product(flat.detach(), dense.detach().reshape(batches * inner, dense.shape[2])).reshape(
        batches, high, dense.shape[2]
    )
    inputs, x = [x, dense], as_it_is(x)

    def left(grad: Any) -> Any:
        return to_dense(grad) @ _adjoint(dense)

    return record(
        "BmmBackward0",
        inputs,
        made,
        lambda grad: (lambda: left(grad), lambda: rushlight.bmm(_adjoint(x), to_dense(grad))),
        factors(x, dense),
    )


def _plus(input: Any, made: Any, beta: Any, alpha: Any) -> Any:
    scaled = made if alpha == 1 else made * alpha
    if beta == 0:
        return scaled
    before = input if beta == 1 else input * beta
    if is_sparse(before) and not is_sparse(scaled):
        return scaled + before
    return before.expand(scaled.shape) + scaled if not is_sparse(before) and not is_sparse(scaled) else before + scaled


@SparseBase.implements("linear")
def _(function: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    flat = input if input.dim() != 1 else input.unsqueeze(0)
    made = rushlight.matmul(flat, weight.t())
    made = made if input.dim() != 1 else made.squeeze(0)
    return made if bias is None else made + bias


@SparseBase.implements("addmm")
def _addmm(function: Any, input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Any:
    if type(input) is SparseTensor:
        raise RuntimeError("addmm_sparse_dense: expected strided result tensor, got tensor with layout Sparse")
    if not is_sparse(input) and type(mat1) is SparseTensor and is_sparse(mat2):
        raise RuntimeError(
            "addmm_sparse_dense: expected one of 'mat1' and 'mat2' to have strided layout, got "
            f"'mat1' with layout Sparse and 'mat2' with layout {WORDS[mat2.layout.name]}"
        )
    return _into(_plus(input, product(mat1, mat2, "AddmmBackward0"), beta, alpha), out)


@SparseBase.implements("addmm_")
def _(function: Any, input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return input.copy_(_addmm(None, input, mat1, mat2, beta=beta, alpha=alpha))


@SparseBase.implements("addmv")
def _(function: Any, input: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Any:
    if type(mat) is not CompressedTensor:
        raise NotImplementedError(f"Could not run 'aten::addmv' with arguments from the '{backend_of(mat)}' backend.")
    return _into(_plus(input, rushlight.mv(mat, vec), beta, alpha), out)


@SparseBase.implements("baddbmm")
def _(function: Any, input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Any:
    if type(batch1) is not CompressedTensor:
        raise NotImplementedError(
            f"Could not run 'aten::baddbmm' with arguments from the '{backend_of(batch1)}' backend."
        )
    return _into(_plus(input, rushlight.bmm(batch1, batch2), beta, alpha), out)


def mm(mat1: Any, mat2: Any, reduce: Any = None) -> Any:
    """mat1 @ mat2 of which at least one is sparse; sparse @ sparse is sparse.

    With `reduce` ("sum", "mean", "amax", "amin"; `mat1` CSR, `mat2` strided) the products along a row are joined in
    that way.

    >>> import rushlight as torch
    >>> torch.sparse.mm(torch.eye(2).to_sparse(), torch.ones(2, 3))
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """
    if reduce is not None:
        return _reduced(mat1, mat2, reduce)
    return casts("lower", "lower")(product)(mat1, mat2)


def _reduced(a: Any, b: Any, reduce: str) -> Tensor:
    if type(a) is not CompressedTensor:
        raise NotImplementedError(
            f"Could not run 'aten::_sparse_mm_reduce_impl' with arguments from the '{backend_of(a)}' backend."
        )
    if a.layout.name != "sparse_csr" or is_sparse(b):
        raise RuntimeError("torch.sparse.mm: with reduce= the first operand must be CSR and the second strided")
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if reduce not in ("sum", "mean", "amax", "amin"):
        raise ValueError(f"torch.sparse.mm: reduce argument must be either sum, mean, amax or amin, got {reduce}")
    _check_matrices("torch.sparse.mm", a, b)
    needs_dtype("spmm_reduce_kernel", a, only=frozenset(("float16", "bfloat16", "float32", "float64")))
    _, rows, columns = spots(a)
    count = a.shape[0]
    messages = values_of(a).unsqueeze(1) * b[columns]
    if reduce in ("sum", "mean"):
        total = add_rows(rows, messages, count)
        if reduce == "sum":
            return total
        return total / (a._pointers[1:] - a._pointers[:-1]).clamp(min=1).to(total.dtype).unsqueeze(1)
    if not messages.size(0):
        return messages.sum() + messages.new_zeros((count, b.shape[1]))
    plain = messages.detach()
    best = plain.new_zeros((count, b.shape[1])).index_reduce(0, rows, plain, reduce, include_self=False)
    # The gradient goes to the first entry that reaches the extreme value.
    order = rushlight.arange(rows.numel(), device=rows.device).unsqueeze(1).expand(plain.shape)
    hits = rushlight.where(plain == best[rows], order, rows.numel())
    first = rows.new_full((count, b.shape[1]), rows.numel()).index_reduce(0, rows, hits, "amin", include_self=True)
    found = messages.gather(0, first.clamp(max=rows.numel() - 1))
    return rushlight.where(first < rows.numel(), found, found.new_zeros(()))


def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:
    """beta * mat + alpha * (mat1 @ mat2) with `mat1` sparse; gradients of all three.

    >>> import rushlight as torch
    >>> torch.sparse.addmm(torch.ones(2, 2), torch.eye(2).to_sparse(), torch.ones(2, 2), beta=2.0)
    tensor([[3., 3.],
            [3., 3.]])
    """
    return rushlight.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def sampled_addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0, out: Any = None) -> Any:
    """alpha * (mat1 @ mat2) at the places of `input` (CSR) alone, plus beta * input.

    >>> import rushlight as torch
    >>> torch.sparse.sampled_addmm(torch.eye(2).to_sparse_csr(), torch.ones(2, 3), torch.ones(3, 2)).values()
    tensor([4., 4.])
    """
    _check_sampled(input, mat1, mat2)
    batch, rows, columns = spots(input)
    batches, pattern = math.prod(mat1.shape[:-2]), bare(input)
    left = mat1.detach().reshape(batches, *mat1.shape[-2:])[batch, rows]
    right = mat2.detach().transpose(-2, -1).reshape(batches, mat2.shape[-1], mat2.shape[-2])[batch, columns]
    values = (left * right).sum(-1).reshape(input._held.shape)
    values = values if alpha == 1 else values * alpha
    if beta != 0:
        values = pattern._held * beta + values

    def rule(grad: Any) -> tuple[Any, Any, Any]:
        kept = to_dense(masked(grad, pattern))
        kept = kept if alpha == 1 else kept * alpha.conjugate()
        return (
            lambda: grad if beta == 1 else grad * beta.conjugate(),
            lambda: kept @ _adjoint(mat2),
            lambda: _adjoint(mat1) @ kept,
        )

    return _into(
        record("SparseSampledAddmmBackward0", [input, mat1, mat2], with_parts(pattern, values), rule, (mat1, mat2)), out
    )


def _check_sampled(input: Any, mat1: Any, mat2: Any) -> None:
    if type(input) is not CompressedTensor:
        raise NotImplementedError(
            f"Could not run 'aten::sparse_sampled_addmm' with arguments from the '{backend_of(input)}' backend."
        )
    if input.layout.name != "sparse_csr":
        raise RuntimeError("Expected self to have sparse csr layout")
    if input.dtype.name not in SINGLE_AND_DOUBLE:
        raise RuntimeError(
            f"sparse_sampled_addmm: Expected self to be a floating-point or complex tensor, but got {input.dtype}"
        )
    if is_sparse(mat1) or is_sparse(mat2):
        raise RuntimeError("Expected mat1 and mat2 to have strided layout")
    if mat1.dtype is not mat2.dtype or input.dtype is not mat1.dtype:
        raise RuntimeError(
            f"sampled_addmm: Expected mat1 and mat2 to have the same dtype, but got {mat1.dtype} and {mat2.dtype}"
        )
    if tuple(mat1.shape[:-2]) != tuple(mat2.shape[:-2]) or tuple(mat1.shape[:-2]) != tuple(input.shape[:-2]):
        raise RuntimeError("sampled_addmm: Expected mat1, mat2 and self to have the same batch size")
    if mat1.shape[-1] != mat2.shape[-2]:
        raise RuntimeError(
            f"sampled_addmm: mat1 and mat2 shapes cannot be multiplied ({mat1.shape[-2]}x{mat1.shape[-1]} and {mat2.shape[-2]}x{mat2.shape[-1]})"
        )
    for place, size, which in ((-2, mat1.shape[-2], "mat1"), (-1, mat2.shape[-1], "mat2")):
        if input.shape[place] != size:
            raise RuntimeError(f"sampled_addmm: self.shape[{place}] must match {which}.shape[{place}]")


# ***** sparse results of products with a strided matrix *****


def sspaddmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Any:
    """beta * input + alpha * (mat1 @ mat2) with `input` and `mat1` in coordinates, `mat2` strided; the result is in
    coordinates.
    """
    for x, word, sparse in ((mat1, "mat1", True), (mat2, "mat2", False), (input, "self", True)):
        if (type(x) is SparseTensor) is not sparse:
            raise RuntimeError(
                f"sspaddmm: expected '{word}' to have {'sparse' if sparse else 'strided'} layout, got '{word}' with layout {WORDS[x.layout.name]}"
            )
    _check_matrices("sspaddmm", mat1, mat2)
    needs_dtype("sspmm", mat1, never=("bool", "float16", "bfloat16"))
    rows, block = _rows_of_product(mat1, mat2)
    width = mat2.shape[1]
    where = rushlight.stack(
        [rows.repeat_interleave(width), rushlight.arange(width, device=rows.device).repeat(rows.numel())]
    )
    values = block.reshape(-1) if alpha == 1 else block.reshape(-1) * alpha
    given = bare(input)
    before = given._held if beta == 1 else given._held * beta
    if beta == 0:
        before, given_where = before[:0], given._where[:, :0]
    else:
        given_where = given._where
    made = make_coo(
        rushlight.cat([given_where, where], 1), rushlight.cat([before, values], 0), (mat1.shape[0], width), False
    )
    return _into(made, out)


def _rows_of_product(a: Any, b: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of `a` that hold anything, and these rows of a @ b."""
    x = coalesce(bare(a))
    rows, inverse = rushlight.unique(x._where[0], return_inverse=True)
    return rows, add_rows(inverse, x._held.unsqueeze(1) * b.detach()[x._where[1]], rows.numel())


def smm(input: Any, mat2: Any) -> Any:
    """input @ mat2 in coordinates, `input` being so too and `mat2` strided."""
    width = mat2.shape[1] if mat2.dim() == 2 else 0
    shape = (input.shape[0], width)
    return sspaddmm(rushlight.zeros(shape, dtype=input.dtype, layout=COO, device=input.device), input, mat2)


def hspmm(mat1: Any, mat2: Any, *, out: Any = None) -> Any:
    """mat1 @ mat2, `mat1` in coordinates: a tensor whose rows are sparse and whose columns are dense."""
    if type(mat1) is not SparseTensor or is_sparse(mat2):
        raise RuntimeError("hspmm: expected 'mat1' in coordinates and 'mat2' strided")
    _check_matrices("hspmm", mat1, mat2)
    needs_dtype("addmm_sparse_dense", mat1, never=("bool",))
    rows, block = _rows_of_product(mat1, mat2)
    return _into(make_coo(rows.unsqueeze(0), block, (mat1.shape[0], mat2.shape[1]), False), out)


def spmm(input: Any, mat2: Any) -> Any:
    """Another name of `mm`."""
    return rushlight.mm(input, mat2)


dsmm = spmm


@SparseTensor.implements("pca_lowrank")
def _(function: Any, A: Any, q: int | None = None, center: bool = True, niter: int = 2) -> Any:
    rank = min(6, *A.shape) if q is None else q
    if not center:
        return rushlight.svd_lowrank(A, rank, niter)
    # A sparse matrix stays sparse: the means of its columns are taken off its products.
    means = to_dense(sum_of_entries(A, -2)) / A.shape[0]
    return rushlight.svd_lowrank(A, rank, niter, M=means.unsqueeze(0))
