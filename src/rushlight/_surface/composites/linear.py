"""`torch.linalg` as far as it needs no factorisation: norms, products, powers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._engine.core.tensor import Tensor
from rushlight._ops.bodies import C_NAME, CPP_NAME, check_norm_dtype
from rushlight._surface.composites.measures import cross_product, into
from rushlight._surface.registry import SPACES, composite, function_of
from rushlight._types.dtype import INT64
from rushlight._types.formats import FORMATS
from rushlight._types.layout import wrap_dim

__all__: list[str] = []

T = SPACES["torch"]
LINALG = ("linalg",)


def _both(dim: Any) -> Any:
    return (dim,) if isinstance(dim, int) else None if dim is None else tuple(dim)


def _extreme_of(ord: float, size: int) -> str:
    """The reduction of `size` sizes: the greatest of none is 0, the least of none is refused."""
    return "amin" if ord < 0 else "amax" if size else "sum"


@composite("matrix_norm", spaces=LINALG, cached=True)
def matrix_norm(
    input: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Tensor:
    """A norm of matrices: "fro", "nuc", 2, -2 (singular values), 1, -1 (columns), inf, -inf (rows)."""
    if input._spec.ndim < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    if not (input._spec.dtype.is_floating_point or input._spec.dtype.is_complex):
        raise RuntimeError(
            f"linalg.matrix_norm: Expected a floating point or complex tensor as input. Got {input._spec.dtype.scalar}"
        )
    if len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {' '.join(map(str, dim))}")
    dims = tuple(wrap_dim(d, input._spec.ndim) for d in dim)
    if dims[0] == dims[1]:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({dim[0]}, {dim[1]})")
    if dtype is not None:
        check_norm_dtype("linalg.matrix_norm", input._spec.dtype, dtype)
    x = input if dtype is None else input.to(dtype)
    if isinstance(ord, str):
        if ord == "fro":
            return into(out, function_of("linalg_vector_norm")(x, 2, dims, keepdim), "linalg_matrix_norm", exact=True)
        if ord != "nuc":
            raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    elif abs(ord) not in (1, 2, float("inf")):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    if ord == "nuc" or abs(ord) == 2:
        if x._spec.dtype.wide is not x._spec.dtype:
            raise RuntimeError(f"linalg.matrix_norm: Low precision dtypes not supported. Got {x._spec.dtype.scalar}")
        values = SPACES["linalg"]["svdvals"](x.movedim(dims, (-2, -1)))
        kind = "sum" if ord == "nuc" else _extreme_of(ord, values._spec.shape[-1])
        found = function_of(kind)(values, (-1,), False)
        if keepdim:
            for d in sorted(dims):
                found = found.unsqueeze(d)
        return into(out, found, "linalg_matrix_norm", exact=True)
    inner, outer = (dims[0], dims[1]) if abs(ord) == 1 else (dims[1], dims[0])
    sums = function_of("linalg_vector_norm")(x, 1, (inner,), True)
    found = function_of(_extreme_of(ord, sums._spec.shape[outer]))(sums, (outer,), True)
    return into(out, found if keepdim else found.squeeze(dims), "linalg_matrix_norm", exact=True)


@composite("norm", spaces=LINALG, cached=True)
def norm(
    input: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Tensor:
    """A vector norm, or a matrix norm where `ord` or two dims ask for one."""
    dims = _both(dim)
    if ord is None and (dims is None or len(dims) <= 2) and not isinstance(ord, str):
        found = function_of("linalg_vector_norm")(input, 2, dims, keepdim, dtype=dtype)
        return into(out, found, "linalg_norm", exact=True)
    if dims is not None and len(dims) not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}")
    if dims is None and input._spec.ndim not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {input._spec.ndim}D."
        )
    if isinstance(ord, str) or (len(dims) if dims is not None else input._spec.ndim) == 2:
        found = matrix_norm(input, ord, dims or (-2, -1), keepdim, dtype=dtype)
        return into(out, found, "linalg_norm", exact=True)
    found = function_of("linalg_vector_norm")(input, ord, dims, keepdim, dtype=dtype)
    return into(out, found, "linalg_norm", exact=True)


@composite("vecdot", spaces=LINALG, cached=True)
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Any = None) -> Tensor:
    """The inner products of vectors along dim, the first conjugated."""
    if not (x._spec.dtype.is_floating_point or x._spec.dtype.is_complex):
        raise RuntimeError(
            f"linalg.vecdot: Expected a floating point or complex tensor as input. Got {x._spec.dtype.scalar}"
        )
    if x._spec.dtype is not y._spec.dtype:
        raise RuntimeError(
            f"linalg.vecdot: Expected x and y to have the same dtype, but found x of type {x._spec.dtype.scalar} and y of type {y._spec.dtype.scalar} instead"
        )
    if x._spec.ndim == y._spec.ndim == 1 and x._spec.shape != y._spec.shape:
        raise RuntimeError(
            f"inconsistent tensor size, expected vectors of as many elements, but got {x._spec.numel} and {y._spec.numel} elements respectively"
        )
    left = T["conj"](x) if x._spec.dtype.is_complex else x
    return into(out, (left * y).sum(dim), "linalg_vecdot", exact=True)


@composite("cross", spaces=LINALG, refuses="b", cached=True)
def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Any = None) -> Tensor:
    """The cross products of vectors of length 3 along dim."""
    if input._spec.ndim != other._spec.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    return into(out, cross_product(input, other, dim), "linalg_cross", exact=True)


@composite("diagonal", spaces=LINALG, cached=True)
def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of the last two dims, as a view."""
    return function_of("diagonal")(A, offset, dim1, dim2)


