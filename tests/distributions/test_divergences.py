"""Divergences against numeric integration and sums; the registry."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import integrate

import rushlight as torch
from rushlight.distributions.kl import _KL_REGISTRY

D = torch.distributions
kl = D.kl_divergence


def f(x: Any) -> Any:
    return torch.tensor(x, dtype=torch.float64)


ONE = {
    "Bernoulli": lambda: D.Bernoulli(f(0.3)),
    "Beta": lambda: D.Beta(f(2.0), f(3.0)),
    "Binomial": lambda: D.Binomial(4, f(0.3)),
    "Categorical": lambda: D.Categorical(f([0.2, 0.5, 0.3])),
    "Cauchy": lambda: D.Cauchy(f(0.5), f(1.5)),
    "ContinuousBernoulli": lambda: D.ContinuousBernoulli(f(0.3)),
    "Exponential": lambda: D.Exponential(f(1.3)),
    "Gamma": lambda: D.Gamma(f(2.5), f(1.3)),
    "Geometric": lambda: D.Geometric(f(0.4)),
    "Gumbel": lambda: D.Gumbel(f(0.3), f(1.2)),
    "HalfNormal": lambda: D.HalfNormal(f(1.2)),
    "Laplace": lambda: D.Laplace(f(0.3), f(1.2)),
    "Normal": lambda: D.Normal(f(0.3), f(1.2)),
    "Pareto": lambda: D.Pareto(f(1.0), f(4.0)),
    "Poisson": lambda: D.Poisson(f(2.3)),
    "Uniform": lambda: D.Uniform(f(0.2), f(0.8)),
}
ANOTHER = {
    **ONE,
    "Bernoulli": lambda: D.Bernoulli(f(0.6)),
    "Beta": lambda: D.Beta(f(1.5), f(0.7)),
    "Binomial": lambda: D.Binomial(4, f(0.6)),
    "Categorical": lambda: D.Categorical(f([0.4, 0.4, 0.2])),
    "Cauchy": lambda: D.Cauchy(f(-0.5), f(0.7)),
    "ContinuousBernoulli": lambda: D.ContinuousBernoulli(f(0.8)),
    "Exponential": lambda: D.Exponential(f(0.7)),
    "Gamma": lambda: D.Gamma(f(1.5), f(0.7)),
    "Geometric": lambda: D.Geometric(f(0.7)),
    "Gumbel": lambda: D.Gumbel(f(-0.3), f(2.2)),
    "HalfNormal": lambda: D.HalfNormal(f(2.2)),
    "Laplace": lambda: D.Laplace(f(-0.3), f(2.2)),
    "Normal": lambda: D.Normal(f(-0.3), f(2.2)),
    "Pareto": lambda: D.Pareto(f(0.1), f(2.0)),
    "Poisson": lambda: D.Poisson(f(1.3)),
    "Uniform": lambda: D.Uniform(f(0.0), f(1.0)),
}
RANGE = {
    "Beta": (0, 1), "ContinuousBernoulli": (0, 1), "Exponential": (0, math.inf), "Gamma": (0, math.inf), "HalfNormal": (0, math.inf),
    "Pareto": (1, math.inf), "Uniform": (0.2, 0.8),
}  # fmt: skip
PAIRS = sorted({(p.__name__, q.__name__) for p, q in _KL_REGISTRY if p.__name__ in ONE and q.__name__ in ONE})


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_by_integration(p: str, q: str) -> None:
    a, b = ONE[p](), ANOTHER[q]()
    found = kl(a, b).item()
    if a.support.is_discrete:
        x = f(np.arange({"Bernoulli": 2.0, "Binomial": 5.0, "Categorical": 3.0}.get(p, 150.0)))
        if not b.support.check(x).all():
            assert found == math.inf
            return
        log_p, log_q = a.log_prob(x), b.log_prob(x)
        assert abs(found - (log_p.exp() * (log_p - log_q)).sum().item()) < 1e-9
        return
    low, high = RANGE.get(p, (-math.inf, math.inf))
    inside = f([max(low, -50.0) + 1e-9, min(high, 50.0) - 1e-9])
    if not b.support.check(inside).all():
        assert found == math.inf
        return

    def integrand(x: float) -> float:
        log_p = a.log_prob(f(x)).item()
        return math.exp(log_p) * (log_p - b.log_prob(f(x)).item()) if log_p > -700 else 0.0

    cuts = [low, *(c for c in (0.3, 1.7) if low < c < high), high]
    expected = sum(integrate.quad(integrand, x, y, limit=100)[0] for x, y in itertools.pairwise(cuts))
    assert abs(found - expected) < 2e-6 * max(1.0, abs(expected))


def test_multivariate_normal_distributions_agree_with_the_general_formula() -> None:
    rng = np.random.default_rng(0)
    factor, diagonal = rng.normal(size=(2, 3, 2)), rng.uniform(0.5, 2, (2, 3))
    locs = rng.normal(size=(2, 3))
    covariances = factor @ np.moveaxis(factor, -1, -2) + np.stack([np.diag(d) for d in diagonal])
    kinds = {
        "low": lambda i: D.LowRankMultivariateNormal(f(locs[i]), f(factor[i]), f(diagonal[i])),
        "full": lambda i: D.MultivariateNormal(f(locs[i]), f(covariances[i])),
        "batch": lambda i: D.MultivariateNormal(f(locs[i]), f(covariances[i])).expand((2,)),
    }
    difference = locs[1] - locs[0]
    inverse = np.linalg.inv(covariances[1])
    expected = 0.5 * (
        np.trace(inverse @ covariances[0])
        + difference @ inverse @ difference
        - 3
        + np.linalg.slogdet(covariances[1])[1]
        - np.linalg.slogdet(covariances[0])[1]
    )
    for p in kinds:
        for q in kinds:
            np.testing.assert_allclose(kl(kinds[p](0), kinds[q](1)).numpy(), expected, rtol=1e-9)


def test_wishart_by_draws() -> None:
    torch.manual_seed(0)
    p, q = D.Wishart(f(4.0), f([[2.0, 0.5], [0.5, 1.0]])), D.Wishart(f(5.0), f([[1.0, 0.2], [0.2, 1.5]]))
    x = p.sample((20_000,))
    terms = p.log_prob(x) - q.log_prob(x)
    assert abs(kl(p, q).item() - terms.mean().item()) < 5 * terms.std().item() / 20_000**0.5
    batch = D.Wishart(f([4.0, 5.0]), torch.eye(2, dtype=torch.float64))
    assert kl(batch, batch).shape == (2,)
    np.testing.assert_allclose(kl(batch, batch).detach().numpy(), 0, atol=1e-12)


def test_edges() -> None:
    assert kl(D.Bernoulli(f([0.0, 1.0, 0.5])), D.Bernoulli(f([0.0, 1.0, 1.0]))).tolist() == [0.0, 0.0, math.inf]
    assert kl(D.Categorical(f([0.0, 1.0])), D.Categorical(f([0.5, 0.5]))).item() == pytest.approx(math.log(2))
    assert kl(D.Categorical(f([0.5, 0.5])), D.Categorical(f([0.0, 1.0]))).item() == math.inf
    assert kl(D.Uniform(f([0.0, 0.0]), f([1.0, 3.0])), D.Uniform(f(0.0), f(2.0))).tolist() == [
        pytest.approx(math.log(2)),
        math.inf,
    ]
    # the same ends are inside
    assert kl(D.ContinuousBernoulli(f(0.3)), D.Uniform(f(0.0), f(1.0))).isfinite()
    alpha = f([0.5, 3.0]).requires_grad_()
    kl(D.Pareto(f(1.0), alpha), D.Exponential(f(2.0)))[1].backward()
    assert alpha.grad[0] == 0 and alpha.grad[1].isfinite()
    with pytest.raises(NotImplementedError, match=r"total_count"):
        kl(D.Binomial(3, f(0.2)), D.Binomial(4, f(0.2)))


def test_wrapped_distributions() -> None:
    p, q = D.Normal(f([0.0, 1.0]), f(1.0)), D.Normal(f(1.0), f([2.0, 3.0]))
    assert torch.equal(kl(D.Independent(p, 1), D.Independent(q, 1)), kl(p, q).sum(-1))
    log_p, log_q = (D.TransformedDistribution(d, [D.ExpTransform()]) for d in (p, q))
    assert torch.equal(kl(log_p, log_q), kl(p, q))
    with pytest.raises(NotImplementedError):
        kl(D.Independent(p, 1), D.Independent(q, 0))
    with pytest.raises(NotImplementedError):
        kl(log_p, D.TransformedDistribution(q, [D.SigmoidTransform()]))


def test_dispatch() -> None:
    class Mine(D.Normal):
        pass

    class Closer(Mine):
        pass

    assert torch.equal(kl(Mine(0.0, 1.0), Closer(1.0, 1.0)), kl(D.Normal(0.0, 1.0), D.Normal(1.0, 1.0)))
    try:
        D.register_kl(Mine, D.Normal)(lambda p, q: "left")
        assert kl(Closer(0.0, 1.0), D.Normal(0.0, 1.0)) == "left"
        D.register_kl(D.Normal, Mine)(lambda p, q: "right")
        with pytest.warns(
            RuntimeWarning, match=r"Ambiguous kl_divergence\(Mine, Mine\)\. Please register_kl\(Mine, Mine\)"
        ):
            assert kl(Mine(0.0, 1.0), Mine(0.0, 1.0)) == "left"
        D.register_kl(Mine, Mine)(lambda p, q: "both")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert kl(Closer(0.0, 1.0), Mine(0.0, 1.0)) == "both"
    finally:
        for pair in ((Mine, D.Normal), (D.Normal, Mine), (Mine, Mine)):
            _KL_REGISTRY.pop(pair, None)
        D.kl._KL_MEMOIZE.clear()
    with pytest.raises(NotImplementedError, match=r"p type Normal and q type StudentT"):
        kl(D.Normal(0.0, 1.0), D.StudentT(1.0))
    for wrong in ((3, D.Normal), (D.Normal, 5)):
        with pytest.raises(TypeError, match="class"):
            D.register_kl(*wrong)


def test_gradients_flow_to_both() -> None:
    values = [f(0.3).requires_grad_(), f(1.2).requires_grad_(), f(-0.5).requires_grad_(), f(2.0).requires_grad_()]
    for q in (D.Normal, D.Gumbel, D.Laplace):
        assert torch.autograd.gradcheck(lambda a, b, c, d, q=q: kl(D.Normal(a, b), q(c, d)), values)
    shape = [f(1.3).requires_grad_(), f(1.2).requires_grad_(), f(2.5).requires_grad_(), f(2.0).requires_grad_()]
    for p, q in ((D.Gamma, D.Gamma), (D.Beta, D.Gamma), (D.Gamma, D.Normal), (D.Beta, D.Beta)):
        assert torch.autograd.gradcheck(lambda a, b, c, d, p=p, q=q: kl(p(a, b), q(c, d)), shape)
    df = f(4.0).requires_grad_()
    wishart = lambda a: kl(
        D.Wishart(a, torch.eye(2, dtype=torch.float64)), D.Wishart(f(3.0), 2 * torch.eye(2, dtype=torch.float64))
    )
    assert torch.autograd.gradcheck(wishart, [df])
