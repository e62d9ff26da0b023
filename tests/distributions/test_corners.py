"""Where numbers vanish or slopes jump."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch
from rushlight.distributions import Beta, Binomial, Dirichlet


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_of_tiny_concentrations_share_alike(dtype: Any) -> None:
    """All gamma numbers underflow, and none of the shares is NaN."""
    tiny = torch.full((3,), 1e-7, dtype=dtype)
    assert torch.allclose(Dirichlet(tiny).sample((4,)), torch.full((4, 3), 1 / 3, dtype=dtype))
    assert Beta(tiny, tiny).sample().tolist() == [0.5, 0.5, 0.5]


def test_slope_of_a_binomial_at_even_odds() -> None:
    for value, slope in ((0.0, -1.5), (1.0, -0.5), (3.0, 1.5)):
        logits = torch.tensor(0.0, requires_grad=True)
        Binomial(3, logits=logits).log_prob(torch.tensor(value)).backward()
        assert logits.grad.item() == slope


@pytest.mark.parametrize("logit", [1e38, 200.0, 89.0])
def test_continuous_bernoulli_with_logits_whose_probabilities_round_to_0_or_1(logit: float) -> None:
    for sign in (1.0, -1.0):
        p = torch.tensor([sign * logit], requires_grad=True)
        made = torch.distributions.ContinuousBernoulli(logits=p)
        likely, rare = made.log_prob(torch.tensor([sign > 0]).float()), made.log_prob(torch.tensor([sign < 0]).float())
        assert abs(likely.item() - 2.7689815) < 1e-5 and abs(rare.item() + logit - likely.item()) < 1e-5 * logit
        rare.sum().backward()
        assert p.grad.tolist() == [-sign]
        assert abs(made.mean.item() - (0.5 + sign * 0.4372742)) < 1e-5
