"""Kullback-Leibler divergences: E_p[log p(x) - log q(x)], found by the classes of p and q.

Pairs of different families are not written one by one: the divergence is the cross entropy minus the entropy of p, and
the cross entropy needs of p only a few means (of x, x^2, log x, ...), and `_CROSS` has it for each q.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight.distributions.bernoulli import Bernoulli
from rushlight.distributions.beta import Beta
from rushlight.distributions.binomial import Binomial
from rushlight.distributions.categorical import Categorical
from rushlight.distributions.cauchy import Cauchy
from rushlight.distributions.continuous_bernoulli import ContinuousBernoulli
from rushlight.distributions.dirichlet import Dirichlet
from rushlight.distributions.exp_family import ExponentialFamily, differentiated_normalizer
from rushlight.distributions.exponential import Exponential
from rushlight.distributions.gamma import Gamma
from rushlight.distributions.geometric import Geometric
from rushlight.distributions.gumbel import Gumbel
from rushlight.distributions.half_normal import HalfNormal
from rushlight.distributions.independent import Independent
from rushlight.distributions.laplace import Laplace
from rushlight.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal, low_rank_log_det
from rushlight.distributions.multivariate_normal import MultivariateNormal, half_log_det
from rushlight.distributions.normal import Normal
from rushlight.distributions.one_hot_categorical import OneHotCategorical
from rushlight.distributions.pareto import Pareto
from rushlight.distributions.poisson import Poisson
from rushlight.distributions.transformed_distribution import TransformedDistribution
from rushlight.distributions.uniform import Uniform
from rushlight.distributions.utils import euler_constant, sum_rightmost
from rushlight.nn.functional import softplus

__all__ = ["kl_divergence", "register_kl"]

Divergence = Callable[[Any, Any], Any]

_KL_REGISTRY: dict[tuple[type, type], Divergence] = {}
_KL_MEMOIZE: dict[tuple[type, type], Any] = {}


# ***** the registry *****


def register_kl(type_p: Any, type_q: Any) -> Callable[[Divergence], Divergence]:
    """Decorator: the function computes the divergence of a `type_p` (or a subclass) from a `type_q` (or a subclass).

    Where several registrations fit, the one with the closer classes is taken; if one is closer in p and another in q
    there is a warning, which a registration of the pair itself resolves.  The classes may be bases that `Distribution`
    does not know, as those of other packages; `TypeError` for what is no class.

        >>> from rushlight.distributions import Normal
        >>> class Mine(Normal): pass
        >>> @register_kl(Mine, Normal)
        ... def mine_from_normal(p, q):
        ...     return "mine"
        >>> kl_divergence(Mine(0.0, 1.0), Normal(0.0, 1.0))
        'mine'
    """
    for name, cls in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(cls, type):
            raise TypeError(f"Expected {name} to be a class but got {cls}")

    def register(function: Divergence) -> Divergence:
        _KL_REGISTRY[type_p, type_q] = function
        _KL_MEMOIZE.clear()
        return function

    return register


def _dispatch_kl(type_p: type, type_q: type) -> Any:
    """The function for two classes: the closest registration, by p first and by q first."""
    above_p, above_q = type_p.__mro__, type_q.__mro__
    places = [(above_p.index(p), above_q.index(q)) for p, q in _KL_REGISTRY if p in above_p and q in above_q]
    if not places:
        return NotImplemented
    left, right = min(places), min(places, key=lambda place: place[::-1])
    chosen = (above_p[left[0]], above_q[left[1]])
    found, other = _KL_REGISTRY[chosen], _KL_REGISTRY[above_p[right[0]], above_q[right[1]]]
    if found is not other:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({above_p[left[0]].__name__}, {above_q[right[1]].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return found


def kl_divergence(p: Any, q: Any) -> Any:
    """E_p[log p(x) - log q(x)], shape the broadcast batch shapes.

    `NotImplementedError` if no function is registered for the two classes; see `register_kl`.

        >>> from rushlight.distributions import Normal
        >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
        tensor(0.5000)
    """
    key = type(p), type(q)
    function = _KL_MEMOIZE.get(key)
    if function is None:
        function = _KL_MEMOIZE[key] = _dispatch_kl(*key)
    if function is NotImplemented:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {p.__class__.__name__} and q type {q.__class__.__name__}"
        )
    return function(p, q)


# ***** two of one family *****


def _weighted(weight: Any, log_ratio: Any, q_is_zero: Any) -> Any:
    """weight * log_ratio; 0 where the weight is 0, else infinite where q is 0."""
    weight, log_ratio, q_is_zero = rushlight.broadcast_tensors(weight, log_ratio, q_is_zero)
    return (weight * log_ratio).masked_fill(q_is_zero, math.inf).masked_fill(weight == 0, 0)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Any:
    one = _weighted(p.probs, softplus(-q.logits) - softplus(-p.logits), q.probs == 0)
    return one + _weighted(1 - p.probs, softplus(q.logits) - softplus(p.logits), q.probs == 1)


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Any:
    # with more trials in q the binomial coefficients do not cancel, and there is no closed form
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    total = p.total_count * each
    return total.masked_fill(p.total_count > q.total_count, math.inf)


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Any:
    return _weighted(p.probs, p.logits - q.logits, q.probs == 0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot_categorical(p: Any, q: Any) -> Any:
    return _categorical(p._categorical, q._categorical)


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Any:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    total_a, total_b = a.sum(-1), b.sum(-1)
    normalizers = total_a.lgamma() - total_b.lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return normalizers + ((a - b) * (a.digamma() - total_a.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    return ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log()


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Any:
    constant_p = p._cont_bern_log_norm() + (-p.probs).log1p()
    constant_q = q._cont_bern_log_norm() + (-q.probs).log1p()
    return p.mean * (p.logits - q.logits) + constant_p - constant_q


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    rates = b * (p.rate / q.rate).log() + (q.rate - p.rate) * (a / p.rate)
    return rates + b.lgamma() - a.lgamma() + (a - b) * a.digamma()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio, shift = p.scale / q.scale, (q.loc - p.loc) / q.scale
    mean_exponential = (shift + (1 + ratio).lgamma()).exp()
    return mean_exponential - ratio.log() - shift + ratio * euler_constant - (1 + euler_constant)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Any:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Any:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return distance / q.scale + ratio * (-distance / p.scale).exp() - ratio.log() - 1


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).pow(2)
    distance = ((p.loc - q.loc) / q.scale).pow(2)
    return 0.5 * (ratio + distance - 1 - ratio.log())


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Any:
    ratio = q.alpha / p.alpha
    finite = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return finite.masked_fill(p.scale < q.scale, math.inf)


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Any:
    finite = ((q.high - q.low) / (p.high - p.low)).log()
    return finite.masked_fill((q.low > p.low) | (q.high < p.high), math.inf)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: Any, q: Any) -> Any:
    """A Bregman divergence of the log normaliser."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed using Bregman divergences"
        )
    normalizer, slopes, eta = differentiated_normalizer(p)
    eta_q = q._natural_params
    total = q._log_normalizer(*eta_q) - normalizer
    for mine, other, slope in zip(eta, eta_q, slopes, strict=True):
        term = (other - mine) * slope
        total = total - sum_rightmost(term, term.dim() - total.dim())
    return total


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL of Independent distributions with different reinterpreted_batch_ndims")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Any:
    """A bijection changes no divergence."""
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL of TransformedDistributions with different transforms or event shapes")
    return kl_divergence(p.base_dist, q.base_dist)


