"""Common parts of operator bodies: checks in PyTorch's words, numbers and dtypes, dims, and small pieces of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._prims import build, prim
from rushlight._types.dtype import (
    ALL_DTYPES,
    BFLOAT16,
    BOOL,
    COMPLEX128,
    FLOAT8,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    ByName,
    DType,
)
from rushlight._types.layout import (
    Cut,
    channels_last_strides,
    dense_strides,
    memory_order,
    numel,
    preserved,
    suggests_channels_last,
    wrap_dim,
)
from rushlight._types.promotion import default_dtype, join, result_type
from rushlight._types.symbols import is_symbolic

__all__ = [
    "CPP_NAME", "C_NAME", "HALF", "along", "as_bool", "as_dtype", "as_float", "check_norm_dtype", "common", "count_dtype", "dims_of", "div_floor", "finish", "flat", "format_of_all",
    "check_range", "given_dtype", "in_order_of_input", "is_number", "is_weak", "isinf", "isnan", "iota_like", "keep", "like_input", "logistic", "lowest", "narrow", "not_implemented", "onto", "pair", "reduce_dims",
    "refuse", "rounded", "slice_bounds", "spread", "take_slice", "wide", "wrap",
]  # fmt: skip

HALF = frozenset((FLOAT16, BFLOAT16))
CPP_NAME = {d.name: d.scalar for d in ALL_DTYPES}
# C++'s names of the types
C_NAME = {
    "bool": "bool", "uint8": "unsigned char", "int8": "signed char", "int16": "short int", "int32": "int", "int64": "long int",
    "uint16": "short unsigned int", "uint32": "unsigned int", "uint64": "long unsigned int", "float16": "c10::Half",
    "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double", "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>", "complex32": "c10::complex<c10::Half>", **{d.name: f"c10::{d.scalar}" for d in FLOAT8},
}  # fmt: skip
_INFINITY = float("inf")
_LARGEST = ByName(
    {
        "float16": 65504.0,
        "bfloat16": 3.3895313892515355e38,
        "float32": 3.4028234663852886e38,
        "float64": 1.7976931348623157e308,
    }
)
_EPSILON = ByName({"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52})


# ***** numbers and dtypes *****


def is_number(item: Any) -> bool:
    """Whether it is a literal Python number (a constant of the graph)."""
    return isinstance(item, (bool, int, float, complex))


def is_weak(item: Any) -> bool:
    """Whether it is a number, literal or given at run time."""
    return is_number(item) or bool(getattr(item, "weak", False))


def given_dtype(x: Any) -> DType:
    """The dtype of the caller's argument, before promotion converted the value."""
    node = getattr(x, "node", None)
    if node is not None and node.prim.name == "convert" and node.inputs[0].node is None:
        return node.inputs[0].dtype
    return x.dtype


def number_kind(item: Any) -> str:
    """'b', 'i', 'f' or 'c' for a literal or weak number."""
    if is_number(item):
        return (
            {bool: "b", int: "i", float: "f", complex: "c"}[type(item)]
            if type(item) in (bool, int, float, complex)
            else "f"
        )
    return item.dtype.kind


def number_value(item: Any, dtype: DType) -> Any:
    """A literal or weak number as a value of shape () and this dtype; RuntimeError for a complex number and a real
    dtype."""
    if dtype.kind in "uif" and number_kind(item) == "c":
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")
    return build.full((), item, dtype) if is_number(item) else build.convert(item, dtype)


def check_range(value: Any, dtype: DType) -> None:
    """RuntimeError for a literal number that an integer dtype cannot hold; a negative one wraps around once."""
    if type(value) in (int, float) and dtype.is_integer:
        high = (1 << 8 * dtype.itemsize - dtype.is_signed) - 1
        if not -high - dtype.is_signed <= value <= high:
            raise RuntimeError(f"value cannot be converted to type {dtype.name}_t without overflow")


