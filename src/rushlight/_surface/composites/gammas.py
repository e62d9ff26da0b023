"""Special functions that are computed step by step until they have converged: NumPy runs the steps over whole arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._engine.hosted import hosted
from rushlight._engine.results import OUT, result_type_of
from rushlight._engine.tensor import Tensor
from rushlight._ops.forms import forms
from rushlight._surface.composites.measures import into
from rushlight._surface.registry import SPACES, composite
from rushlight._types.promotion import default_dtype, number_dtype, result_type

__all__: list[str] = []

T = SPACES["torch"]
STEPS = 2000
EPSILON = 2.0**-53


def _operands(a: Any, b: Any) -> tuple[Any, Any]:
    """Both as tensors of one float dtype and shape."""
    tensors = [(v._spec.dtype, v._spec.ndim) for v in (a, b) if isinstance(v, Tensor)]
    dtype = result_type(tensors, [number_dtype(v) for v in (a, b) if not isinstance(v, Tensor)])
    dtype = dtype if dtype.is_floating_point else default_dtype()
    found = [(v if isinstance(v, Tensor) else T["tensor"](v)).to(dtype) for v in (a, b)]  # type: ignore[attr-defined]
    shape = T["broadcast_shapes"](found[0]._spec.shape, found[1]._spec.shape)
    return found[0].expand(shape), found[1].expand(shape)


# ***** the incomplete gamma functions *****


def _log_gamma(a: Any) -> Any:
    return (
        np.vectorize(lambda v: math.lgamma(v) if v > 0 and math.isfinite(v) else math.inf, otypes=["float64"])(a)
        if a.size
        else a
    )


def _weight(a: Any, x: Any) -> Any:
    """x^a e^-x / gamma(a)."""
    return np.exp(a * np.log(x) - x - _log_gamma(a))


def _lower_series(a: Any, x: Any) -> Any:
    """The regularised lower function by its power series (Abramowitz and Stegun 6.5.29)."""
    term = total = 1.0 / a
    rank = a
    for _ in range(STEPS):
        rank = rank + 1.0
        term = term * x / rank
        total = total + term
        if not np.any(np.abs(term) > EPSILON * np.abs(total)):
            break
    return total * _weight(a, x)


def _upper_fraction(a: Any, x: Any) -> Any:
    """The regularised upper function by its continued fraction (6.5.31), by Lentz's method."""
    tiny = 1e-300
    b = x + 1.0 - a
    c, d = np.full_like(x, 1.0 / tiny), 1.0 / np.where(b == 0, tiny, b)
    found = d
    for i in range(1, STEPS):
        step = -i * (i - a)
        b = b + 2.0
        d, c = step * d + b, b + step / c
        d = 1.0 / np.where(np.abs(d) < tiny, tiny, d)
        c = np.where(np.abs(c) < tiny, tiny, c)
        change = d * c
        found = found * change
        if not np.any(np.abs(change - 1.0) > EPSILON * 4):
            break
    return found * _weight(a, x)


def _regularised(a: Any, x: Any, upper: bool) -> Any:
    dtype = a.dtype
    a, x = a.astype("float64"), x.astype("float64")
    with np.errstate(all="ignore"):
        near = x < a + 1.0
        plain = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
        sa, sx = np.where(plain, a, 1.0), np.where(plain, x, 1.0)
        low = _lower_series(sa, np.where(near, sx, 1.0))
        high = _upper_fraction(np.where(near, 1.0, sa), np.where(near, 3.0, sx))
        lower = np.where(near, low, 1.0 - high)
        found = np.where(near, 1.0 - low, high) if upper else lower
        edge = np.where(
            (a == 0) & (x > 0) | (x == np.inf) & np.isfinite(a),
            1.0,
            np.where((x == 0) & (a > 0) | (a == np.inf) & (x >= 0), 0.0, np.nan),
        )
        edge = np.where((a == 0) & (x == 0) | (a == np.inf) & (x == np.inf), np.nan, edge)
        return np.where(plain, found, 1.0 - edge if upper else edge).astype(dtype)