# ***** multivariate normal distributions *****


def _roots(p: Any) -> Any:
    """R with R R^T the covariance."""
    if isinstance(p, MultivariateNormal):
        return p._unbroadcasted_scale_tril
    diagonal = p._unbroadcasted_cov_diag.sqrt().diag_embed()
    factor = p._unbroadcasted_cov_factor
    batch = rushlight.broadcast_shapes(factor.shape[:-2], diagonal.shape[:-2])
    return rushlight.cat([factor.expand(*batch, -1, -1), diagonal.expand(*batch, -1, -1)], -1)


def _squares(q: Any, columns: Any) -> Any:
    """x^T C^-1 x, C the covariance of q, for each column x of [..., n, k]."""
    if isinstance(q, MultivariateNormal):
        return rushlight.linalg.solve_triangular(q._unbroadcasted_scale_tril, columns, upper=False).pow(2).sum(-2)
    scaled = columns / q._unbroadcasted_cov_diag.unsqueeze(-1)
    small = q._unbroadcasted_cov_factor.mT @ scaled
    solved = rushlight.linalg.solve_triangular(q._capacitance_tril, small, upper=False)
    return (columns * scaled).sum(-2) - solved.pow(2).sum(-2)


def _log_det(p: Any) -> Any:
    if isinstance(p, MultivariateNormal):
        return 2 * half_log_det(p._unbroadcasted_scale_tril)
    return low_rank_log_det(p._unbroadcasted_cov_diag, p._capacitance_tril)


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _multivariate_normal(p: Any, q: Any) -> Any:
    if p.event_shape != q.event_shape:
        kind = "" if isinstance(p, MultivariateNormal) and isinstance(q, MultivariateNormal) else "(Low Rank) "
        raise ValueError(
            f"KL-divergence between two {kind}Multivariate Normals with different event shapes cannot be computed"
        )
    trace = _squares(q, _roots(p)).sum(-1)
    distance = _squares(q, (q.loc - p.loc).unsqueeze(-1)).squeeze(-1)
    return 0.5 * (_log_det(q) - _log_det(p) + trace + distance - p.event_shape[0])


