"""Gamma and Dirichlet draws, and how they move with their parameters.

A draw x with the distribution function F(x; a) stays at the same probability while a changes, so dx/da = -(dF/da) /
(dF/dx) (Figurnov, Mohamed and Mnih, "Implicit reparameterization gradients", arXiv:1805.08498).  In the logarithmic
variable s (log x, or log odds of a beta number) the density is q(s) / Z with a concave log q, and dF/da is the integral
of (log x - E log x) q(s) / Z up to the draw, or minus that beyond it: the normaliser cancels, and on the side that is
taken the integrand has one sign.  So one Gauss-Legendre rule gives full accuracy for all parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from rushlight._base.lazy import numpy as np
from rushlight._engine.autograd.node import Node, check_attached
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor, edge_of
from rushlight._engine.functorch.numpy_callback import call_numpy
from rushlight._engine.random import random as streams
from rushlight._engine.random.random import Generator
from rushlight._engine.random.sampling import check_generator, fresh, not_implemented, overridable
from rushlight._surface.registry import composite
from rushlight._types.dtype import FLOAT32, FLOAT64
from rushlight._types.spec import check_memory

__all__: list[str] = []

TINY = {FLOAT32: 2.0**-126, FLOAT64: 2.0**-1022}  # the smallest normal numbers
BELOW_ONE = {FLOAT32: 1.0 - 2.0**-24, FLOAT64: 1.0 - 2.0**-53}

# ***** draws *****


def _gammas(shapes: Any, generator: Generator | None, smallest: float) -> Any:
    """Gamma numbers for a contiguous tensor of shapes."""
    spec = shapes._spec
    check_memory(spec)
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
        check_attached(self.saved[0], self._edges[0], self)
        if [x._storage.version for x in self.saved] != self.versions:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: the shapes or the result of "
                "_standard_gamma"
            )
        return [grads[0] * standard_gamma_grad(*self.saved)]

    def _release(self) -> None:
        self.saved = None


@composite("_standard_gamma", overridable=False)
@overridable
def standard_gamma(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Gamma numbers of rate 1 with the elements of `input` (float32 or float64) as shapes, differentiable in them.

    >>> torch._standard_gamma(torch.ones(3)).shape
    torch.Size([3])
    """
    generator = check_generator("_standard_gamma", generator, input.device)
    dtype = input._spec.dtype
    if dtype not in TINY:
        raise not_implemented("gamma_cpu", dtype)
    shapes: Any = input.detach().contiguous()
    made: Tensor = _gammas(shapes, generator, TINY[dtype])
    if STATE.word & GRAD and input._rg:
        node = StandardGammaBackward0()
        node._start([edge_of(input)])
        # without the history of the result, which would hold itself
        node.saved = [input, made.detach()]
        node.versions = [x._storage.version for x in node.saved]
        made._node, made._rg = node, True
    return made


class SampleDirichletBackward0(Node):
    """There is none: `distributions.Dirichlet` differentiates its draws by `_dirichlet_grad`."""

    __slots__ = ()

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        raise NotImplementedError("the derivative for '_sample_dirichlet' is not implemented.")