# Names of operators' kernels in PyTorch's messages.
_KERNELS = {
    "amax": "max_values_cpu", "amin": "min_values_cpu", "logcumsumexp": "logcumsumexp_out_cpu", "cumsum": "cumsum_out_cpu",
    "cumprod": "cumprod_out_cpu", "histc": "histogram_cpu", "histogram": "histogramdd",
    **{name: f"{name}_cpu" for name in ("aminmax", "bincount", "cummax", "cummin", "median")},
}  # fmt: skip


def not_implemented(name: str, dtype: DType) -> NotImplementedError:
    """The error for an operator that does not support a dtype."""
    name = _KERNELS.get(name, name)
    way = "; convert the input first, for example with .float()" if dtype.kind in "bui" else ""
    return NotImplementedError(f"\"{name}\" not implemented for '{CPP_NAME.get(dtype.name, dtype.scalar)}'{way}")


def refuse(x: Any, what: str, kinds: str, joined: bool = False) -> None:
    """NotImplementedError in PyTorch's words if the dtype of `x` is of one of `kinds`: the given one, or the one that
    all were `joined` to."""
    dtype = x.dtype if joined else given_dtype(x)
    if dtype.kind in kinds:
        raise not_implemented(what, dtype)


def check_norm_dtype(name: str, dtype: DType, wanted: DType) -> None:
    """RuntimeError unless a norm of numbers of one dtype can be computed in another: both floats or both complex,
    nothing narrowed."""
    if not (wanted.is_floating_point or wanted.is_complex):
        raise RuntimeError(f"{name}: dtype should be floating point or complex, but got {wanted.scalar}")
    if dtype.is_complex is not wanted.is_complex:
        kind = "complex" if dtype.is_complex else "real"
        raise RuntimeError(f"{name}: dtype should be {kind} for {kind} inputs, but got {wanted.scalar}")
    if join(dtype, wanted) is not wanted:
        raise RuntimeError(
            f"{name}: the dtype of the input ({dtype.scalar}) should be convertible without narrowing to the specified dtype ({wanted.scalar})"
        )


def wide(x: Any) -> Any:
    """Convert narrow dtypes to their dtype of computation (float16 and bfloat16 to float32, complex32 to complex64);
    others are unchanged."""
    return build.convert(x, x.dtype.wide)


def narrow(x: Any, dtype: DType) -> Any:
    """Convert back to the result's dtype."""
    return build.convert(x, dtype)


def rounded(x: Any, dtype: DType | None) -> Any:
    """Round to a half type, for functions that take several steps in PyTorch; other dtypes are unchanged."""
    return (
        build.convert(build.convert(x, dtype), x.dtype)
        if dtype is not None and dtype in HALF and x.dtype is dtype.wide
        else x
    )


def as_float(x: Any) -> Any:
    """Integers and bool as the default float; half types as float32."""
    if x.dtype.is_floating_point or x.dtype.is_complex:
        return wide(x)
    return build.convert(x, default_dtype())


def as_dtype(x: Any, dtype: DType | None) -> Any:
    """`x` converted to `dtype`, if given."""
    return x if dtype is None else build.convert(x, dtype)


def as_bool(x: Any) -> Any:
    """x != 0."""
    return x if x.dtype is BOOL else build.ne(x, 0)


def count_dtype(x: Any, dtype: DType | None) -> DType:
    """The dtype of a sum: the requested one, else int64 for integers and bool."""
    return dtype or (x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else INT64)


def common(values: Sequence[Any]) -> list[Any]:
    """Convert values to one dtype by the rules of promotion (for operators that promote by themselves)."""
    if all(v.dtype is values[0].dtype for v in values):
        return list(values)
    dtype = result_type([(v.dtype, len(v.shape)) for v in values], [], join)
    return [build.convert(v, dtype) for v in values]


def real_of(dtype: DType) -> DType:
    """float32 for complex64, float64 for complex128, itself else."""
    return dtype.to_real()