def _incomplete(name: str, upper: bool) -> None:
    def gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
        a, x = inputs
        if a._rg:
            raise NotImplementedError(f"the derivative for '{name}: input' is not implemented.")
        slope = T["exp"]((a - 1.0) * T["log"](x) - x - T["lgamma"](a))
        return [None, -(grads[0] * slope) if upper else grads[0] * slope]

    @forms("(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor")
    def function(input: Any, other: Any, *, out: Any = None) -> Any:
        for place, (word, v) in enumerate((("input", input), ("other", other)), 1):
            if not isinstance(v, Tensor):
                raise TypeError(
                    f"{name}(): argument '{word}' (position {place}) must be Tensor, not {type(v).__name__}"
                )
        a, x = _operands(input, other)
        node = f"{name.capitalize()}Backward0"
        return into(out, hosted(node, lambda u, v: _regularised(u, v, upper), [a, x], gradient)[0])

    public = "gammaincc" if upper else "gammainc"
    function.__doc__ = f"The regularised {'upper' if upper else 'lower'} incomplete gamma function."
    composite(name, method=True)(function)
    composite(public, spaces=("special",))(function)
    setattr(Tensor, name + "_", lambda self, other: self.copy_(function(self.clone(), other)))


_incomplete("igamma", False)
_incomplete("igammac", True)

# ***** orthogonal polynomials, by their recurrences *****


def _recurrence(x: Any, n: Any, first: Callable[[Any], Any], step: Callable[[Any, Any, Any, int], Any]) -> Any:
    """p_n(x), where p_0 = 1, p_1 = first(x), p_{k+1} = step(x, p_k, p_{k-1}, k); 0 for negative n."""
    dtype, n = x.dtype, np.trunc(n)
    x = x.astype("float64")
    before, held = np.ones_like(x), first(x)
    found = np.where(n == 0, before, np.where(n == 1, held, 0.0))
    highest = int(n.max()) if n.size and np.isfinite(n).all() else 1
    with np.errstate(all="ignore"):
        for k in range(1, highest):
            before, held = held, step(x, held, before, k)
            found = np.where(n == k + 1, held, found)
    return found.astype(dtype)


def _polynomial(name: str, first: Callable[[Any], Any], step: Callable[[Any, Any, Any, int], Any], doc: str) -> None:
    @forms("(input: Tensor | Scalar, n: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor")
    def function(input: Any, n: Any, *, out: Any = None) -> Any:
        if not isinstance(input, Tensor) and not isinstance(n, Tensor):
            raise TypeError(
                f"special_{name}() takes at least one tensor, got ({type(input).__name__}, {type(n).__name__})"
            )
        x, degree = _operands(input, n)
        return into(out, hosted(name, lambda u, v: _recurrence(u, v, first, step), [x, degree], None)[0])

    function.__doc__ = doc
    composite(name, spaces=("special",))(function)


_polynomial(
    "hermite_polynomial_h",
    lambda x: 2.0 * x,
    lambda x, p, q, k: 2.0 * x * p - 2.0 * k * q,
    "Hermite's polynomial of degree n (physics).",
)
_polynomial(
    "hermite_polynomial_he",
    lambda x: x,
    lambda x, p, q, k: x * p - k * q,
    "Hermite's polynomial of degree n (statistics).",
)
_polynomial(
    "laguerre_polynomial_l",
    lambda x: 1.0 - x,
    lambda x, p, q, k: ((2 * k + 1 - x) * p - k * q) / (k + 1),
    "Laguerre's polynomial of degree n.",
)
_polynomial(
    "legendre_polynomial_p",
    lambda x: x,
    lambda x, p, q, k: ((2 * k + 1) * x * p - k * q) / (k + 1),
    "Legendre's polynomial of degree n.",
)

# ***** taking floats apart *****


@composite("frexp", method=True)
@forms("(input: Tensor, *, out: tuple[Tensor, Tensor] | None = None) -> return_types.frexp")
def frexp(input: Tensor, *, out: Any = None) -> Any:
    """(mantissa, exponent) with input = mantissa * 2^exponent and 0.5 <= |mantissa| < 1."""
    if not input._spec.dtype.is_floating_point:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")

    def gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
        return [grads[0] / T["pow"](2.0, outputs[1].to(grads[0].dtype))]

    found = hosted("FrexpBackward0", lambda a: tuple(np.frexp(a)), [input], gradient)
    if out is not None:
        found = [into(o, v) for o, v in zip(out, found, strict=True)]
    return result_type_of("frexp" + (OUT if out is not None else ""), ("mantissa", "exponent"))(found)