@composite("_sample_dirichlet", overridable=False)
@overridable
def sample_dirichlet(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Vectors of positive numbers with the sum 1, with the concentrations along the last dim; float32 or float64.

    >>> torch._sample_dirichlet(torch.tensor([2.0]))
    tensor([1.0000])
    """
    generator = check_generator("_sample_dirichlet", generator, input.device)
    dtype = input._spec.dtype
    if dtype not in TINY:
        raise not_implemented("dirichlet", dtype)
    shapes: Any = input.detach().to(FLOAT64).contiguous()
    parts = _gammas(shapes, generator, TINY[FLOAT64])  # numbers that vanish share alike
    found: Tensor = (parts / parts.sum(-1, True)).to(dtype).clamp(TINY[dtype], BELOW_ONE[dtype])
    if STATE.word & GRAD and input._rg:
        found._node, found._rg = SampleDirichletBackward0(), True
        found._node._start([edge_of(input)])
    return found


# ***** derivatives *****


class Precision(NamedTuple):
    """How finely is integrated: nodes, where the density counts as gone (exp(-depth)), and how wide its bend is."""

    nodes: int
    depth: float
    bend: float


SINGLE, DOUBLE = Precision(32, 22.0, 8.0), Precision(64, 42.0, 14.0)
# (logarithm of the density relative to that at the draw, weight) at a distance w from the draw
Terms = Callable[..., tuple[Any, Any]]


@cache
def _rule(nodes: int) -> list[tuple[float, float]]:
    """Nodes and weights of Gauss and Legendre on [0, 1]."""
    places, weights = np.polynomial.legendre.leggauss(nodes)
    return list(zip((0.5 * (places + 1.0)).tolist(), (0.5 * weights).tolist(), strict=True))


def _width(terms: Terms, parameters: Sequence[Any], depth: float, least: Any, most: Any) -> Any:
    """The distance, between the bounds, at which the density is gone; to a few per cent, which is enough for an end."""
    low, high = np.log(least), np.log(most)
    for _ in range(10):
        middle = 0.5 * (low + high)
        gone = terms(np.exp(middle), *parameters)[0] < -depth
        low, high = np.where(gone, low, middle), np.where(gone, middle, high)
    return np.exp(high)


def _integral(terms: Terms, parameters: Sequence[Any], width: Any, cuts: Sequence[Any], nodes: int) -> Any:
    """The integral of density times weight over distances from 0 to `width`.

    Between the `cuts` the density turns from one exponential into another; the far sides are integrated apart, where
    they exist.
    """
    total = np.zeros_like(width)
    start = total.copy()
    for end in (*(np.clip(cut, 0.0, width) for cut in cuts), width):
        rows = end > start
        mine, first, length = [p[rows] for p in parameters], start[rows], (end - start)[rows]
        if length.size:
            part = np.zeros_like(length)
            for node, share in _rule(nodes):
                fall, weight = terms(first + node * length, *mine)
                part += share * np.exp(fall) * weight
            total[rows] += part * length
        start = end
    return total


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


def _gamma_terms(w: Any, side: Any, a: Any, x: Any, away: Any) -> tuple[Any, Any]:
    return side * a * w - x * np.expm1(side * w), w - side * away


def _gamma_slopes(precision: Precision, a: Any, x: Any) -> Any:
    """dx/da for gamma numbers x of shape a."""
    nodes, depth, bend = precision
    s = np.log(x)
    away = _digamma(a) - s  # the mean of log x, seen from the draw
    below = away > 0
    side = np.where(below, -1.0, 1.0)
    parameters = (side, a, x, away)
    # to the left the density falls like exp(-a w), to the right like exp(-x (exp(w) - 1 - w)) or faster
    far = np.log1p(2.5 * depth / x) + np.minimum(np.sqrt(2.5 * depth / x), 12.0)
    least = np.where(below, depth / a, 1e-2 * far)
    width = _width(_gamma_terms, parameters, depth, least, np.where(below, 1.01 * (depth + x) / a, far))
    cuts = (-side * s - bend, -side * s + bend)
    return x * _integral(_gamma_terms, parameters, width, cuts, nodes)


def _beta_terms(w: Any, side: Any, a: Any, b: Any, s: Any, log_x: Any, away: Any) -> tuple[Any, Any]:
    moved = s + side * w
    # Of log x; the change of log(1 - x) is smaller by the change of the log odds
    change = -np.logaddexp(0.0, -moved) - log_x
    return (a + b) * change - side * b * w, side * (change - away)


def _beta_slopes(precision: Precision, a: Any, b: Any, x: Any) -> Any:
    """d(log odds)/da for beta numbers x of concentrations a (at 1) and b (at 0)."""
    nodes, depth, bend = precision
    log_x, log_rest = np.log(x), np.log1p(-x)
    s = log_x - log_rest
    away = _digamma(a) - _digamma(a + b) - log_x
    below = away > 0
    side = np.where(below, -1.0, 1.0)
    parameters = (side, a, b, s, log_x, away)
    rate, room = np.where(below, a, b), np.where(below, -log_rest, -log_x)
    width = _width(_beta_terms, parameters, depth, depth / rate, 1.01 * (depth + (a + b) * room) / rate)
    left, right = bend + np.log1p(b), bend + np.log1p(a)
    cuts = (-side * s - np.where(below, right, left), -side * s + np.where(below, left, right))
    return _integral(_beta_terms, parameters, width, cuts, nodes)


def _elementwise(function: Callable[..., Any], valid: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of flat float64 arrays, where the parameters are `valid`; 0 elsewhere, NaN for NaN; in the dtype of
    the first.
    """

    def call(*arrays: Any) -> Any:
        precision = DOUBLE if arrays[0].dtype == "float64" else SINGLE
        given = [np.asarray(x, "float64").reshape(-1) for x in np.broadcast_arrays(*arrays)]
        with np.errstate(all="ignore"):
            good = valid(*given)
            found = np.where(np.isnan(sum(given)), np.nan, 0.0)
            found[good] = function(precision, *(x[good] for x in given))
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
        return found.reshape(shape).astype(arrays[0].dtype)

    return call


_gamma_derivative = _elementwise(_gamma_slopes, lambda a, x: (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x))
_beta_derivative = _elementwise(
    lambda precision, x, a, total: x * _beta_slopes(precision, a, total - a, x),
    lambda x, a, total: (x > 0) & (x < 1) & (a > 0) & (total > a) & np.isfinite(total),
)


def _no_second(name: str) -> Callable[..., Any]:
    def gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
        raise NotImplementedError(f"the derivative for '{name}' is not implemented.")

    return gradient


@composite("_standard_gamma_grad", overridable=False)
def standard_gamma_grad(input: Tensor, output: Tensor) -> Tensor:
    """The derivatives of the gamma numbers `output` by their shapes `input`."""
    gradient = _no_second("_standard_gamma_grad")
    return call_numpy("StandardGammaGradBackward0", _gamma_derivative, [input, output], gradient)[0]


@composite("_dirichlet_grad", overridable=False)
def dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """How far a Dirichlet draw moves towards corner i (of the way from x to it) with its concentration `alpha`; `total`
    is their sum.

    That is the derivative of the i-th element, a beta number, divided by 1 - x.
    """
    return call_numpy("DirichletGradBackward0", _beta_derivative, [x, alpha, total], _no_second("_dirichlet_grad"))[0]
