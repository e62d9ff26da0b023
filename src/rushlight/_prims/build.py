"""Broadcasting helpers over the strict primitives, for operator bodies and rules: they also take Python numbers.

Everything here returns values of the current builder and works on anything with `.shape` and `.dtype`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._prims.record import PRIMITIVES
from rushlight._types.dtype import BFLOAT16, BOOL, FLOAT16, DType
from rushlight._types.layout import broadcast_shapes
from rushlight._types.symbols import as_double, truncated

__all__ = [
    "add_any", "binary", "broadcast_to", "complex_", "conj", "convert", "dot", "eq", "expand_dims", "full", "full_like", "in_single", "invert",
    "keep_dims", "match", "ne", "pad", "reshape", "select", "squeeze", "sum_to", "total", "transpose", "unary", "unwindow", "zeros_like",
]  # fmt: skip

HALF = frozenset((FLOAT16, BFLOAT16))
Number = (bool, int, float, complex)


def full(shape: Sequence[int], value: Any, dtype: DType) -> Any:
    """A constant array."""
    return PRIMITIVES["full"](shape=tuple(shape), value=_number_for(value, dtype), dtype=dtype)


def _number_for(value: Any, dtype: DType) -> Any:
    """`value` rounded to `dtype`, as a Python number."""
    if dtype.is_floating_point:
        return as_double(value)
    if dtype.is_complex:
        return complex(value)
    return bool(value) if dtype is BOOL else truncated(value)


def full_like(x: Any, value: Any) -> Any:
    """A constant with the shape and dtype of `x`."""
    return full(x.shape, value, x.dtype)


def zeros_like(x: Any) -> Any:
    """Zeros (False for bool) shaped like `x`."""
    return full(x.shape, 0, x.dtype)


def convert(x: Any, dtype: DType) -> Any:
    """`x` converted to `dtype`; `x` itself if it has that dtype."""
    return x if x.dtype is dtype else PRIMITIVES["convert"](x, dtype=dtype)


def reshape(x: Any, shape: Sequence[int]) -> Any:
    """`x` with another shape; `x` itself if nothing changes."""
    shape = tuple(shape)
    return x if x.shape == shape else PRIMITIVES["reshape"](x, shape=shape)


def transpose(x: Any, perm: Sequence[int]) -> Any:
    """Dims in another order; `x` itself if nothing changes."""
    perm = tuple(perm)
    return x if perm == tuple(range(len(perm))) else PRIMITIVES["transpose"](x, perm=perm)


def broadcast_to(x: Any, shape: Sequence[int]) -> Any:
    """`x` broadcast to `shape` by PyTorch's rule (aligned at the right)."""
    shape = tuple(shape)
    if x.shape == shape:
        return x
    offset = len(shape) - len(x.shape)
    if offset < 0:
        raise RuntimeError(
            f"expand({x.dtype.name}{list(x.shape)}, size={list(shape)}): the number of sizes provided ({len(shape)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({len(x.shape)})"
        )
    for d, (size, wanted) in reversed(list(enumerate(zip(x.shape, shape[offset:]), offset))):
        if size not in (1, wanted):
            raise RuntimeError(
                f"The expanded size of the tensor ({wanted}) must match the existing size ({size}) at non-singleton dimension {d}.  Target sizes: "
                f"{list(shape)}.  Tensor sizes: {list(x.shape)}"
            )
    return PRIMITIVES["broadcast"](x, shape=shape, dims=tuple(range(offset, len(shape))))


def expand_dims(x: Any, dims: Sequence[int]) -> Any:
    """Insert dims of size 1 at these indices of the result."""
    ndim = len(x.shape) + len(dims)
    sizes = iter(x.shape)
    return reshape(x, [1 if d in dims else next(sizes) for d in range(ndim)])


def squeeze(x: Any, dims: Sequence[int]) -> Any:
    """Drop these dims of size 1."""
    return reshape(x, [s for d, s in enumerate(x.shape) if d not in dims])


def keep_dims(reduced: Any, shape: Sequence[int], dims: Sequence[int]) -> Any:
    """Broadcast a reduction's result back over the dims that it removed."""
    kept = tuple(d for d in range(len(shape)) if d not in dims)
    if tuple(reduced.shape) == tuple(shape):
        return reduced
    return PRIMITIVES["broadcast"](reduced, shape=tuple(shape), dims=kept)


def match(*items: Any) -> list[Any]:
    """Bring values and Python numbers to one dtype and shape.  Numbers and weak values take the dtype of the others."""
    strong = [i for i in items if not isinstance(i, Number) and not getattr(i, "weak", False)]
    anchors = strong or [i for i in items if not isinstance(i, Number)]
    if not anchors:
        raise TypeError("at least one operand must be a traced value")
    dtype = anchors[0].dtype
    for item in strong:
        if item.dtype is not dtype:
            raise TypeError(f"operands have dtypes {dtype.name} and {item.dtype.name}; convert one of them first")
    shape = broadcast_shapes(*(i.shape for i in items if not isinstance(i, Number)))
    return [full(shape, i, dtype) if isinstance(i, Number) else broadcast_to(convert(i, dtype), shape) for i in items]


