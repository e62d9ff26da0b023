"""Gamma and Dirichlet draws, and how they move with their parameters.

A draw x with the distribution function F(x; a) stays at the same probability while a changes, so dx/da = -(dF/da) / (dF/dx)
(Figurnov, Mohamed and Mnih, "Implicit reparameterization gradients", arXiv:1805.08498).  In the logarithmic variable s (log x, or
log odds of a beta number) the density is q(s) / Z with a concave log q, and dF/da is the integral of (log x - E log x) q(s) / Z
up to the draw, or minus that beyond it: the normaliser cancels, and on the side that is taken the integrand has one sign.  So one
Gauss-Legendre rule gives full accuracy for all parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._engine import random as streams
from rushlight._engine.autograd.node import Node
from rushlight._engine.hosted import hosted
from rushlight._engine.random import Generator
from rushlight._engine.sampling import check_generator, fresh, not_implemented, overridable
from rushlight._engine.state import GRAD, STATE
from rushlight._engine.tensor import Tensor, edge_of
from rushlight._surface.registry import composite
from rushlight._types.dtype import FLOAT32, FLOAT64

__all__: list[str] = []

TINY = {FLOAT32: 2.0**-126, FLOAT64: 2.0**-1022}  # the smallest normal numbers
BELOW_ONE = {FLOAT32: 1.0 - 2.0**-24, FLOAT64: 1.0 - 2.0**-53}
NODES = 64
BEND = 14.0  # how far from the bend of the density its sides are exponential, to seven digits
DEPTH = 42.0  # where the density has fallen to exp(-DEPTH), the integrals end

# ***** draws *****


def _gammas(shapes: Any, generator: Generator | None, smallest: float) -> Any:
    """Gamma numbers for a contiguous tensor of shapes."""
    spec = shapes._spec
    made = fresh(spec.dtype, spec.device, spec.shape)
    if made._storage is not None and spec.numel:
        streams.fill_gamma(generator, made._ptr, spec.numel, spec.dtype, shapes._ptr, smallest)
    return made


class StandardGammaBackward0(Node):
    """Hands on the gradient times the derivative of each draw by its shape."""

    __slots__ = ("saved", "versions")

    saved: Any
    versions: Any

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        if self.saved is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
                "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
                "after calling backward."
            )
        if [x._storage.version for x in self.saved] != self.versions:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: the shapes or the result of "
                "_standard_gamma"
            )
        return [grads[0] * standard_gamma_grad(*self.saved)]  # type: ignore[operator]

    def release(self) -> None:
        self.saved = None


@composite("_standard_gamma", overridable=False)
@overridable
def standard_gamma(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Gamma numbers of rate 1 with the elements of `input` (float32 or float64) as shapes, differentiable in them.

    >>> torch._standard_gamma(torch.ones(3)).shape
    torch.Size([3])
    """
    check_generator("_standard_gamma", generator)
    dtype = input._spec.dtype
    if dtype not in TINY:
        raise not_implemented("gamma_cpu", dtype)
    shapes: Any = input.detach().contiguous()  # type: ignore[attr-defined]
    made: Tensor = _gammas(shapes, generator, TINY[dtype])
    if STATE.word & GRAD and input._rg:
        node = StandardGammaBackward0()
        node._start([edge_of(input)])
        # without the history of the result, which would hold itself
        node.saved = [input, made.detach()]  # type: ignore[attr-defined]
        node.versions = [x._storage.version for x in node.saved]
        made._node, made._rg = node, True
    return made


@composite("_sample_dirichlet", overridable=False)
@overridable
def sample_dirichlet(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Vectors of positive numbers with the sum 1, with the concentrations along the last dim; float32 or float64.

    >>> torch._sample_dirichlet(torch.tensor([2.0]))
    tensor([1.0000])
    """
    check_generator("_sample_dirichlet", generator)
    dtype = input._spec.dtype
    if dtype not in TINY:
        raise not_implemented("dirichlet", dtype)
    shapes: Any = input.detach().to(FLOAT64).contiguous()  # type: ignore[attr-defined]
    parts = _gammas(shapes, generator, 0.0)
    found: Tensor = (parts / parts.sum(-1, True)).to(dtype).clamp(TINY[dtype], BELOW_ONE[dtype])
    return found


# ***** derivatives *****


@cache
def _rule() -> tuple[Any, Any]:
    """Nodes and weights of Gauss and Legendre on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    return 0.5 * (nodes + 1.0), 0.5 * weights


def _depth(fall: Callable[[Any], Any], least: Any, most: Any) -> Any:
    """w with fall(w) near -DEPTH, between the bounds; to a few per cent, which is enough for the end of an integral."""
    low, high = np.log(least), np.log(most)
    for _ in range(12):
        middle = 0.5 * (low + high)
        deep = fall(np.exp(middle)) < -DEPTH
        low, high = np.where(deep, low, middle), np.where(deep, middle, high)
    return np.exp(high)


def _tail(fall: Callable[[Any], Any], weight: Callable[[Any], Any], width: Any, cuts: tuple[Any, Any]) -> Any:
    """The integral of exp(fall(w)) weight(w) over w from 0 to `width`.

    Between the `cuts` the density turns from one exponential into another; far tails on both sides are integrated apart.
    """
    total = np.zeros_like(width)
    start = total
    for end in (*(np.clip(cut, 0.0, width) for cut in cuts), width):
        length = end - start
        if length.any():
            for node, share in zip(*_rule(), strict=True):
                w = start + node * length
                total = total + share * length * np.exp(fall(w)) * weight(w)
        start = end
    return total


def _softplus(s: Any) -> Any:
    return np.logaddexp(0.0, s)


def _digamma(a: Any) -> Any:
    """By the asymptotic series (Abramowitz and Stegun 6.3.18), after the recurrence has lifted `a` above 10."""
    shift = np.zeros_like(a)
    for _ in range(10):
        small = a < 10.0
        shift = np.where(small, shift - 1.0 / a, shift)
        a = np.where(small, a + 1.0, a)
    z = 1.0 / (a * a)
    series = z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z * (1 / 132 - z * 691 / 32760)))))
    return shift + np.log(a) - 0.5 / a - series


