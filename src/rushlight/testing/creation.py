"""`make_tensor`: random tensors of any dtype within given bounds."""

from __future__ import annotations

import math
import warnings
from typing import Any

import rushlight
from rushlight import dtype as DType

__all__ = ["make_tensor"]

_REAL = ("float16", "bfloat16", "float32", "float64")
_COMPLEX = ("complex32", "complex64", "complex128")
_SMALL = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_SIGNED = ("int8", "int16", "int32", "int64")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


def _range(dtype: DType) -> tuple[Any, Any, Any, Any]:
    """(least, bound above, default low, default high) of a dtype; TypeError where nothing can be drawn."""
    if dtype is rushlight.bool:
        return 0, 2, 0, 2
    name = getattr(dtype, "name", None)
    if name in _SIGNED or name in _UNSIGNED:
        info = rushlight.iinfo(dtype)
        # randint takes its upper bound as an int64, so the last int64 is out of reach
        above = info.max if dtype is rushlight.int64 else info.max + 1
        return info.min, above, -9, 10
    if name in _REAL + _COMPLEX + _SMALL:
        most = rushlight.finfo(dtype).max
        return -most, most, -9, 9
    raise TypeError(
        f"The requested dtype '{dtype}' is not supported by torch.testing.make_tensor(). "
        "To request support, file an issue at: https://github.com/pytorch/pytorch/issues"
    )


def _bounds(dtype: DType, low: Any, high: Any) -> tuple[Any, Any]:
    """The interval to draw from: what was given or the dtype's own, within what the dtype can hold."""
    least, above, low_default, high_default = _range(dtype)
    low = low_default if low is None else low
    high = high_default if high is None else high
    if any(isinstance(bound, float) and math.isnan(bound) for bound in (low, high)):
        raise ValueError(f"`low` and `high` cannot be NaN, but got low={low!r} and high={high!r}")
    inexact = dtype.name in _REAL + _COMPLEX
    if low == high and inexact:
        warnings.warn(
            "Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is deprecated since 2.1 "
            "and will be removed in 2.3. Use `torch.full(...)` instead.",
            FutureWarning,
            stacklevel=4,
        )
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    elif high < least or low >= above:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} only supports [{least}, {above})"
        )
    low, high = (min(max(bound, least), above) for bound in (low, high))
    if inexact or dtype.name in _SMALL:
        return low, high
    return math.ceil(low), math.ceil(high)


def _uniform(shape: Any, dtype: DType, device: Any, low: float, high: float) -> Any:
    """Floating numbers in [low, high)."""
    result = rushlight.empty(shape, dtype=dtype, device=device)
    parts = rushlight.view_as_real(result) if dtype.is_complex else result
    # an interval wider than the largest number is drawn at half its size
    if high - low > rushlight.finfo(dtype).max:
        parts.uniform_(low / 2, high / 2).mul_(2)
    else:
        parts.uniform_(low, high)
    return result


def _values(shape: Any, dtype: DType, device: Any, low: Any, high: Any) -> Any:
    low, high = _bounds(dtype, low, high)
    if dtype.name in _SMALL:
        return _uniform(shape, rushlight.float32, device, low, high).to(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        return _uniform(shape, dtype, device, low, high)
    return rushlight.randint(low, high, shape, dtype=dtype, device=device)


def _without_zeros(result: Any, dtype: DType) -> Any:
    if dtype.is_complex:
        tiny = rushlight.finfo(dtype).tiny
        stand_in: Any = complex(tiny, tiny)
    else:
        stand_in = rushlight.finfo(dtype).tiny if dtype.is_floating_point else 1
    if dtype.name in _SMALL:
        return result.float().masked_fill_(result == 0, stand_in).to(dtype)
    return result.masked_fill_(result == 0, stand_in)


def make_tensor(
    *shape: Any,
    dtype: DType,
    device: Any,
    low: Any = None,
    high: Any = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Any:
    """A tensor of random numbers from [low, high): uniform for floating and complex dtypes (both parts), integers
    otherwise.

    Without bounds these are -9 and 9 (floating, complex), -9 and 10 (signed), 0 and 10 (unsigned), 0 and 2 (bool);
    bounds are clamped to what `dtype` can hold.  `exclude_zero` puts 1, or the smallest normal number, where a zero
    fell; `noncontiguous` leaves gaps between the elements of the last dim; `memory_format` is the result's.  After the
    same seed the numbers are PyTorch's.

    ValueError for low >= high, NaN as a bound, an interval outside of the dtype, `requires_grad` of integers,
    `noncontiguous` together with `memory_format`; TypeError for a dtype that has no random numbers.

        >>> torch.testing.make_tensor((2, 3), dtype=torch.int64, device="cpu", low=4, high=5)
        tensor([[4, 4, 4],
                [4, 4, 4]])
    """
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, "
            f"but got noncontiguous={noncontiguous!r} and memory_format={memory_format!r}"
        )
    integral = isinstance(dtype, DType) and dtype.name in ("bool", *_SIGNED, *_UNSIGNED)
    if requires_grad and integral:
        raise ValueError(
            f"`requires_grad=True` is not supported for boolean and integral dtypes, but got dtype={dtype!r}"
        )
    sizes = tuple(sizes)
    gaps = noncontiguous and math.prod(sizes) > 1
    # every second of twice as many numbers
    result = _values((*sizes[:-1], 2 * sizes[-1]) if gaps else sizes, dtype, device, low, high)
    if gaps:
        result = result[..., 1::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    if exclude_zero:
        result = _without_zeros(result, dtype)
    return result.requires_grad_() if requires_grad else result
