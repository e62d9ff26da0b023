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
