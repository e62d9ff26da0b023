"""Sums of products: everything over the primitive `dot`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._ops.bodies import C_NAME, CPP_NAME, check_range, common, is_number, narrow, wide, wrap
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import BFLOAT16, BOOL, INT32, INT64
from rushlight._types.layout import broadcast_shapes, numel

__all__: list[str] = []


# ***** checks *****


def _same_dtype(name: str, a: Any, b: Any) -> None:
    if a.dtype is not b.dtype and name == "addmv_impl_cpu":
        vector, matrix = b.dtype.scalar, a.dtype.scalar
        raise RuntimeError(f"addmv input tensors must have the same dtype, but got {vector}, {matrix}, and {vector}")
    if a.dtype is not b.dtype and name in ("bmm", "baddbmm"):
        raise RuntimeError(f"expected scalar type {a.dtype.scalar} but found {b.dtype.scalar}")
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {C_NAME[a.dtype.name]} != {C_NAME[b.dtype.name]}"
        )
    if a.dtype is BOOL:
        raise NotImplementedError(f"\"{name}\" not implemented for 'Bool'")


def _alike(a: Any, b: Any) -> None:
    if a.dtype is not b.dtype:
        raise RuntimeError(f"both inputs should have same dtype, but got {a.dtype.scalar} and {b.dtype.scalar}")


def _size(x: Any) -> str:
    return "x".join(map(str, x.shape))


def _ndim(x: Any, ndim: int, what: str) -> None:
    if len(x.shape) != ndim:
        raise RuntimeError(f"{what} must be a {'matrix' if ndim == 2 else f'{ndim}D tensor'}")


def _matrices(name: str, a: Any, b: Any, first: str = "self", second: str = "mat2") -> None:
    _ndim(a, 2, first)
    _ndim(b, 2, second)
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({_size(a)} and {_size(b)})")
    _same_dtype(name, a, b)


def _batches(name: str, a: Any, b: Any) -> None:
    for x, what in ((a, "batch1"), (b, "batch2")):
        _ndim(x, 3, what)
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{a.shape[0]}, {a.shape[2]}] but got: [{b.shape[0]}, {b.shape[1]}]."
        )
    _same_dtype(name, a, b)


def transposed(x: Any) -> Any:
    """Exchange the last two dims."""
    n = len(x.shape)
    return build.transpose(x, (*range(n - 2), n - 1, n - 2))


def _inner(x: Any, y: Any, dims: Sequence[int]) -> Any:
    """Sum of products over dims, as one reduction: for products with vectors, which are bound by memory."""
    dtype = x.dtype
    return narrow(prim.sum(wide(x) * wide(y), dims=tuple(dims)), dtype)


# ***** products of vectors, matrices, batches *****


@operator("mm(Tensor input, Tensor mat2) -> Tensor", out="exact")
def mm(a: Any, b: Any) -> Any:
    """out[i, j] = sum over k of input[i, k] mat2[k, j]: the product of matrices (n, m) and (m, p)."""
    _matrices("addmm_impl_cpu_", a, b)
    return build.dot(a, b)


@operator("bmm(Tensor input, Tensor mat2) -> Tensor", out="exact")
def bmm(a: Any, b: Any) -> Any:
    """out[b] = input[b] @ mat2[b]: the products of as many pairs of matrices (b, n, m) and (b, m, p) as the batch
    holds."""
    _batches("bmm", a, b)
    return build.dot(a, b)


@operator("mv(Tensor input, Tensor vec) -> Tensor", out="exact")
def mv(a: Any, v: Any) -> Any:
    """out[i] = sum over k of input[i, k] vec[k]: the product of a matrix (n, m) and a vector (m)."""
    if len(a.shape) != 2 or len(v.shape) != 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got {min(len(a.shape), 1)}, {len(a.shape)}, {len(v.shape)}"
        )
    if a.shape[1] != v.shape[0]:
        raise RuntimeError(f"size mismatch, got input ({a.shape[0]}), mat ({_size(a)}), vec ({v.shape[0]})")
    _same_dtype("addmv_impl_cpu", a, v)
    return _inner(a, prim.broadcast(v, shape=a.shape, dims=(1,)), (1,))


def _vectors(a: Any, b: Any) -> None:
    if len(a.shape) != 1 or len(b.shape) != 1:
        raise RuntimeError(f"1D tensors expected, but got {len(a.shape)}D and {len(b.shape)}D tensors")
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"dot : expected both vectors to have same dtype, but found {CPP_NAME[a.dtype.name]} and {CPP_NAME[b.dtype.name]}"
        )
    if a.shape != b.shape:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{a.shape[0]}] and src [{b.shape[0]}] to have the same number of elements, "
            f"but got {a.shape[0]} and {b.shape[0]} elements respectively"
        )
    _same_dtype("dot", a, b)


@operator("dot(Tensor input, Tensor tensor) -> Tensor", out="exact")
def dot(a: Any, b: Any) -> Any:
    """sum over i of input[i] tensor[i]: two vectors of one length give one number."""
    _vectors(a, b)
    return _inner(a, b, (0,))


@operator("vdot(Tensor input, Tensor other) -> Tensor", out="exact")
def vdot(a: Any, b: Any) -> Any:
    """sum over i of conj(input[i]) other[i]: `dot` with the first vector conjugated."""
    _vectors(a, b)
    return _inner(build.conj(a), b, (0,))


def _fold(a: Any, b: Any) -> Any:
    """[*, M, K] times one matrix: a single product with all rows."""
    rows = numel(a.shape[:-1])
    return build.reshape(build.dot(build.reshape(a, (rows, a.shape[-1])), b), (*a.shape[:-1], b.shape[-1]))


def product(a: Any, b: Any) -> Any:
    """`matmul` for operands of one dtype."""
    na, nb = len(a.shape), len(b.shape)
    if na == 0 or nb == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {na}D and {nb}D")
    if na == 1 and nb == 1:
        _vectors(a, b)
        return _inner(a, b, (0,))
    batched = nb > 2 and a.dtype is not b.dtype
    _same_dtype("addmv_impl_cpu" if nb == 1 < na else "bmm" if batched else "addmm_impl_cpu_", a, b)
    inner_b = b.shape[0] if nb == 1 else b.shape[-2]
    if a.shape[-1] != inner_b:
        if na == 2 and nb == 1:
            raise RuntimeError(f"size mismatch, got input ({a.shape[0]}), mat ({_size(a)}), vec ({b.shape[0]})")
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({_size(a)} and {_size(b)})")
    if nb == 1:
        return _inner(a, prim.broadcast(b, shape=a.shape, dims=(na - 1,)), (na - 1,))
    if na == 1:
        return _inner(prim.broadcast(a, shape=b.shape, dims=(nb - 2,)), b, (nb - 2,))
    if nb == 2:
        return _fold(a, b) if na > 2 else build.dot(a, b)
    if na == 2 and numel(b.shape[:-2]) == 1:
        return build.reshape(build.dot(a, build.reshape(b, b.shape[-2:])), (*b.shape[:-2], a.shape[0], b.shape[-1]))
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    flat = (numel(lead),)
    a, b = (build.reshape(build.broadcast_to(x, (*lead, *x.shape[-2:])), (*flat, *x.shape[-2:])) for x in (a, b))
    return build.reshape(build.dot(a, b), (*lead, a.shape[-2], b.shape[-1]))


def _matmul_node(input: Any, other: Any) -> str:
    na, nb = len(input.shape), len(other.shape)
    if na == 1 and nb == 1:
        return "DotBackward0"
    if na <= 2 and nb <= 2:
        return "MvBackward0" if nb == 1 else "SqueezeBackward4" if na == 1 else "MmBackward0"
    return "UnsafeViewBackward0"


@operator("matmul(Tensor input, Tensor other) -> Tensor", out="exact", node=_matmul_node, aliases=("linalg.matmul",))
def matmul(a: Any, b: Any) -> Any:
    """out[..., i, j] = sum over k of input[..., i, k] other[..., k, j]; the dims before broadcast, and a vector stands
    for a row or a column."""
    return product(a, b)


@operator("_int_mm(Tensor input, Tensor mat2) -> Tensor", out="exact", method=False)
def _int_mm(a: Any, b: Any) -> Any:
    """out[i, j] = sum over k of input[i, k] mat2[k, j] in int32, for input of int8 or uint8 and mat2 of int8."""
    if len(a.shape) != 2:
        raise RuntimeError(f"int_mm_out_cpu: Expected self to be of dimension 2 but got {len(a.shape)}")
    if len(b.shape) < 2:
        raise IndexError("Dimension out of range (expected to be in range of [-1, 0], but got 1)")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"int_mm_out_cpu: self.size(1) needs to match mat2.size(0) but got {a.shape[1]} and {b.shape[0]}"
        )
    if a.dtype.name not in ("int8", "uint8"):
        raise RuntimeError(f"int_mm_out_cpu: Expected self dtype to be int8 or uint8 but got {C_NAME[a.dtype.name]}")
    if b.dtype.name != "int8":
        raise RuntimeError(f"int_mm_out_cpu: Expected mat2 dtype to be of type int8 but got {C_NAME[b.dtype.name]}")
    return build.dot(a, b, INT32)


@operator(
    "scaled_product(Tensor input, Tensor mat2, Tensor scale_a, Tensor scale_b, Tensor? bias, dtype dtype) -> Tensor",
    spaces=(),
    method=False,
)
def scaled_product(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, dtype: Any) -> Any:
    """input @ mat2 times the scales of rows and of columns (or one number each), plus bias, rounded once to `dtype`."""
    shape = (a.shape[0], b.shape[1])
    wide = a.dtype.wide

    def spread(x: Any, size: tuple[int, int]) -> Any:
        return build.broadcast_to(build.reshape(build.convert(x, wide), size), shape)

    first = spread(scale_a, (numel(scale_a.shape), 1))
    second = spread(scale_b, (1, numel(scale_b.shape)))
    total = build.dot(build.convert(a, wide), build.convert(b, wide))
    total = total * (first * second) if a.shape[1] else total  # a sum of nothing is 0, whatever the scales
    if bias is not None:
        total = total + spread(bias, (1, shape[1]))
    return build.convert(total, dtype)


@operator("grouped_product(Tensor input, Tensor mat2, Tensor offs) -> Tensor", spaces=(), method=False)
def grouped_product(a: Any, b: Any, offs: Any) -> Any:
    """Products of groups of matrices: `offs` are the ends of groups along the rows of input (mat2 [G, K, N]), the columns of
    mat2 (input [G, M, K]), or the inner dim of both, which gives [G, M, N].
    """
    return prim.grouped_dot(a, b, offs, dtype=a.dtype)


@operator(
    "scaled_grouped_product(Tensor input, Tensor mat2, Tensor offs, Tensor scale_a, Tensor scale_b, dtype dtype) -> Tensor",
    spaces=(),
    method=False,
)
def scaled_grouped_product(a: Any, b: Any, offs: Any, scale_a: Any, scale_b: Any, dtype: Any) -> Any:
    """`grouped_product` times the scales of rows and of columns, rounded once to `dtype`.

    The scales of an operand with three dims, and of both where groups cut the inner dim, are [G, M] and [G, N].
    """
    wide = a.dtype.wide
    total = prim.grouped_dot(build.convert(a, wide), build.convert(b, wide), offs, dtype=wide)
    for scale, dim, other in ((scale_a, -2, -1), (scale_b, -1, -2)):
        scale = build.convert(scale, wide)
        if len(scale.shape) == 1:
            scale = build.reshape(scale, (scale.shape[0], 1) if dim == -2 else (1, scale.shape[0]))
        elif len(total.shape) == 3:
            scale = build.expand_dims(scale, (other % 3,))
        else:  # a scale for each group: rows (or columns) take that of theirs
            scale = prim.index(scale, _groups_of(offs, total.shape[other]))
            scale = scale if dim == -1 else build.transpose(scale, (1, 0))
        total = total * build.broadcast_to(scale, total.shape)
    if not a.shape[-1]:
        total = build.full(total.shape, 0, wide)
    elif len(a.shape) == len(b.shape) == 2:  # groups of no columns are 0, whatever their scales
        (groups,) = offs.shape
        before = prim.cat(
            build.full((1,), 0, offs.dtype), prim.slice(offs, starts=(0,), stops=(groups - 1,), steps=(1,)), dim=0
        )
        empty = build.reshape(prim.eq(offs, before), (groups, 1, 1))
        total = build.select(build.broadcast_to(empty, total.shape), 0, total)
    return build.convert(total, dtype)


def _groups_of(ends: Any, size: int) -> Any:
    """The group of each place of a dim; that of the places behind all groups is the last."""
    shape = (size, ends.shape[0])
    behind = prim.le(build.broadcast_to(ends, shape), prim.iota(shape=shape, dim=0, dtype=INT32))
    group = prim.sum(build.convert(behind, INT32), dims=(1,))
    return build.convert(prim.minimum(group, build.full((size,), ends.shape[0] - 1, INT32)), INT64)


# ***** with something added *****


def _factor(x: Any, factor: Any) -> Any:
    if isinstance(factor, float) and x.dtype.is_integer:
        factor = int(factor)
    return x if is_number(factor) and factor == 1 else x * factor


def _plus(x: Any, product: Any, beta: Any, alpha: Any, dtype: Any = None) -> Any:
    """beta * x + alpha * product, rounded once to `dtype` (default: that of `product`); x is not read if beta is 0."""
    dtype = product.dtype if dtype is None else dtype
    check_range(beta, dtype)
    check_range(alpha, dtype)
    if x.dtype is not dtype:
        raise RuntimeError(
            f"self and mat2 must have the same dtype, but got {CPP_NAME[x.dtype.name]} and {CPP_NAME[dtype.name]}"
        )
    shape = product.shape
    apart = len(shape) - len(x.shape)
    bad = next((d for d in reversed(range(max(apart, 0), len(shape))) if x.shape[d - apart] not in (1, shape[d])), None)
    if apart < 0 or bad is not None:
        bad = len(shape) - 1 if bad is None else bad
        raise RuntimeError(
            f"The expanded size of the tensor ({shape[bad]}) must match the existing size ({x.shape[bad - apart]}) at "
            f"non-singleton dimension {bad}.  Target sizes: {list(shape)}.  Tensor sizes: {list(x.shape)}"
        )
    if is_number(alpha) and alpha == 1 and is_number(beta) and beta == 0:
        return narrow(product, dtype)
    total = _factor(wide(product), alpha)
    if is_number(beta) and beta == 0:
        return narrow(total, dtype)
    # Beta * x is not rounded by itself: neither does oneDNN, whose bits an iteration may amplify
    if dtype is BFLOAT16 and is_number(beta):
        added = build.broadcast_to(wide(x), shape)
        return narrow(prim.fma(added, build.full_like(added, beta), total), dtype)
    return narrow(total + build.broadcast_to(_factor(wide(x), beta), shape), dtype)


def _addend(x: Any, a: Any, b: Any) -> None:
    if x.dtype is a.dtype is not b.dtype:
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {x.dtype.scalar} and {b.dtype.scalar}")


ADDED: dict[str, Any] = {"out": "exact", "inplace": True, "inplace_spaces": (), "static": ("beta", "alpha")}


@operator("addmm(Tensor input, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", **ADDED)
def addmm(x: Any, a: Any, b: Any, *, beta: Any, alpha: Any) -> Any:
    """beta * input + alpha * (mat1 @ mat2)."""
    _addend(x, a, b)
    if a.dtype is not b.dtype:
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {a.dtype.scalar} and {b.dtype.scalar}")
    _matrices("addmm_impl_cpu_", a, b, "mat1", "mat2")
    return _plus(x, build.dot(wide(a), wide(b)), beta, alpha, a.dtype)


@operator(
    "addmv(Tensor input, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    **{**ADDED, "inplace_spaces": ("torch",)},
)
def addmv(x: Any, a: Any, v: Any, *, beta: Any, alpha: Any) -> Any:
    """beta * input + alpha * (mat @ vec)."""
    if len(a.shape) == 2 and x.shape not in ((), (1,), (a.shape[0],)):
        raise RuntimeError(f"size mismatch, got input ({_size(x)}), mat ({_size(a)}), vec ({_size(v)})")
    return _plus(x, mv(a, v), beta, alpha)


@operator(
    "addr(Tensor input, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    like="operands",
    **{**ADDED, "out": True},
)
def addr(x: Any, a: Any, b: Any, *, beta: Any, alpha: Any) -> Any:
    """beta * input + alpha * outer(vec1, vec2)."""
    for v, what in ((a, "vec1"), (b, "vec2")):
        if len(v.shape) != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {what}, but got {len(v.shape)}-D")
    x, a, b = common([x, a, b])
    if x.dtype is BOOL:
        both = prim.bitwise_and(*_crossed(a, b))
        both = both if alpha else build.full_like(both, False)
        return both | build.broadcast_to(x, both.shape) if beta else both
    for name, factor in (("beta", beta), ("alpha", alpha)):
        if isinstance(factor, bool):
            raise RuntimeError(f"Boolean {name} only supported for Boolean results.")
        if isinstance(factor, float) and x.dtype.is_integer:
            raise RuntimeError(f"For integral input tensors, argument {name} must not be a floating point number.")
    left, right = _crossed(wide(a), wide(b))
    return _plus(x, narrow(left * right, x.dtype), beta, alpha)


def _crossed(a: Any, b: Any) -> tuple[Any, Any]:
    """Products of all pairs of elements of two vectors."""
    shape = (a.shape[0], b.shape[0])
    return prim.broadcast(a, shape=shape, dims=(0,)), prim.broadcast(b, shape=shape, dims=(1,))


@operator("baddbmm(Tensor input, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", **ADDED)
def baddbmm(x: Any, a: Any, b: Any, *, beta: Any, alpha: Any) -> Any:
    """beta * input + alpha * bmm(batch1, batch2)."""
    _batches("baddbmm", a, b)
    return _plus(x, build.dot(wide(a), wide(b)), beta, alpha, a.dtype)


@operator("addbmm(Tensor input, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", **ADDED)
def addbmm(x: Any, a: Any, b: Any, *, beta: Any, alpha: Any) -> Any:
    """beta * input + alpha * (the sum of all products of the batch)."""
    for v, what in ((a, "batch1"), (b, "batch2")):
        _ndim(v, 3, what)
    if a.shape[0] != b.shape[0]:
        raise RuntimeError(f"batch1 and batch2 must have same number of batches, got {a.shape[0]} and {b.shape[0]}")
    if a.shape[2] != b.shape[1]:
        raise RuntimeError(
            f"Incompatible matrix sizes for bmm ({a.shape[1]}x{a.shape[2]} and {b.shape[1]}x{b.shape[2]})"
        )
    _addend(x, a, b)
    _same_dtype("addbmm", a, b)
    batch, rows, inner = a.shape
    left = build.reshape(build.transpose(wide(a), (1, 0, 2)), (rows, batch * inner))
    return _plus(x, build.dot(left, build.reshape(wide(b), (batch * inner, b.shape[2]))), beta, alpha, a.dtype)


def _linear_node(input: Any, weight: Any, bias: Any = None) -> str:
    if len(input.shape) == 2:
        return "AddmmBackward0" if bias is not None else "MmBackward0"
    return "ViewBackward0" if bias is not None else "UnsafeViewBackward0"


@operator(
    "linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    spaces=("nn.functional",),
    method=False,
    node=_linear_node,
    out="exact",
)
def linear(x: Any, weight: Any, bias: Any) -> Any:
    """input @ weight.T + bias over the last dim: one product with all rows."""
    if not x.shape or not weight.shape:
        raise RuntimeError(
            f"both arguments to linear need to be at least 1D, but they are {len(x.shape)}D and {len(weight.shape)}D"
        )
    if len(weight.shape) == 1:
        result = product(x, weight)
        return (
            result
            if bias is None
            else narrow(wide(result) + build.broadcast_to(wide(bias), result.shape), result.dtype)
        )
    if x.shape[-1] != weight.shape[1]:
        rows = (numel(x.shape[:-1]), x.shape[-1])
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows[0]}x{rows[1]} and {weight.shape[1]}x{weight.shape[0]}): linear() expected "
            f"{weight.shape[1]} features in the last dim of input, as weight{list(weight.shape)} takes, but found input{list(x.shape)}"
        )
    if x.dtype is not weight.dtype:
        raise RuntimeError(
            f"mat1 and mat2 must have the same dtype, but got {CPP_NAME[x.dtype.name]} and {CPP_NAME[weight.dtype.name]}"
        )
    _same_dtype("addmm_impl_cpu_", x, weight)
    rows = build.reshape(x, (numel(x.shape[:-1]), x.shape[-1]))
    if bias is None:
        result = build.dot(rows, transposed(weight))
    else:  # rounded once, including the bias
        sums = build.dot(wide(rows), transposed(wide(weight)))
        result = narrow(sums + build.broadcast_to(wide(bias), sums.shape), x.dtype)
    return build.reshape(result, (*x.shape[:-1], weight.shape[0]))


@linear.gradient
def _(ct: Any, out: Any, x: Any, weight: Any, bias: Any) -> Any:
    if len(weight.shape) == 1:
        spread = build.conj(prim.broadcast(weight, shape=x.shape, dims=(len(x.shape) - 1,)))
        wider = build.broadcast_to(build.expand_dims(wide(ct), (len(ct.shape),)), x.shape)
        to_weight = build.sum_to(wider * build.conj(wide(x)), weight.shape)
        to_bias = None if bias is None else build.sum_to(wide(ct), bias.shape)
        return narrow(wider * wide(spread), x.dtype), narrow(to_weight, weight.dtype), to_bias
    rows = numel(x.shape[:-1])
    grad, flat = build.reshape(ct, (rows, weight.shape[0])), build.reshape(x, (rows, x.shape[-1]))
    to_x = build.reshape(build.dot(grad, build.conj(weight)), x.shape)
    # The gradient of the weight is computed in the weight's own layout, not as the transpose of its transpose.
    to_weight = build.dot(transposed(grad), build.conj(flat))
    to_bias = None if bias is None else build.sum_to(wide(grad), bias.shape)
    return to_x, to_weight, None if to_bias is None else narrow(to_bias, bias.dtype)


# ***** other shapes of products *****


@operator(
    "outer(Tensor input, Tensor vec2) -> Tensor",
    promote="same",
    like="contiguous",
    out=True,
    aliases=("ger",),
    node="MulBackward0",
)
def outer(a: Any, b: Any) -> Any:
    """out[i, j] = input[i] vec2[j]: vectors (n) and (m) give a matrix (n, m)."""
    for x, what in ((a, "self"), (b, "vec2")):
        if len(x.shape) != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {what}, but got {len(x.shape)}-D")
    left, right = _crossed(a, b)
    return left & right if a.dtype is BOOL else left * right


def contract(a: Any, b: Any, dims_a: Sequence[int], dims_b: Sequence[int]) -> Any:
    """Sum over pairs of dims; the other dims of `a`, then those of `b`."""
    for i, j in zip(dims_a, dims_b, strict=True):
        if a.shape[i] == 1 != b.shape[j]:
            b = build.expand_dims(build.total(b, (j,)), (j,))
        elif b.shape[j] == 1 != a.shape[i]:
            a = build.expand_dims(build.total(a, (i,)), (i,))
        if a.shape[i] != b.shape[j]:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a.shape[i]} in dim {i} and second has size {b.shape[j]} in dim {j}"
            )
    kept_a = [d for d in range(len(a.shape)) if d not in dims_a]
    kept_b = [d for d in range(len(b.shape)) if d not in dims_b]
    inner = numel([a.shape[d] for d in dims_a])
    left = build.reshape(build.transpose(a, (*kept_a, *dims_a)), (numel([a.shape[d] for d in kept_a]), inner))
    right = build.reshape(build.transpose(b, (*dims_b, *kept_b)), (inner, numel([b.shape[d] for d in kept_b])))
    return build.reshape(build.dot(left, right), (*(a.shape[d] for d in kept_a), *(b.shape[d] for d in kept_b)))


@operator(
    "tensordot_core(Tensor a, Tensor b, int[] dims_a, int[] dims_b) -> Tensor",
    spaces=(),
    method=False,
    node="ViewBackward0",
)
def tensordot_core(a: Any, b: Any, dims_a: Any, dims_b: Any) -> Any:
    """sum of a[..., k] b[k, ...] over pairs of dims k (see `tensordot`)."""
    if len(dims_a) != len(dims_b):
        raise RuntimeError("both dimension lists should have same length")
    _alike(a, b)
    return contract(a, b, [wrap(d, a) for d in dims_a], [wrap(d, b) for d in dims_b])


@operator("tensordot(Tensor a, Tensor b, any dims=2) -> Tensor", method=False, node="ViewBackward0", out=True)
def tensordot(a: Any, b: Any, dims: Any) -> Any:
    """sum of a[..., k] b[k, ...] over the last `dims` dims of a and the first of b, or over two lists of dims."""
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(len(a.shape), len(b.shape)):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        return contract(a, b, range(len(a.shape) - dims, len(a.shape)), range(dims))
    dims_a, dims_b = dims
    as_list = lambda v: [v] if isinstance(v, int) else list(v)
    return tensordot_core(a, b, as_list(dims_a), as_list(dims_b))


@operator("inner(Tensor input, Tensor other) -> Tensor", out="exact", node="ViewBackward0")
def inner(a: Any, b: Any) -> Any:
    """out[..., i, j] = sum over k of input[..., i, k] other[..., j, k]: products summed over the last dims."""
    if not a.shape or not b.shape:
        a, b = common((a, b))
        dtype = a.dtype
        a, b = build.match(wide(a), wide(b))
        return a & b if dtype is BOOL else narrow(a * b, dtype)
    if a.shape[-1] != b.shape[-1]:
        raise RuntimeError(
            f"inner() the last dimension must match on both input tensors but got shapes {list(a.shape)} and {list(b.shape)}"
        )
    _alike(a, b)
    if len(a.shape) == 1 and len(b.shape) == 1:
        return dot(a, b)
    return contract(a, b, [len(a.shape) - 1], [len(b.shape) - 1])


@operator("kron(Tensor input, Tensor other) -> Tensor", promote="same", like="contiguous", out=True, tags=("aligned",))
def kron(a: Any, b: Any) -> Any:
    """out[i p + k, j q + l] = input[i, j] other[k, l], other being (p, q): every element times all of other, arranged
    as blocks."""
    ndim = max(len(a.shape), len(b.shape))
    sizes = [(1,) * (ndim - len(x.shape)) + x.shape for x in (a, b)]
    pairs = tuple(s for both in zip(*sizes, strict=True) for s in both)
    left = prim.broadcast(build.reshape(a, sizes[0]), shape=pairs, dims=tuple(range(0, 2 * ndim, 2)))
    right = prim.broadcast(build.reshape(b, sizes[1]), shape=pairs, dims=tuple(range(1, 2 * ndim, 2)))
    return build.reshape(
        left & right if a.dtype is BOOL else left * right, [m * n for m, n in zip(*sizes, strict=True)]
    )


@operator("bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor", spaces=("torch", "nn.functional"),
          method=False, node="AddBackward0")  # fmt: skip
def bilinear(a: Any, b: Any, weight: Any, bias: Any) -> Any:
    """sum over i, j of input1[i] weight[k, i, j] input2[j], plus bias[k]."""
    if len(a.shape) != len(b.shape) or not a.shape:
        raise RuntimeError(f"bilinear(): input dimensions do not match: got {len(a.shape)} and {len(b.shape)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise (RuntimeError if bias.shape else IndexError)(
            f"bilinear(): bias {list(bias.shape)} does not fit weight {list(weight.shape)}"
        )
    if a.shape[:-1] != b.shape[:-1]:
        raise RuntimeError(f"bilinear(): input batch dimensions do not match: got {list(a.shape)} and {list(b.shape)}")
    if len(weight.shape) != 3 or a.shape[-1] != weight.shape[1] or b.shape[-1] != weight.shape[2]:
        raise RuntimeError(
            f"bilinear(): weight {list(weight.shape)} does not fit inputs {list(a.shape)} and {list(b.shape)}"
        )
    rows, outs = numel(a.shape[:-1]), weight.shape[0]
    left = build.reshape(a, (rows, a.shape[-1]))
    right = build.reshape(b, (rows, b.shape[-1]))
    by_first = contract(left, weight, [1], [1])  # [rows, outs, second]
    second = prim.broadcast(right, shape=by_first.shape, dims=(0, 2))
    sums = _inner(by_first, second, (2,))
    if bias is not None:
        sums = narrow(wide(sums) + build.broadcast_to(wide(bias), sums.shape), sums.dtype)
    return build.reshape(sums, (*a.shape[:-1], outs))
