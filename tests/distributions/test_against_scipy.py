"""Densities, distribution functions, moments and entropies against SciPy; draws against the distribution functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, special, stats
from tests.distributions.cases import CASES, Case, build

import rushlight as torch

D = torch.distributions


def f(x: Any) -> Any:
    return torch.tensor(x, dtype=torch.float64)


# (ours, SciPy's frozen distribution), scalars
CONTINUOUS: dict[str, tuple[Callable[[], Any], Any]] = {
    "Normal": (lambda: D.Normal(f(1.0), f(2.0)), stats.norm(1, 2)),
    "Uniform": (lambda: D.Uniform(f(-1.0), f(2.0)), stats.uniform(-1, 3)),
    "Exponential": (lambda: D.Exponential(f(0.7)), stats.expon(scale=1 / 0.7)),
    "Laplace": (lambda: D.Laplace(f(1.0), f(2.0)), stats.laplace(1, 2)),
    "Cauchy": (lambda: D.Cauchy(f(1.0), f(2.0)), stats.cauchy(1, 2)),
    "Gamma": (lambda: D.Gamma(f(2.5), f(0.7)), stats.gamma(2.5, scale=1 / 0.7)),
    "Gamma below 1": (lambda: D.Gamma(f(0.3), f(2.0)), stats.gamma(0.3, scale=0.5)),
    "Chi2": (lambda: D.Chi2(f(3.0)), stats.chi2(3)),
    "Beta": (lambda: D.Beta(f(2.0), f(0.8)), stats.beta(2, 0.8)),
    "StudentT": (lambda: D.StudentT(f(5.0), f(1.0), f(2.0)), stats.t(5, 1, 2)),
    "FisherSnedecor": (lambda: D.FisherSnedecor(f(5.0), f(9.0)), stats.f(5, 9)),
    "GeneralizedPareto": (lambda: D.GeneralizedPareto(f(1.0), f(2.0), f(0.3)), stats.genpareto(0.3, 1, 2)),
    "GeneralizedPareto bounded": (lambda: D.GeneralizedPareto(f(1.0), f(2.0), f(-0.5)), stats.genpareto(-0.5, 1, 2)),
    "GeneralizedPareto exponential": (lambda: D.GeneralizedPareto(f(1.0), f(2.0), f(0.0)), stats.expon(1, 2)),
    "Gumbel": (lambda: D.Gumbel(f(1.0), f(2.0)), stats.gumbel_r(1, 2)),
    "HalfCauchy": (lambda: D.HalfCauchy(f(2.0)), stats.halfcauchy(0, 2)),
    "HalfNormal": (lambda: D.HalfNormal(f(2.0)), stats.halfnorm(0, 2)),
    "InverseGamma": (lambda: D.InverseGamma(f(3.0), f(2.0)), stats.invgamma(3, scale=2)),
    "LogNormal": (lambda: D.LogNormal(f(0.5), f(0.8)), stats.lognorm(0.8, scale=math.exp(0.5))),
    "Pareto": (lambda: D.Pareto(f(2.0), f(3.0)), stats.pareto(3, scale=2)),
    "Weibull": (lambda: D.Weibull(f(2.0), f(1.7)), stats.weibull_min(1.7, scale=2)),
    "VonMises": (lambda: D.VonMises(f(0.5), f(3.0)), stats.vonmises(3, 0.5)),
    "TransformedDistribution": (
        lambda: D.TransformedDistribution(D.Exponential(f(1.0)), [D.AffineTransform(1.0, -2.0)]),
        stats.expon(scale=2),
    ),
}
DISCRETE: dict[str, tuple[Callable[[], Any], Any]] = {
    "Bernoulli": (lambda: D.Bernoulli(f(0.3)), stats.bernoulli(0.3)),
    "Bernoulli logits": (lambda: D.Bernoulli(logits=f(math.log(0.3 / 0.7))), stats.bernoulli(0.3)),
    "Binomial": (lambda: D.Binomial(9, f(0.3)), stats.binom(9, 0.3)),
    "Geometric": (lambda: D.Geometric(f(0.3)), stats.geom(0.3, loc=-1)),
    "NegativeBinomial": (lambda: D.NegativeBinomial(f(4.5), f(0.3)), stats.nbinom(4.5, 0.7)),
    "Poisson": (lambda: D.Poisson(f(3.3)), stats.poisson(3.3)),
}
QUANTILES = np.array([0.03, 0.2, 0.5, 0.77, 0.99])


def close(mine: Any, theirs: Any, rtol: float = 1e-9) -> None:
    assert mine.dtype is torch.float64
    np.testing.assert_allclose(mine.numpy(), theirs, rtol=rtol, atol=1e-11)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str) -> None:
    make, reference = CONTINUOUS[name]
    mine = make()
    # (the quantiles of this one SciPy searches for, slowly)
    x = reference.ppf(QUANTILES) if name != "VonMises" else np.array([-2.0, 0.1, 0.5, 1.0, 3.0])
    if name == "TransformedDistribution":  # the reference is that of (1 - x), which falls
        close(mine.cdf(f(1.0 - x)), 1.0 - QUANTILES)
        close(mine.icdf(f(1.0 - QUANTILES)), 1.0 - x)
        close(mine.log_prob(f(1.0 - x)), reference.logpdf(x))
        return
    close(mine.log_prob(f(x)), reference.logpdf(x))
    try:
        close(mine.cdf(f(x)), QUANTILES)
        close(mine.icdf(f(QUANTILES)), x)
    except NotImplementedError:
        assert name.split()[0] in ("Gamma", "Chi2", "Beta", "StudentT", "FisherSnedecor", "InverseGamma", "VonMises")
    if name not in ("FisherSnedecor", "VonMises"):
        close(mine.entropy(), reference.entropy(), 1e-7)
    mean, variance = reference.stats("mv")
    if name not in ("VonMises", "Cauchy", "HalfCauchy"):  # circular moments; infinite here, NaN there
        close(mine.mean, mean)
        close(mine.variance, variance)
        close(mine.stddev, np.sqrt(variance))


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name: str) -> None:
    make, reference = DISCRETE[name]
    mine = make()
    x = np.arange(0.0, 2.0 if name.startswith("Bernoulli") else 9.0)
    close(mine.log_prob(f(x)), reference.logpmf(x))
    close(mine.mean, reference.mean())
    close(mine.variance, reference.var())
    if name not in ("NegativeBinomial", "Poisson"):
        close(mine.entropy(), reference.entropy(), 1e-7)
        close(mine.perplexity(), np.exp(reference.entropy()), 1e-7)
    everything = np.arange(200.0) if mine.support.check(f(150.0)) else x
    assert mine.mode.item() in everything[np.isclose(reference.pmf(everything), reference.pmf(everything).max())]


def test_von_mises_moments() -> None:
    k = 3.0
    d = D.VonMises(f(0.5), f(k))
    close(d.variance, 1 - special.iv(1, k) / special.iv(0, k))
    close(D.VonMises(f(0.0), f(1e5)).log_prob(f(0.001)), stats.vonmises(1e5).logpdf(0.001), 1e-7)


def test_vectors() -> None:
    weights = np.array([0.2, 0.5, 0.3])
    a = np.array([0.7, 2.0, 3.5])
    x = np.array([0.1, 0.6, 0.3])
    dirichlet, reference = D.Dirichlet(f(a)), stats.dirichlet(a)
    close(dirichlet.log_prob(f(x)), reference.logpdf(x))
    close(dirichlet.entropy(), reference.entropy())
    close(dirichlet.mean, reference.mean())
    close(dirichlet.variance, reference.var())
    counts = np.array([[1.0, 3.0, 2.0], [0.0, 6.0, 0.0]])
    multinomial = D.Multinomial(6, f(weights))
    close(multinomial.log_prob(f(counts)), stats.multinomial(6, weights).logpmf(counts))
    close(multinomial.entropy(), stats.multinomial(6, weights).entropy())
    close(multinomial.variance, np.diag(stats.multinomial(6, weights).cov()))
    for logits in (False, True):
        given = {"logits": f(np.log(weights) + 3.0)} if logits else {"probs": f(weights * 7)}
        categorical, one_hot = D.Categorical(**given), D.OneHotCategorical(**given)
        close(categorical.log_prob(f([0, 1, 2])), np.log(weights))
        close(one_hot.log_prob(torch.eye(3)), np.log(weights))
        close(one_hot.entropy(), stats.entropy(weights))
        close(categorical.entropy(), stats.entropy(weights))
        close(one_hot.mean, weights)


@pytest.mark.parametrize("which", ["covariance_matrix", "precision_matrix", "scale_tril"])
def test_multivariate_normal(which: str) -> None:
    rng = np.random.default_rng(0)
    root = np.tril(rng.normal(size=(3, 3))) + 3 * np.eye(3)
    covariance = root @ root.T
    given = {"covariance_matrix": covariance, "precision_matrix": np.linalg.inv(covariance), "scale_tril": root}[which]
    loc, x = rng.normal(size=3), rng.normal(size=(4, 2, 3))
    d, reference = D.MultivariateNormal(f(loc), **{which: f(given)}), stats.multivariate_normal(loc, covariance)
    close(d.log_prob(f(x)), reference.logpdf(x))
    close(d.expand((2,)).log_prob(f(x)), reference.logpdf(x))
    close(d.entropy(), reference.entropy())
    close(d.covariance_matrix, covariance, 1e-8)
    close(d.precision_matrix, np.linalg.inv(covariance), 1e-8)
    close(d.scale_tril, root, 1e-8)
    close(d.variance, np.diag(covariance))


def test_low_rank_multivariate_normal() -> None:
    rng = np.random.default_rng(1)
    loc, factor, diagonal, x = (
        rng.normal(size=4),
        rng.normal(size=(4, 2)),
        rng.uniform(1, 2, 4),
        rng.normal(size=(5, 4)),
    )
    covariance = factor @ factor.T + np.diag(diagonal)
    d = D.LowRankMultivariateNormal(f(loc), f(factor), f(diagonal))
    reference = stats.multivariate_normal(loc, covariance)
    close(d.log_prob(f(x)), reference.logpdf(x))
    close(d.entropy(), reference.entropy())
    close(d.covariance_matrix, covariance)
    close(d.precision_matrix, np.linalg.inv(covariance), 1e-8)
    close(d.scale_tril, np.linalg.cholesky(covariance), 1e-8)
    close(d.variance, np.diag(covariance))


def test_wishart() -> None:
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    d, reference = D.Wishart(f(4.5), f(covariance)), stats.wishart(4.5, covariance)
    x = reference.rvs(3, random_state=0)
    close(d.log_prob(f(x)), reference.logpdf(np.moveaxis(x, 0, -1)))
    close(d.entropy(), reference.entropy())
    close(d.mean, reference.mean())
    close(d.mode, reference.mode())
    close(d.variance, reference.var())


@pytest.mark.parametrize("dim", [2, 3, 4])
def test_lkj_density_integrates_to_one(dim: int) -> None:
    """In the coordinates that CorrCholeskyTransform maps from, by importance sampling with normal numbers."""
    torch.manual_seed(0)
    z = torch.randn(200_000, dim * (dim - 1) // 2, dtype=torch.float64)
    t = D.CorrCholeskyTransform()
    factor = t(z)
    proposal = D.Normal(f(0.0), f(1.0)).log_prob(z).sum(-1)
    d = D.LKJCholesky(dim, f(1.5), validate_args=False)
    weight = (d.log_prob(factor) + t.log_abs_det_jacobian(z, factor) - proposal).exp()
    assert abs(weight.mean().item() - 1) < 0.02


def test_lkj_with_concentration_one_is_uniform() -> None:
    """All correlation matrices of two are equally likely: the correlation is uniform in (-1, 1)."""
    torch.manual_seed(1)
    correlation = D.LKJCholesky(2, f(1.0)).sample((20_000,))[:, 1, 0]
    assert stats.kstest(correlation.numpy(), stats.uniform(-1, 2).cdf).pvalue > 1e-4


@pytest.mark.parametrize("p", [0.2, 0.4995, 0.5, 0.97])
def test_continuous_bernoulli(p: float) -> None:
    d = D.ContinuousBernoulli(f(p))
    density = lambda x: d.log_prob(f(x)).exp().item()
    assert abs(integrate.quad(density, 0, 1)[0] - 1) < 1e-7
    close(d.mean, integrate.quad(lambda x: x * density(x), 0, 1)[0], 1e-7)
    center = d.mean.item()
    close(d.variance, integrate.quad(lambda x: (x - center) ** 2 * density(x), 0, 1)[0], 1e-6)
    close(d.entropy(), integrate.quad(lambda x: -density(x) * math.log(density(x)), 0, 1)[0], 1e-6)
    close(d.cdf(f(0.3)), integrate.quad(density, 0, 0.3)[0], 1e-3)  # near 1/2 it counts as the identity
    close(d.icdf(d.cdf(f([0.1, 0.8]))), [0.1, 0.8], 1e-9)


def test_kumaraswamy() -> None:
    a, b = 2.5, 3.0
    d = D.Kumaraswamy(f(a), f(b))
    density = lambda x: a * b * x ** (a - 1) * (1 - x**a) ** (b - 1)
    x = np.array([0.1, 0.4, 0.9])
    close(d.log_prob(f(x)), np.log(density(x)))
    close(d.cdf(f(x)), 1 - (1 - x**a) ** b)
    for name, weight in (("mean", lambda x: x), ("entropy", lambda x: -np.log(density(x)))):
        value = getattr(d, name)
        close(
            value() if callable(value) else value, integrate.quad(lambda x, w=weight: w(x) * density(x), 0, 1)[0], 1e-7
        )
    grid = np.linspace(0.01, 0.99, 9801)
    assert abs(d.mode.item() - grid[np.argmax(density(grid))]) < 2e-4
    assert np.isnan(D.Kumaraswamy(f(0.5), f(2.0)).mode.item())


def test_relaxed_distributions_have_densities() -> None:
    d = D.RelaxedBernoulli(f(0.8), f(0.3))
    assert abs(integrate.quad(lambda x: d.log_prob(f(x)).exp().item(), 0, 1)[0] - 1) < 1e-5
    one_hot = D.RelaxedOneHotCategorical(f(0.8), f([0.3, 0.7]))
    inside = lambda x: one_hot.log_prob(f([x, 1 - x])).exp().item()
    assert abs(integrate.quad(inside, 1e-9, 1 - 1e-9)[0] - 1) < 1e-4


def test_mixture() -> None:
    d = D.MixtureSameFamily(D.Categorical(f([0.3, 0.7])), D.Normal(f([-1.0, 2.0]), f([1.0, 0.5])))
    parts = (0.3, stats.norm(-1, 1)), (0.7, stats.norm(2, 0.5))
    x = np.array([-2.0, 0.5, 2.0])
    close(d.log_prob(f(x)), np.log(sum(w * n.pdf(x) for w, n in parts)))
    close(d.cdf(f(x)), sum(w * n.cdf(x) for w, n in parts))
    close(d.mean, 0.3 * -1 + 0.7 * 2)
    close(d.variance, 0.3 * (1 + 1) + 0.7 * (0.25 + 4) - 1.1**2)


def test_entropies_of_exponential_families_by_the_normaliser() -> None:
    """The general formula gives what the closed forms give."""
    family = D.ExponentialFamily
    for d in (D.Normal(f(1.0), f(2.0)), D.Gamma(f(2.0), f(3.0)), D.Exponential(f(0.3)), D.Bernoulli(f([0.3, 0.6]))):
        close(family.entropy(d).detach(), d.entropy().numpy(), 1e-8)
    wishart = D.Wishart(f([3.0, 4.5]), f([[2.0, 0.5], [0.5, 1.0]]))
    assert family.entropy(wishart).shape == (2,)


# ***** draws *****

SAMPLED = [name for name in CONTINUOUS if name != "TransformedDistribution"]


@pytest.mark.parametrize("name", SAMPLED)
def test_draws_follow_the_distribution(name: str) -> None:
    make, reference = CONTINUOUS[name]
    torch.manual_seed(5)
    draws = make().sample((4000,)).numpy()
    assert stats.kstest(draws, reference.cdf).pvalue > 1e-4


# Their mean has no formula, in PyTorch either.
WITHOUT_MOMENTS = frozenset(
    ("LKJCholesky", "LogisticNormal", "RelaxedBernoulli", "RelaxedOneHotCategorical", "TransformedDistribution")
)


@pytest.mark.parametrize("of", CASES, ids=repr)
def test_draws_have_the_moments(of: Case) -> None:
    """Mean and variance of many draws, where they exist and are known."""
    torch.manual_seed(3)
    d = build(torch, of)
    draws = d.sample((6000,))
    assert draws.shape == (6000, *d.batch_shape, *d.event_shape)
    assert not draws.requires_grad
    assert d.support.check(draws).all()
    if of.name in ("VonMises", "Pareto", "GeneralizedPareto", "FisherSnedecor", "InverseGamma", "StudentT"):
        return  # circular, or without the moments that the test stands on
    if of.name in WITHOUT_MOMENTS:
        with pytest.raises(NotImplementedError):
            d.mean
        return
    mean, variance = d.mean, d.variance
    known = torch.isfinite(mean) & torch.isfinite(variance)
    error = (draws.double().mean(0) - mean)[known] / (variance[known] / 6000).sqrt().clamp(min=1e-12)
    assert (error.abs() < 5).all()
    ratio = (draws.double().var(0) / variance)[known & (variance > 1e-12)]
    assert (ratio < 1.6).all() and (ratio > 0.6).all()