# ***** different families *****


def _uniform_log(low: Any, high: Any) -> Any:
    """The mean of log x over [low, high]: x log x - x between the ends."""
    return (rushlight.xlogy(high, high) - rushlight.xlogy(low, low)) / (high - low) - 1


def _uniform_log_mean_exp(p: Any, s: Any) -> Any:
    width = (p.high - p.low) / s
    return -p.low / s + (-(-width).expm1()).log() - width.log()


# What is known of p beside its mean and variance: the mean of log x, of log(1 - x), and log of the mean of exp(-x / s).
_LOG: dict[type, Callable[[Any], Any]] = {
    Beta: lambda p: p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma(),
    Exponential: lambda p: -euler_constant - p.rate.log(),
    Gamma: lambda p: p.concentration.digamma() - p.rate.log(),
    Pareto: lambda p: p.scale.log() + p.alpha.reciprocal(),
    Uniform: lambda p: _uniform_log(p.low, p.high),
}
_LOG_EXP: dict[type, Callable[[Any, Any], Any]] = {
    Exponential: lambda p, s: -((p.rate * s).reciprocal()).log1p(),
    Gamma: lambda p, s: -p.concentration * ((p.rate * s).reciprocal()).log1p(),
    Normal: lambda p, s: -p.loc / s + 0.5 * (p.scale / s).pow(2),
    Uniform: _uniform_log_mean_exp,
}


def _known(table: dict[type, Any], p: Any) -> Any:
    return next(table[cls] for cls in type(p).__mro__ if cls in table)


def _mean_log(p: Any) -> Any:
    return _known(_LOG, p)(p)


def _cross_beta(p: Any, q: Any) -> Any:
    a, b = q.concentration1, q.concentration0
    constant = (a + b).lgamma() - a.lgamma() - b.lgamma()
    return constant + (a - 1) * _mean_log(p) + (b - 1) * _uniform_log(1 - p.high, 1 - p.low)


def _cross_gamma(p: Any, q: Any) -> Any:
    a = q.concentration
    return a * q.rate.log() - a.lgamma() + (a - 1) * _mean_log(p) - q.rate * p.mean


def _cross_gumbel(p: Any, q: Any) -> Any:
    mean_exponential = (q.loc / q.scale + _known(_LOG_EXP, p)(p, q.scale)).exp()
    return -q.scale.log() - (p.mean - q.loc) / q.scale - mean_exponential


def _cross_laplace(p: Any, q: Any) -> Any:
    """Of a normal p: the mean of |x - loc| is that of a folded normal number."""
    away = p.loc - q.loc
    z = away / p.scale
    folded = math.sqrt(2 / math.pi) * p.scale * (-0.5 * z.pow(2)).exp() + away * rushlight.erf(z / math.sqrt(2))
    return -(2 * q.scale).log() - folded / q.scale


def _cross_normal(p: Any, q: Any) -> Any:
    square = (p.variance + (p.mean - q.loc).pow(2)) / q.scale.pow(2)
    return -0.5 * (math.log(2 * math.pi) + square) - q.scale.log()


