"""Functions that iterate until they have converged, or as often as an operand says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import numbers
from rushlight._prims.families import pointwise
from rushlight._prims.record import not_differentiable, prim
from rushlight._prims.samples import Samples, floats, integers, pointwise_samples

__all__: list[str] = []

# ***** the incomplete gamma functions *****


def _lower(a: float, x: float) -> float:
    """P(a, x) by its power series (Abramowitz and Stegun 6.5.29)."""
    term = total = 1.0 / a
    rank = a
    while abs(term) > 1e-18 * abs(total):
        rank += 1.0
        term *= x / rank
        total += term
    return total * math.exp(a * math.log(x) - x - math.lgamma(a))


def _upper(a: float, x: float) -> float:
    """Q(a, x) by its continued fraction (6.5.31), from the inside out."""
    value = 0.0
    for i in range(400, 0, -1):
        value = i * (a - i) / (x + 2 * i + 1 - a + value)
    return math.exp(a * math.log(x) - x - math.lgamma(a)) / (x + 1 - a + value)


def _p_and_q(a: float, x: float) -> tuple[float, float]:
    if a < 0 or x < 0 or (a == x and (a == 0 or a == math.inf)):
        return math.nan, math.nan
    if (x == 0 and a != 0) or a == math.inf:  # NaN in the other operand does not count here: PyTorch's order of checks
        return 0.0, 1.0
    if (a == 0 and x > 0) or x == math.inf:
        return 1.0, 0.0
    if math.isnan(a + x):
        return math.nan, math.nan
    if x < a + 1:
        p = _lower(a, x)
        return p, 1 - p
    q = _upper(a, x)
    return 1 - q, q


def _gamma_reference(which: int) -> Callable[..., Any]:
    def apply(a: Any, x: Any) -> Any:
        pairs = zip(a.ravel().tolist(), x.ravel().tolist(), strict=True)
        return np.array([_p_and_q(v, w)[which] for v, w in pairs], dtype=np.float64).reshape(a.shape)

    return numbers.wide(apply)


def _density(a: Any, x: Any) -> Any:
    """The derivative of P(a, x) by x: x^(a - 1) e^-x / gamma(a)."""
    return prim.exp((a - 1.0) * prim.log(x) - x - prim.lgamma(a))


_BY_ORDER = not_differentiable("no closed form of the derivative by the order is known")
_GAMMA_SAMPLES = pointwise_samples(("float64", "float32"), 2, 0.1, 5.0)
pointwise(
    "gammainc", "The regularised lower incomplete gamma function P(a, x).", kinds="f", reference=_gamma_reference(0), samples=_GAMMA_SAMPLES,
    rules=[_BY_ORDER, lambda t, c, out, a, x: t * _density(a, x)],
)  # fmt: skip
pointwise(
    "gammaincc", "The regularised upper incomplete gamma function Q(a, x).", kinds="f", reference=_gamma_reference(1), samples=_GAMMA_SAMPLES,
    rules=[_BY_ORDER, lambda t, c, out, a, x: -(t * _density(a, x))],
)  # fmt: skip

# ***** the zeta function *****


def _zeta(s: float, q: float) -> float:
    """sum of (q + k)^-s by Euler's and Maclaurin's formula (Abramowitz and Stegun 25.4.7) after fifty terms."""
    if s == 1 or (q <= 0 and not s < 1 and (q == -math.inf or q == math.floor(q))):
        return math.inf
    if math.isnan(s + q) or s < 1 or q == math.inf or (q < 0 and s != math.floor(s)):
        return math.nan
    if s >= 2.0 ** (1024 / 23) and q > 1:
        return math.nan  # Cephes multiplies a sum that vanished by factors that overflow
    terms = 50 + max(0, math.ceil(-q))
    w = q + terms
    total = sum((q + k) ** -s for k in range(terms)) + w ** (1 - s) / (s - 1) + 0.5 * w**-s
    rising = s
    for k, coefficient in enumerate((1 / 12, -1 / 720, 1 / 30240, -1 / 1209600)):
        total += coefficient * rising * w ** (-s - 2 * k - 1)
        rising *= (s + 2 * k + 1) * (s + 2 * k + 2)
    return total


def _zeta_reference(s: Any, q: Any) -> Any:
    pairs = zip(s.ravel().tolist(), q.ravel().tolist(), strict=True)
    return np.array([_zeta(v, w) for v, w in pairs], dtype=np.float64).reshape(s.shape)


pointwise(
    "zeta", "Hurwitz' zeta function: the sum of (q + k)^-s over k >= 0.", kinds="f", reference=numbers.wide(_zeta_reference),
    samples=pointwise_samples(("float64", "float32"), 2, 1.5, 5.0),
    rules=[not_differentiable("no closed form of the derivative by the exponent is known"), lambda t, c, out, s, q: -(t * s * prim.zeta(s + 1.0, q))],
)  # fmt: skip

# ***** orthogonal polynomials, whose degree is data *****


_FIRST: dict[str, Callable[[Any], Any]] = {
    "hermite_h": lambda x: x + x,
    "hermite_he": lambda x: x,
    "laguerre": lambda x: 1 - x,
    "legendre": lambda x: x,
}
_STEP: dict[str, Callable[[Any, Any, Any, int], Any]] = {
    "hermite_h": lambda x, p, q, k: 2 * x * p - 2 * k * q,
    "hermite_he": lambda x, p, q, k: x * p - k * q,
    "laguerre": lambda x, p, q, k: ((2 * k + 1 - x) * p - k * q) / (k + 1),
    "legendre": lambda x, p, q, k: ((2 * k + 1) * x * p - k * q) / (k + 1),
}


def _polynomial(x: Any, n: Any, family: str) -> Any:
    """p_n(x), where p_0 = 1, p_1 = first(x), p_{k+1} = step(x, p_k, p_{k-1}, k); 0 if n is negative or no 64-bit
    number."""
    degree = np.where(np.abs(n) < 2.0**63, np.trunc(n), -1.0)
    before, current = np.ones_like(x), _FIRST[family](x)
    values = np.where(degree == 0, before, np.where(degree == 1, current, np.zeros_like(x)))
    with np.errstate(all="ignore"):
        for k in range(1, int(degree.max(initial=0))):
            before, current = current, _STEP[family](x, current, before, k)
            values = np.where(degree == k + 1, current, values)
    return values.astype(x.dtype)


def _degrees() -> Samples:
    for family in _FIRST:
        for dtype in ("float64", "float32"):
            for shape in ((3, 5), (), (0, 2), (17,)):
                yield [floats(shape, 1, dtype=dtype), integers(shape, 2, -2, 12).astype(dtype)], {"family": family}


pointwise(
    "polynomial", "The orthogonal polynomial of degree n (cut to a whole number; 0 for negative ones) of a family: hermite_h (physics), hermite_he "
    "(statistics), laguerre or legendre.", kinds="f", reference=_polynomial, samples=_degrees, params=("family",),
    rules=not_differentiable("its degree is data"),
)  # fmt: skip
