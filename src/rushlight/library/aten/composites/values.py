"""Functions that PyTorch makes of several operators above autograd: element by element, statistics, differences."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight.library.aten.composites import aten, narrow, to_copy
from rushlight.library.aten.derivatives import Value, bare
from rushlight.library.aten.handlers import handles

__all__: list[str] = []

Tensor = rushlight.Tensor


# ***** element by element *****


@handles("_data_of")
def data(self: Any) -> Any:
    return aten("detach")(self)


@handles("copy_")
def copy_number(self: Any, src: Any, non_blocking: bool = False) -> Any:
    return NotImplemented if isinstance(src, Tensor) else aten("copy_")(self, src, *[True] * non_blocking)


@handles("square")
def square(input: Any, *, out: Any = None) -> Any:
    return NotImplemented if out is not None else aten("pow.Tensor_Scalar")(input, 2)


@handles("square_")
def square_(self: Any) -> Any:
    return aten("pow_.Scalar")(self, 2)


@handles("true_divide")
def true_divide(
    dividend: Any = None, divisor: Any = None, *, input: Any = None, other: Any = None, out: Any = None
) -> Any:
    a, b = dividend if dividend is not None else input, divisor if divisor is not None else other
    return NotImplemented if out is not None else aten("div.Tensor")(a, b)


@handles("div divide")
def div(input: Any, other: Any = None, *, rounding_mode: Any = None, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    return (
        aten("div.Tensor")(input, other)
        if rounding_mode is None
        else aten("div.Tensor_mode")(input, other, rounding_mode=rounding_mode)
    )


@handles("__rtruediv__")
def rtruediv(self: Any, other: Any) -> Any:
    return aten("mul.Tensor")(aten("reciprocal")(self), other)


@handles("multiply")
def multiply(input: Any, other: Any, *, out: Any = None) -> Any:
    return NotImplemented if out is not None else aten("mul.Tensor")(input, other)


@handles("subtract")
def subtract(input: Any, other: Any, *, alpha: Any = 1, out: Any = None) -> Any:
    return NotImplemented if out is not None else aten("sub.Tensor")(input, other, alpha=alpha)


@handles("float_power")
def float_power(input: Any, exponent: Any, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    complexes = any(isinstance(v, complex) or isinstance(v, Tensor) and v.is_complex() for v in (input, exponent))
    wide = rushlight.complex128 if complexes else rushlight.float64

    def cast(x: Any) -> Any:
        return x if not isinstance(x, Tensor) or x.dtype is wide else to_copy(x, dtype=wide)

    power = cast(exponent)
    base = cast(input)
    if not isinstance(base, Tensor):
        return aten("pow.Scalar")(complex(base) if complexes else float(base), power)
    return aten("pow.Tensor_Tensor" if isinstance(power, Tensor) else "pow.Tensor_Scalar")(base, power)


def _binary_extreme(name: str, other_name: str) -> None:
    @handles(name)
    def extreme(input: Any, *args: Any, **kwargs: Any) -> Any:
        other = kwargs.get("other", args[0] if args else None)
        if isinstance(other, Tensor) and "out" not in kwargs:
            return aten(other_name)(input, other)
        return NotImplemented


_binary_extreme("max", "maximum")
_binary_extreme("min", "minimum")


@handles("isfinite")
def isfinite(input: Any) -> Any:
    if not input.is_floating_point() and not input.is_complex():
        return aten("ones_like")(input, dtype=rushlight.bool, memory_format=rushlight.preserve_format)
    if input.is_complex():
        return NotImplemented
    magnitude = aten("ne.Scalar")(aten("abs")(input), math.inf)
    return aten("mul.Tensor")(aten("eq.Tensor")(input, input), magnitude)


@handles("isreal")
def isreal(input: Any) -> Any:
    if input.is_complex():
        return NotImplemented
    return aten("ones_like")(input, dtype=rushlight.bool, memory_format=rushlight.preserve_format)


@handles("isclose")
def isclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    close = aten("eq.Tensor")(input, other)
    floats = input.is_floating_point() or input.is_complex()
    if equal_nan and floats:
        missing = aten("isnan")(input)
        close = aten("bitwise_or_.Tensor")(close, aten("bitwise_and.Tensor")(missing, aten("isnan")(other)))
    if not rtol and not atol:
        return close
    cast = other if floats else to_copy(other, dtype=rushlight.get_default_dtype())
    allowed = aten("add.Scalar")(aten("abs")(aten("mul.Scalar")(cast, rtol)), atol)
    actual = aten("abs")(aten("sub.Tensor")(input, cast))
    return aten("bitwise_or_.Tensor")(
        close, aten("bitwise_and_.Tensor")(isfinite(actual), aten("le.Tensor")(actual, allowed))
    )


@handles("special_ndtr")
def ndtr(input: Any, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    x = Value(input) * math.sqrt(0.5)
    return bare((x.erf() + 1) * 0.5)


@handles("nanmean")
def nanmean(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    free = aten("detach")(input) if input.requires_grad else input
    dims = [dim] if isinstance(dim, int) else dim
    kept = aten("logical_not_")(aten("ne.Tensor")(free, free))
    count = aten("sum.dim_IntList")(kept, dims, keepdim)
    return aten("div.Tensor")(aten("nansum")(input, dims, keepdim, dtype=dtype), count)


def _statistic(name: str) -> None:
    @handles(name)
    def statistic(input: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("out") is not None:
            return NotImplemented
        args_left = list(args)
        dim = kwargs.get("dim", kwargs.get("axis"))
        keepdim = kwargs.get("keepdim", kwargs.get("keepdims", False))
        correction, unbiased = kwargs.get("correction"), kwargs.get("unbiased")
        if args_left and isinstance(args_left[0], bool):
            unbiased = args_left.pop(0)
        elif args_left:
            dim = args_left.pop(0)
            if args_left and isinstance(args_left[0], bool):
                unbiased = args_left.pop(0)
                keepdim = args_left.pop(0) if args_left else keepdim
        if unbiased is not None:
            correction = int(unbiased)
        elif correction is None and dim is not None and "correction" not in kwargs:
            correction = 1
        dim = [dim] if isinstance(dim, int) else dim if dim is None else list(dim)
        return aten(f"{name}.correction")(input, dim, correction=correction, keepdim=keepdim)


for _name in ("std", "var", "std_mean", "var_mean"):
    _statistic(_name)


@handles("argsort")
def argsort(input: Any, dim: int = -1, descending: bool = False, stable: Any = None) -> Any:
    if stable is None:
        return aten("sort")(input, dim, descending)[1]
    return aten("sort.stable")(input, stable=stable, dim=dim, descending=descending)[1]


@handles("msort")
def msort(input: Any, *, out: Any = None) -> Any:
    return NotImplemented if out is not None else aten("sort")(input, 0)[0]


@handles("argwhere")
def argwhere(input: Any) -> Any:
    return aten("nonzero")(input)


@handles("nonzero")
def nonzero(input: Any, *, out: Any = None, as_tuple: bool = False) -> Any:
    if out is not None:
        return NotImplemented
    found = aten("nonzero")(input)
    return tuple(aten("unbind.int")(found, 1)) if as_tuple else found


@handles("where")
def where(condition: Any, input: Any = None, other: Any = None, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    if input is None:
        return nonzero(condition, as_tuple=True)
    dtype = next((v.dtype for v in (input, other) if isinstance(v, Tensor)), None)

    def tensor(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value
        kind = dtype
        if kind is None or isinstance(value, float) and not kind.is_floating_point and not kind.is_complex:
            kind = (
                rushlight.get_default_dtype()
                if isinstance(value, float)
                else rushlight.bool
                if isinstance(value, bool)
                else rushlight.int64
            )
        return aten("scalar_tensor")(value, dtype=kind, layout=condition.layout, device=condition.device)

    return aten("where.self")(condition, tensor(input), tensor(other))


@handles("diff")
def diff(input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    if prepend is not None or append is not None:
        input = aten("cat")([t for t in (prepend, input, append) if t is not None], dim)
    if not n:
        made = aten("zeros_like")(input)
        return aten("copy_")(made, input)
    size = input.shape[dim]
    for _ in range(min(n, size)):
        last = input.shape[dim]
        before = narrow(input, dim, 0, last - 1)
        after = narrow(input, dim, 1, last - 1)
        input = (
            aten("logical_xor")(after, before) if input.dtype is rushlight.bool else aten("sub.Tensor")(after, before)
        )
    return input


def _trapezoid(cumulative: bool) -> Any:
    def run(y: Any, x: Any = None, *, dx: Any = 1.0, dim: int = -1) -> Any:
        last = y.shape[dim]
        if x is None:
            if not last:
                return NotImplemented
            if cumulative:
                both = aten("add.Tensor")(aten("slice.Tensor")(y, dim, 0, -1), aten("slice.Tensor")(y, dim, 1))
                return aten("cumsum")(aten("mul.Scalar")(both, dx / 2.0), dim)
            end = aten("select.int")(y, dim, -1)
            ends = aten("mul.Scalar")(aten("add.Tensor")(aten("select.int")(y, dim, 0), end), 0.5)
            return aten("mul.Scalar")(aten("sub.Tensor")(aten("sum.dim_IntList")(y, [dim]), ends), dx)
        if x.dim() == 1 and y.dim() > 1:
            shape = [1] * y.dim()
            shape[dim] = x.shape[0]
            x = aten("view")(x, shape)
        elif x.dim() == 1:
            x = aten("view")(x, list(y.shape)) if list(x.shape) == list(y.shape) and y.dim() == 1 else x
        step_dim = dim
        low = aten("slice.Tensor")(x, step_dim, 0, -1)
        steps = aten("sub.Tensor")(aten("slice.Tensor")(x, step_dim, 1), low)
        first = aten("slice.Tensor")(y, dim, 0, -1)
        area = aten("mul.Tensor")(aten("add.Tensor")(first, aten("slice.Tensor")(y, dim, 1)), steps)
        total = aten("cumsum")(area, dim) if cumulative else aten("sum.dim_IntList")(area, [dim])
        return aten("div.Scalar")(total, 2.0)

    return run


handles("trapezoid trapz")(_trapezoid(False))
handles("cumulative_trapezoid")(_trapezoid(True))