# The mean of log q(x) under p, where all of p lies in the support of q.
_CROSS: dict[type, Callable[[Any, Any], Any]] = {
    Beta: _cross_beta,
    ContinuousBernoulli: lambda p, q: p.mean * q.logits + (-q.probs).log1p() + q._cont_bern_log_norm(),
    Exponential: lambda p, q: q.rate.log() - q.rate * p.mean,
    Gamma: _cross_gamma,
    Gumbel: _cross_gumbel,
    Laplace: _cross_laplace,
    Normal: _cross_normal,
    Pareto: lambda p, q: q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _mean_log(p),
    Poisson: lambda p, q: p.mean * q.rate.log() - q.rate,  # of a Bernoulli p: 0! and 1! are 1
    Uniform: lambda p, q: -(q.high - q.low).log(),
}
# The ends of supports that depend on parameters, or that others may stick out of.
_ENDS: dict[type, Callable[[Any], tuple[Any, Any]]] = {
    Beta: lambda d: (0.0, 1.0),
    ContinuousBernoulli: lambda d: (0.0, 1.0),
    Exponential: lambda d: (0.0, math.inf),
    Gamma: lambda d: (0.0, math.inf),
    Pareto: lambda d: (d.scale, math.inf),
    Uniform: lambda d: (d.low, d.high),
}
# For each p: q of which part of p may lie outside, to be compared; q that contain p; q that never do.
_PAIRS: dict[type, tuple[tuple[type, ...], tuple[type, ...], tuple[type, ...]]] = {
    Bernoulli: ((), (Poisson,), ()),
    Beta: ((Uniform,), (ContinuousBernoulli, Exponential, Gamma, Normal), (Pareto,)),
    ContinuousBernoulli: ((Uniform,), (Exponential, Normal), (Pareto,)),
    Exponential: ((), (Gamma, Gumbel, Normal), (Beta, ContinuousBernoulli, Pareto, Uniform)),
    Gamma: ((), (Exponential, Gumbel, Normal), (Beta, ContinuousBernoulli, Pareto, Uniform)),
    Gumbel: ((), (Normal,), (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    Laplace: ((), (Normal,), (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    Normal: ((), (Gumbel, Laplace), (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    Pareto: ((), (), (Beta, ContinuousBernoulli, Uniform)),  # and see `_heavy_tailed`
    Poisson: ((), (), (Bernoulli, Binomial)),
    Uniform: ((Beta, ContinuousBernoulli, Exponential, Gamma, Pareto), (Gumbel, Normal), ()),
}


def _divergence(cross: Callable[[Any, Any], Any]) -> Divergence:
    return lambda p, q: -p.entropy() - cross(p, q)


def _compared(cross: Callable[[Any, Any], Any]) -> Divergence:
    """The same, infinite where p sticks out of the support of q."""

    def divergence(p: Any, q: Any) -> Any:
        (low_p, high_p), (low_q, high_q) = _known(_ENDS, p)(p), _known(_ENDS, q)(q)
        finite = -p.entropy() - cross(p, q)
        outside = rushlight.as_tensor(low_p < low_q) | rushlight.as_tensor(high_p > high_q)
        return rushlight.where(outside, math.inf, finite)

    return divergence


def _heavy_tailed(cross: Callable[[Any, Any], Any], moments: int) -> Divergence:
    """The same of a Pareto p, infinite where p lacks one of the moments that q needs.

    In these places p is replaced by one that has it, so that infinities do not become NaN in the gradients.
    """

    def divergence(p: Any, q: Any) -> Any:
        lacks = p.alpha <= moments
        tame = Pareto(p.scale, p.alpha.masked_fill(lacks, moments + 1), validate_args=False)
        return rushlight.where(lacks, math.inf, -tame.entropy() - cross(tame, q))

    return divergence


def _infinite(p: Any, q: Any) -> Any:
    return rushlight.full_like(p.mean, math.inf)


def _register_pairs() -> None:
    for p, (compared, contained, never) in _PAIRS.items():
        for q in compared:
            register_kl(p, q)(_compared(_CROSS[q]))
        for q in contained:
            register_kl(p, q)(_divergence(_CROSS[q]))
        for q in never:
            register_kl(p, q)(_infinite)
    for q, moments in ((Exponential, 1), (Gamma, 1), (Normal, 2)):
        register_kl(Pareto, q)(_heavy_tailed(_CROSS[q], moments))


_register_pairs()