def _gamma_slopes(a: Any, x: Any) -> Any:
    """dx/da for gamma numbers x of shape a."""
    s, center = np.log(x), _digamma(a)
    below = s < center
    found = np.empty_like(x)
    for side in (True, False):
        at = below if side else ~below
        a_, x_, s_, away = a[at], x[at], s[at], (center - s)[at]
        if not a_.size:
            continue
        g = -1.0 if side else 1.0

        def fall(w: Any, a: Any = a_, x: Any = x_, g: float = g) -> Any:
            return g * a * w - x * np.expm1(g * w)

        def weight(w: Any, d: Any = away, g: float = g) -> Any:
            return g * (g * w - d)

        if side:  # to the left the density falls like exp(-a w)
            width = _depth(fall, DEPTH / a_, (DEPTH + x_) / a_ * 1.01)
            cuts = (s_ - BEND, s_ + BEND)
        else:
            most = np.log1p(2.5 * DEPTH / x_) + np.minimum(np.sqrt(2.5 * DEPTH / x_), 12.0)
            width = _depth(fall, most * 1e-2, most)
            cuts = (-BEND - s_, BEND - s_)
        found[at] = x_ * _tail(fall, weight, width, cuts)
    return found


def _beta_slopes(a: Any, b: Any, x: Any) -> Any:
    """d(log odds)/da for beta numbers x of concentrations a (at 1) and b (at 0)."""
    log_x = np.log(x)
    s, away = log_x - np.log1p(-x), _digamma(a) - _digamma(a + b) - log_x
    found = np.empty_like(x)
    for side in (True, False):
        at = (away > 0) == side
        a_, b_, s_, d_ = a[at], b[at], s[at], away[at]
        if not a_.size:
            continue
        sign = -1.0 if side else 1.0
        near, far = _softplus(s_), _softplus(-s_)

        def fall(
            w: Any, a: Any = a_, b: Any = b_, s: Any = s_, near: Any = near, far: Any = far, g: float = sign
        ) -> Any:
            moved = s + g * w
            return a * (far - _softplus(-moved)) + b * (near - _softplus(moved))

        rate, room = (a_, near) if side else (b_, far)
        width = _depth(fall, DEPTH / rate, (DEPTH + (a_ + b_) * room) / rate * 1.01)

        def weight(w: Any, s: Any = s_, d: Any = d_, far: Any = far, g: float = sign) -> Any:
            return -g * (d + _softplus(-s - g * w) - far)

        left, right = -BEND - np.log1p(b_), BEND + np.log1p(a_)
        cuts = (s_ - right, s_ - left) if side else (left - s_, right - s_)
        found[at] = _tail(fall, weight, width, cuts)
    return found


def _elementwise(function: Callable[..., Any], valid: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of flat float64 arrays, where the parameters are `valid`; 0 elsewhere, NaN for NaN; in the dtype of the first."""

    def call(*arrays: Any) -> Any:
        given = [np.asarray(x, "float64").reshape(-1) for x in np.broadcast_arrays(*arrays)]
        with np.errstate(all="ignore"):
            good = valid(*given)
            found = np.where(np.isnan(sum(given)), np.nan, 0.0)
            found[good] = function(*(x[good] for x in given))
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
        return found.reshape(shape).astype(arrays[0].dtype)

    return call


_gamma_derivative = _elementwise(_gamma_slopes, lambda a, x: (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x))
_beta_derivative = _elementwise(
    lambda x, a, total: x * _beta_slopes(a, total - a, x),
    lambda x, a, total: (x > 0) & (x < 1) & (a > 0) & (total > a) & np.isfinite(total),
)


def _no_second(name: str) -> Callable[..., Any]:
    def gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
        raise NotImplementedError(f"the derivative for '{name}' is not implemented.")

    return gradient


@composite("_standard_gamma_grad", overridable=False)
def standard_gamma_grad(input: Tensor, output: Tensor) -> Tensor:
    """The derivatives of the gamma numbers `output` by their shapes `input`."""
    return hosted("StandardGammaGradBackward0", _gamma_derivative, [input, output], _no_second("_standard_gamma_grad"))[
        0
    ]


@composite("_dirichlet_grad", overridable=False)
def dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """How far a Dirichlet draw moves towards corner i (of the way from x to it) with its concentration `alpha`; `total` is their sum.

    That is the derivative of the i-th element, a beta number, divided by 1 - x.
    """
    return hosted("DirichletGradBackward0", _beta_derivative, [x, alpha, total], _no_second("_dirichlet_grad"))[0]