def lowest(dtype: DType) -> Any:
    """The number below all others of a dtype: -inf, or the least integer."""
    if dtype.is_floating_point:
        return -_INFINITY
    return False if dtype is BOOL else (-(1 << (8 * dtype.itemsize - 1)) if dtype.is_signed else 0)


def highest(dtype: DType) -> Any:
    """The number above all others of a dtype: inf, or the greatest integer."""
    if dtype.is_floating_point:
        return _INFINITY
    return True if dtype is BOOL else (1 << (8 * dtype.itemsize - dtype.is_signed)) - 1


def largest_finite(dtype: DType) -> float:
    """The greatest finite number of a float dtype."""
    return _LARGEST[dtype.name]


def epsilon(dtype: DType) -> float:
    """The distance from 1 to the next number of a float dtype."""
    return _EPSILON[dtype.to_real().name]


def pair(a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands (one may be a number) in one dtype and shape."""
    a, b = build.match(a, b)
    return a, b


def isnan(x: Any) -> Any:
    """Whether x is NaN: it differs from itself."""
    if x.dtype.is_complex:
        return isnan(prim.real(x)) | isnan(prim.imag(x))
    return prim.ne(x, x)


def isinf(x: Any) -> Any:
    """Whether it is inf or -inf."""
    return build.eq(prim.abs(x), _INFINITY)


# ***** dims *****


def wrap(dim: int, x: Any) -> int:
    """A dim of `x` counted from the front."""
    return wrap_dim(dim, len(x.shape))


def dims_of(x: Any, dim: Any, empty_is_all: bool = True) -> tuple[int, ...]:
    """The dims that a reduction removes: all for None (and for [] if PyTorch treats it so), in increasing order."""
    if isinstance(dim, int):
        dim = (dim,)
    ndim = len(x.shape)
    if dim is None or (empty_is_all and len(dim) == 0):
        return tuple(range(ndim))
    if ndim > 64:
        raise RuntimeError("only tensors with up to 64 dims are supported")
    wrapped = [wrap_dim(d, ndim) for d in dim]
    if len(set(wrapped)) != len(wrapped):
        repeated = next(d for d in wrapped if wrapped.count(d) > 1)
        raise RuntimeError(f"dim {repeated} appears multiple times in the list of dims")
    return tuple(sorted(wrapped)) if ndim else ()


def div_floor(x: Any, y: Any) -> Any:
    """x / y of whole numbers, rounded downward."""
    toward_zero = prim.div_trunc(x, y)
    if not x.dtype.is_signed:
        return toward_zero
    rest = x - toward_zero * y
    below = build.ne(rest, 0) & ((rest ^ y) < 0)
    return build.select(below, toward_zero - 1, toward_zero)


def reduce_dims(name: str, x: Any, dims: Sequence[int]) -> Any:
    """A reduction primitive by name; `x` itself for no dims."""
    return getattr(prim, name)(x, dims=tuple(dims)) if dims else x


def keep(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """The shape after a reduction with keepdim."""
    return tuple(1 if d in dims else size for d, size in enumerate(shape))


def finish(reduced: Any, shape: Sequence[int], dims: Sequence[int], keepdim: bool) -> Any:
    """The result of a reduction of shape `shape`, with the removed dims as 1 for keepdim."""
    return build.reshape(reduced, keep(shape, dims)) if keepdim else reduced


def spread(reduced: Any, shape: Sequence[int], dims: Sequence[int]) -> Any:
    """A reduction's result (with or without keepdim) broadcast over the reduced dims."""
    lost = tuple(size for d, size in enumerate(shape) if d not in dims)
    return build.keep_dims(build.reshape(reduced, lost), shape, dims)


def onto(vector: Any, shape: Sequence[int], dim: int) -> Any:
    """A vector along `dim`, broadcast over all other dims of `shape`."""
    return prim.broadcast(vector, shape=tuple(shape), dims=(dim,))


def along(shape: Sequence[int], dim: int) -> Any:
    """The index along `dim`, for comparisons: in int32 if it fits, so that its vectors are as wide as those of floats."""
    return prim.iota(shape=tuple(shape), dim=dim, dtype=INT32 if shape[dim] < 1 << 31 else INT64)


def iota_like(x: Any, dim: int, dtype: DType = INT64) -> Any:
    """The index along `dim`, in the shape of `x`."""
    return prim.iota(shape=tuple(x.shape), dim=dim, dtype=dtype)


def flat(x: Any) -> Any:
    """All elements in one dim."""
    return build.reshape(x, (numel(x.shape),))


def slice_bounds(start: int | None, stop: int | None, size: int) -> tuple[int, int]:
    """Where a slice with a positive step begins and ends, as `slice(start, stop).indices(size)`; sizes stay formulas."""
    if not any(map(is_symbolic, (start, stop, size))):
        return slice(start, stop).indices(size)[:2]
    return _bound(start, 0, size), _bound(stop, size, size)


def _bound(at: int | None, default: int, size: int) -> int:
    if at is None:
        return default
    if at < 0:
        at = at + size
        return at if at > 0 else 0
    return size if at >= size else at


def take_slice(x: Any, dim: int, start: int, stop: int, step: int = 1) -> Any:
    """x[..., start:stop:step, ...] along one dim; `x` itself if that is everything."""
    if start == 0 and step == 1 and (stop == x.shape[dim]) is True:  # it may be unknown
        return x
    starts = [0] * len(x.shape)
    stops = list(x.shape)
    steps = [1] * len(x.shape)
    starts[dim], stops[dim], steps[dim] = start, max(start, stop), step
    return prim.slice(x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def taken(x: Any, cut: Cut) -> list[Any]:
    """The parts of `x`."""
    parts = [take_slice(x, cut.dim, start, stop) for start, stop in cut.bounds]
    return [build.squeeze(part, (cut.dim,)) for part in parts] if cut.drops else parts


def pad_dim(x: Any, dim: int, before: int, after: int, value: Any = 0) -> Any:
    """`x` with constants around it along one dim."""
    if before == 0 and after == 0:
        return x
    lo, hi = [0] * len(x.shape), [0] * len(x.shape)
    lo[dim], hi[dim] = before, after
    return prim.pad(x, value=value, lo=tuple(lo), hi=tuple(hi), interior=(0,) * len(x.shape))


def like_input(shape: Any, specs: Any) -> Any:
    """Strides of a result with the layout of the first operand (an operator's `like`)."""
    return preserved(shape, specs[0].strides)


def format_of_all(shape: Sequence[int], specs: Sequence[Any]) -> tuple[int, ...] | None:
    """Channels-last strides if all operands suggest that, else row-major (an operator's `like`)."""
    if len(shape) in (4, 5) and all(
        len(s.shape) == len(shape) and suggests_channels_last(s.shape, s.strides) for s in specs
    ):
        return channels_last_strides(shape)
    return None


def in_order_of_input(shape: Any, specs: Any) -> Any:
    """Strides of a dense result with the dim order of the first operand (an operator's `like`)."""
    first = specs[0]
    return dense_strides(shape, memory_order(first.shape, first.strides)) if len(shape) == len(first.shape) else None


def accumulator(dtype: DType) -> DType:
    """The dtype of a running sum: twice as wide as the data."""
    if dtype.wide is FLOAT32:
        return FLOAT64
    return COMPLEX128 if dtype.is_complex else dtype


def logistic(x: Any) -> Any:
    """1 / (1 + exp(-x)), written so that its derivatives are correct where exp(-x) overflows."""
    if x.dtype.is_complex:
        return 1.0 / (1.0 + prim.exp(-x))
    small = prim.exp(build.select(x < 0.0, x, -x))
    return build.select(x < 0.0, small, 1.0) / (1.0 + small)
