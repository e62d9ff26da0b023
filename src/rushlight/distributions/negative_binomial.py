"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.binomial import trials_and_chances
from rushlight.distributions.distribution import ProbsOrLogits, parametric
from rushlight.distributions.gamma import Gamma
from rushlight.distributions.utils import lazy_property
from rushlight.nn.functional import logsigmoid

__all__ = ["NegativeBinomial"]


@parametric
class NegativeBinomial(ProbsOrLogits):
    """The number of successes, each trial with `probs` (log odds `logits`), before `total_count` failures.

    `total_count` may be any number >= 0.

        >>> import rushlight as torch
        >>> torch.distributions.NegativeBinomial(3, torch.tensor([0.5])).mean
        tensor([3.])
    """

    total_count: Any

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        given = self._take(probs, logits)
        count, chance = trials_and_chances(total_count, logits if probs is None else probs)
        self._broadcast(validate_args, **{given: chance, "total_count": count})

    @property
    def mean(self) -> Any:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Any:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Any:
        return self.mean / (-self.logits).sigmoid()

    @lazy_property
    def _gamma(self) -> Any:
        return Gamma(self.total_count, (-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape: Any = Size()) -> Any:
        # a Poisson number whose rate is a gamma number
        with rushlight.no_grad():
            return rushlight.poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        n, x = self.total_count, self.logits
        choices = (n + value).lgamma() - (value + 1.0).lgamma() - n.lgamma()
        choices = choices.masked_fill(n + value == 0.0, 0.0)
        return n * logsigmoid(-x) + value * logsigmoid(x) + choices