@composite("multi_dot", spaces=LINALG, cached=True)
def multi_dot(tensors: Sequence[Tensor], *, out: Any = None) -> Tensor:
    """The product of several matrices in the order that needs the fewest multiplications; the ends may be vectors."""
    given = list(tensors)
    if len(given) < 2:
        raise RuntimeError("multi_dot(): expected at least 2 tensors but got " + str(len(given)))
    for i, t in enumerate(given):
        if t._spec.dtype is not given[0]._spec.dtype:
            kinds = [C_NAME[v._spec.dtype.name] for v in (given[0], t)]
            raise RuntimeError(
                f"multi_dot(): all tensors must have be the same dtype but tensor 0 is {kinds[0]} and tensor {i} {kinds[1]}"
            )
    first, last = given[0]._spec.ndim, given[-1]._spec.ndim
    for i, t in enumerate(given):
        end = "first" if i == 0 else "last" if i == len(given) - 1 else None
        if t._spec.ndim not in ((2,) if end is None else (1, 2)):
            which = f"tensor {i} must be 2D" if end is None else f"the {end} tensor must be 1D or 2D"
            raise RuntimeError(f"multi_dot(): {which} but got {t._spec.ndim}D")
    if first == 1:
        given[0] = given[0].unsqueeze(0)
    if last == 1:
        given[-1] = given[-1].unsqueeze(1)
    for i in range(len(given) - 1):
        if given[i]._spec.shape[1] != given[i + 1]._spec.shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(given[i].shape)} and {list(given[i + 1].shape)} cannot be multiplied"
            )
    sizes = [given[0]._spec.shape[0], *[t._spec.shape[1] for t in given]]
    found = _chain(given, _best_splits(sizes), 0, len(given) - 1)
    found = found.squeeze(0) if first == 1 else found
    return into(out, found.squeeze(-1) if last == 1 else found, "linalg_multi_dot", exact=True)


def _best_splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to cut each run of matrices: the classic dynamic program."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            options = [(cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)]
            cost[i, j], split[i, j] = min(options)
    return split


def _chain(given: list[Any], split: dict[tuple[int, int], int], i: int, j: int) -> Any:
    if i == j:
        return given[i]
    k = split[i, j]
    return function_of("mm")(_chain(given, split, i, k), _chain(given, split, k + 1, j))


@composite("matrix_power", spaces=("linalg", "torch"), method=True, cached=True)
def matrix_power(input: Tensor, n: int, *, out: Any = None) -> Tensor:
    """Square matrices multiplied n times by themselves; negative powers are those of the inverse."""
    if input._spec.ndim < 2:
        raise RuntimeError("linalg.matrix_power: The input tensor A must have at least 2 dimensions.")
    if input._spec.shape[-1] != input._spec.shape[-2]:
        raise RuntimeError(
            "linalg.matrix_power: A must be batches of square matrices, but they are "
            f"{input._spec.shape[-2]} by {input._spec.shape[-1]} matrices"
        )
    if n == 0:
        eye = T["eye"](input._spec.shape[-1], dtype=input.dtype, device=input.device)
        like = input.clone(memory_format=FORMATS["contiguous_format"])
        return into(out, like.copy_(eye.expand(input._spec.shape)), "matrix_power")
    base, power = (input, n) if n > 0 else (SPACES["linalg"]["inv"](input), -n)
    found = None
    while power:
        if power & 1:
            found = base if found is None else found @ base
        power >>= 1
        base = base @ base if power else base
    return into(out, found if found is not input else input.clone(), "matrix_power")


@composite("vander", spaces=LINALG, cached=True)
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers 0 to N - 1 of each element, along a new last dim."""
    dtype = x._spec.dtype
    if dtype.kind == "b" or (dtype.is_floating_point and dtype.itemsize < 4):
        raise RuntimeError(
            f"linalg.vander supports floating point, complex, and integer tensors, but got {CPP_NAME[dtype.name]}"
        )
    if dtype.is_integer:
        x = x.to(INT64)
    x = x if x._spec.ndim else x.reshape(1)
    count = x._spec.shape[-1] if N is None else N
    if count <= 1:
        raise RuntimeError("N must be greater than 1.")
    bases = x.unsqueeze(-1)
    return T["cat"]([T["ones_like"](bases), bases.expand(*x._spec.shape, count - 1).cumprod(-1)], -1)


@composite("_addmm_activation", method=True, cached=True)
def _addmm_activation(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False, out: Any = None
) -> Tensor:
    """`addmm` and, of its result, `relu`, or `gelu` if `use_gelu`.  Unlike PyTorch's it has gradients."""
    found = T["addmm"](input, mat1, mat2, beta=beta, alpha=alpha)
    active = SPACES["nn.functional"]["gelu"](found) if use_gelu else found.relu()
    return into(out, active, "_addmm_activation", exact=True)


@composite("vander", cached=True)
def torch_vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Powers of a vector's elements in columns, falling unless `increasing`."""
    if x._spec.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    if not (x._spec.dtype.is_floating_point or x._spec.dtype.is_complex):
        x = x.to(INT64)
    count = x._spec.shape[0] if N is None else N
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    found = T["stack"]([x**k for k in range(count)], -1) if count else x.new_empty((x._spec.shape[0], 0))
    return found if increasing else found.flip(-1)
