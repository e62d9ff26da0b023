"""Small programs: wrapped, mixed, broadcast and expanded distributions, with PyTorch's numbers for the seed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import rushlight  # noqa: E402

pytestmark = pytest.mark.oracle


PROGRAMS = {
    "icdf ind": lambda t, D: D.Independent(D.Normal(t.zeros(2), 1.0), 1).icdf(t.rand(2)),
    "cdf tr": lambda t, D: D.TransformedDistribution(
        D.Normal(t.zeros(2), 1.0), [D.AffineTransform(t.tensor([1.0, 2.0]), t.tensor([-1.0, 2.0]))]
    ).cdf(t.ones(3, 2)),
    "icdf tr": lambda t, D: D.TransformedDistribution(
        D.Normal(t.zeros(2), 1.0), [D.AffineTransform(t.tensor([1.0, 2.0]), t.tensor([-1.0, 2.0]))]
    ).icdf(t.rand(3, 2)),
    "tr expand by transform": lambda t, D: D.TransformedDistribution(
        D.Normal(0.0, 1.0), [D.AffineTransform(t.zeros(3), 1.0)]
    ).sample((2,)),
    "tr ind reinterpret": lambda t, D: (
        D.TransformedDistribution(D.Normal(t.zeros(4, 3), 1.0), [D.StickBreakingTransform()])
        .expand((2, 4))
        .sample((5,))
    ),
    "tr reshape": lambda t, D: D.TransformedDistribution(
        D.Normal(t.zeros(4, 6), 1.0), [D.ReshapeTransform((6,), (2, 3))]
    ).log_prob(t.ones(5, 4, 2, 3)),
    "tr event": lambda t, D: str(
        D.TransformedDistribution(
            D.Normal(t.zeros(4, 6), 1.0), [D.ReshapeTransform((6,), (2, 3)), D.AffineTransform(0.0, 2.0)]
        ).event_shape
    ),
    "tr on mvn": lambda t, D: D.TransformedDistribution(
        D.MultivariateNormal(t.zeros(2), t.eye(2)), [D.ExpTransform()]
    ).log_prob(t.ones(3, 2)),
    "tr cat": lambda t, D: D.TransformedDistribution(
        D.Normal(t.zeros(3), 1.0), [D.CatTransform([D.ExpTransform(), D.SigmoidTransform()], dim=-1, lengths=[1, 2])]
    ).log_prob(t.ones(4, 3) * 0.4),
    "tr empty": lambda t, D: D.TransformedDistribution(D.Normal(t.zeros(3), 1.0), []).log_prob(t.ones(4, 3)),
    "lkj on tr": lambda t, D: D.TransformedDistribution(D.Normal(t.zeros(3), 1.0), [D.CorrCholeskyTransform()]).sample(
        (2,)
    ),
    "mix ind": lambda t, D: D.MixtureSameFamily(
        D.Categorical(t.ones(4, 5)), D.Independent(D.Gamma(t.ones(4, 5, 2), 1.0), 1)
    ).sample((3,)),
    "mix lp": lambda t, D: D.MixtureSameFamily(
        D.Categorical(t.ones(5)), D.Independent(D.Gamma(t.ones(4, 5, 2), 1.0), 1)
    ).log_prob(t.ones(3, 4, 2)),
    "mix disc": lambda t, D: D.MixtureSameFamily(
        D.Categorical(t.ones(3)), D.Poisson(t.tensor([1.0, 2.0, 3.0]))
    ).log_prob(t.tensor([1.0, 2.0])),
    "mix var": lambda t, D: (
        D.MixtureSameFamily(D.Categorical(t.ones(3)), D.Poisson(t.tensor([1.0, 2.0, 3.0]))).variance
    ),
    "mvn batch": lambda t, D: D.MultivariateNormal(t.zeros(3, 1, 2), scale_tril=t.eye(2).expand(4, 2, 2)).sample((2,)),
    "mvn lp": lambda t, D: D.MultivariateNormal(t.zeros(3, 1, 2), scale_tril=(t.eye(2) * 2).expand(4, 2, 2)).log_prob(
        t.ones(5, 3, 4, 2)
    ),
    "mvn lp2": lambda t, D: D.MultivariateNormal(t.zeros(3, 4, 2), scale_tril=(t.eye(2) * 2)).log_prob(
        t.ones(5, 1, 1, 2)
    ),
    "mvn lp3": lambda t, D: D.MultivariateNormal(
        t.zeros(2), scale_tril=(t.eye(2) * t.arange(1.0, 5).view(4, 1, 1))
    ).log_prob(t.ones(5, 1, 2)),
    "mvn lp4": lambda t, D: D.MultivariateNormal(
        t.zeros(2), scale_tril=(t.eye(2) * t.arange(1.0, 5).view(4, 1, 1))
    ).log_prob(t.ones(2)),
    "mvn kl": lambda t, D: D.kl_divergence(
        D.MultivariateNormal(t.zeros(3, 1, 2), t.eye(2)), D.MultivariateNormal(t.ones(2), t.eye(2).expand(4, 2, 2) * 2)
    ),
    "low lp": lambda t, D: D.LowRankMultivariateNormal(t.zeros(2), t.ones(4, 2, 1), t.ones(2)).log_prob(
        t.ones(5, 1, 2)
    ),
    "low kl": lambda t, D: D.kl_divergence(
        D.LowRankMultivariateNormal(t.zeros(2), t.ones(4, 2, 1), t.ones(2)),
        D.MultivariateNormal(t.ones(3, 1, 2), t.eye(2)),
    ),
    "wish b": lambda t, D: D.Wishart(t.tensor([3.0, 4.0]), t.eye(2).expand(3, 1, 2, 2)).sample((2,)),
    "wish kl": lambda t, D: D.kl_divergence(D.Wishart(t.tensor(3.0), t.eye(2)), D.Wishart(t.tensor(4.0), t.eye(2) * 2)),
    "wish ent": lambda t, D: D.Wishart(t.tensor([3.0, 4.0]), t.eye(2)).entropy(),
    "cat bc": lambda t, D: D.Categorical(t.ones(4, 3)).log_prob(t.zeros(5, 4).long()),
    "cat 0": lambda t, D: D.Categorical(t.ones(0, 3)).sample((2,)),
    "cat int": lambda t, D: D.Categorical(t.ones(3)).log_prob(t.tensor(1.0)),
    "ohc bc": lambda t, D: D.OneHotCategorical(t.ones(4, 3)).sample((2, 3)),
    "multi big": lambda t, D: D.Multinomial(50, t.ones(2, 4)).sample((3,)),
    "multi lp nonv": lambda t, D: D.Multinomial(50, t.ones(2, 4), validate_args=False).log_prob(t.ones(2, 4)),
    "binom tensor": lambda t, D: D.Binomial(t.tensor([[4.0], [10.0]]), t.tensor([0.2, 0.5, 0.9])).sample((3,)),
    "binom enum": lambda t, D: D.Binomial(3, t.tensor([0.2, 0.5, 0.9])).enumerate_support(),
    "nb": lambda t, D: D.NegativeBinomial(t.tensor([[4.0], [10.0]]), logits=t.tensor([0.2, 0.5, 0.9])).sample((3,)),
    "vm": lambda t, D: D.VonMises(t.zeros(2, 1), t.tensor([1e-6, 1.0, 1e4])).sample((20,)),
    "beta": lambda t, D: D.Beta(t.ones(2, 1), t.tensor([1e-2, 1.0, 1e4])).sample((20,)),
    "half": lambda t, D: D.Normal(t.zeros(3).half(), 1.0).log_prob(t.ones(3).half()),
    "bf": lambda t, D: D.Bernoulli(logits=t.zeros(3).bfloat16()).log_prob(t.ones(3).bfloat16()).float(),
    "expo double num": lambda t, D: D.Exponential(t.tensor(2.0, dtype=t.float64)).sample((3,)),
    "ints": lambda t, D: D.Normal(0, 1).sample((2,)),
    "tensor int": lambda t, D: D.Normal(t.tensor([0, 1]), t.tensor([1, 2])).log_prob(t.tensor([1.0, 2.0])),
    "perplexity": lambda t, D: D.Categorical(t.tensor([0.1, 0.9])).perplexity(),
    "sample_shape list": lambda t, D: D.Normal(0.0, 1.0).sample([2, 3]),
    "ind expand": lambda t, D: D.Independent(D.Normal(t.zeros(2, 3), 1.0), 1).expand((4, 2)).sample(),
    "hetero": lambda t, D: D.Uniform(t.tensor([0.0, 1.0]), t.tensor([[2.0], [3.0]])).rsample((2,)),
    "lazy no grad": lambda t, D: (lambda p: (lambda d: d.logits.requires_grad)(D.Bernoulli(p)))(
        t.tensor([0.3], requires_grad=True)
    ),
    "relaxed expand": lambda t, D: D.RelaxedOneHotCategorical(t.tensor([2.0]), t.ones(3)).expand((4,)).sample((2,)),
    "relaxed lp": lambda t, D: D.RelaxedBernoulli(t.tensor([2.0]), t.tensor([0.1, 0.5])).log_prob(
        t.tensor([[0.3], [0.4]])
    ),
    "gumbel rs": lambda t, D: D.Gumbel(t.zeros(3), 2.0).expand((2, 3)).rsample((2,)),
    "weibull exp": lambda t, D: D.Weibull(t.ones(3), 2.0).expand((2, 3)).rsample((2,)),
    "kuma": lambda t, D: D.Kumaraswamy(t.ones(3), 2.0).expand((2, 3)).cdf(t.full((2, 3), 0.4)),
    "pareto": lambda t, D: D.Pareto(t.ones(3), 2.0).expand((2, 3)).icdf(t.full((2, 3), 0.4)),
    "invgamma": lambda t, D: D.InverseGamma(t.ones(3), 2.0).expand((2, 3)).cdf(t.full((2, 3), 0.4)),
    "lognormal": lambda t, D: D.LogNormal(t.ones(3), 2.0).expand((2, 3)).cdf(t.full((2, 3), 0.4)),
    "logistic": lambda t, D: D.LogisticNormal(t.zeros(2, 3), 1.0).log_prob(t.full((2, 4), 0.25)),
    "logistic scalar": lambda t, D: D.LogisticNormal(0.0, 1.0).sample(),
    "gpd": lambda t, D: D.GeneralizedPareto(t.zeros(3), 1.0, 0.1).expand((2, 3)).cdf(t.full((2, 3), 0.4)),
}


def outcome(t: Any, program: Any) -> Any:
    """The result, or the class of what was raised."""
    t.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return program(t, t.distributions)
        except Exception as error:
            return type(error).__name__


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    theirs, mine = (outcome(t, PROGRAMS[name]) for t in (torch, rushlight))
    if not hasattr(theirs, "numpy") or not hasattr(mine, "numpy"):
        assert theirs == mine
        return
    a, b = theirs.detach().numpy(), mine.detach().numpy()
    assert a.dtype == b.dtype and a.shape == b.shape
    np.testing.assert_allclose(b, a, rtol=2e-4, atol=1e-5)