def unary(name: str, x: Any) -> Any:
    """A pointwise primitive of one operand, by name."""
    return PRIMITIVES[name](x)


def binary(name: str, a: Any, b: Any) -> Any:
    """A pointwise primitive of two operands, by name, after `match`."""
    return PRIMITIVES[name](*match(a, b))


def eq(a: Any, b: Any) -> Any:
    """a == b, element by element."""
    return binary("eq", a, b)


def ne(a: Any, b: Any) -> Any:
    """a != b, element by element."""
    return binary("ne", a, b)


def invert(x: Any) -> Any:
    """Every bit of an integer flipped; `not` for bool."""
    every = True if x.dtype is BOOL else -1 if x.dtype.is_signed else (1 << 8 * x.dtype.itemsize) - 1
    return PRIMITIVES["bitwise_xor"](x, full_like(x, every))


def conj(x: Any) -> Any:
    """The complex conjugate; real values are unchanged."""
    return PRIMITIVES["conj"](x) if x.dtype.is_complex else x


def complex_(x: Any) -> Any:
    """A real value as a complex one."""
    return PRIMITIVES["complex"](x, zeros_like(x))


def dot(a: Any, b: Any, dtype: DType | None = None) -> Any:
    """Matrix product, in the dtype of the operands if none is given."""
    return PRIMITIVES["dot"](a, b, dtype=dtype or a.dtype)


def add_any(a: Any, b: Any) -> Any:
    """The sum of two gradients, where None stands for zero.  Narrow dtypes are added in a wider one and rounded."""
    if a is None or b is None:
        return b if a is None else a
    if a.dtype.wide is not a.dtype:
        return convert(convert(a, a.dtype.wide) + convert(b, a.dtype.wide), a.dtype)
    return a + b


def total(x: Any, dims: Sequence[int]) -> Any:
    """Sum over dims, and remove them.  Narrow dtypes are summed in a wider one and rounded."""
    if not dims:
        return x
    if x.dtype.wide is not x.dtype:
        return convert(PRIMITIVES["sum"](convert(x, x.dtype.wide), dims=tuple(dims)), x.dtype)
    return PRIMITIVES["sum"](x, dims=tuple(dims))


def in_single(function: Any, x: Any) -> Any:
    """`function(x)`, computed in a wider dtype and rounded back if x has a narrow one."""
    return convert(function(convert(x, x.dtype.wide)), x.dtype) if x.dtype.wide is not x.dtype else function(x)


def pad(x: Any, lo: Sequence[int], hi: Sequence[int], interior: Sequence[int], value: Any = 0) -> Any:
    """`x` surrounded by `value`; negative `lo` or `hi` cut off elements instead."""
    if any(lo) or any(hi) or any(interior):
        more = [tuple(max(n, 0) for n in ends) for ends in (lo, hi)]
        x = PRIMITIVES["pad"](x, value=_number_for(value, x.dtype), lo=more[0], hi=more[1], interior=tuple(interior))
    if min((*lo, *hi), default=0) < 0:
        starts = tuple(max(-n, 0) for n in lo)
        stops = tuple(size - max(-n, 0) for size, n in zip(x.shape, hi, strict=True))
        x = PRIMITIVES["slice"](x, starts=starts, stops=stops, steps=(1,) * len(x.shape))
    return x


def unwindow(g: Any, shape: Any, dims: Any, size: Any, stride: Any, dilation: Any) -> Any:
    """The transpose of `window`; adjacent windows are joined without sums."""
    if any(k != s or gap != 1 for k, s, gap in zip(size, stride, dilation, strict=True)):
        return PRIMITIVES["unwindow"](
            g, shape=tuple(shape), dims=tuple(dims), size=tuple(size), stride=tuple(stride), dilation=tuple(dilation)
        )
    inner = {d: len(shape) + i for i, d in enumerate(dims)}
    order = [d for outer in range(len(shape)) for d in ((outer, inner[outer]) if outer in inner else (outer,))]
    joined = [n * g.shape[inner[d]] if d in inner else n for d, n in enumerate(g.shape[: len(shape)])]
    whole = reshape(transpose(g, order), joined)
    rest = [want - have for want, have in zip(shape, joined, strict=True)]
    return pad(whole, [0] * len(rest), rest, [0] * len(rest))


def sum_to(x: Any, shape: Sequence[int]) -> Any:
    """The transpose of `broadcast_to`: sum over the dims that a value of `shape` was repeated along."""
    shape = tuple(shape)
    offset = len(x.shape) - len(shape)
    dims = [d for d in range(len(x.shape)) if d < offset or (shape[d - offset] == 1 and x.shape[d] != 1)]
    return reshape(total(x, dims), shape)


def select(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`; all three broadcast."""
    a, b = match(a, b)
    shape = broadcast_shapes(condition.shape, a.shape)
    return PRIMITIVES["select"](broadcast_to(condition, shape), broadcast_to(a, shape), broadcast_to(b, shape))
