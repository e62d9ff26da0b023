"""One-hot vectors made continuous, so that draws can be differentiated."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.by_categories import ByCategories
from rushlight.distributions.distribution import parametric
from rushlight.distributions.transformed_distribution import TransformedDistribution
from rushlight.distributions.transforms import ExpTransform
from rushlight.distributions.utils import broadcast_all, clamp_probs

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


@parametric
class ExpRelaxedCategorical(ByCategories):
    """The logarithm of a relaxed one-hot vector (Maddison et al., arXiv:1611.00712, section C; Jang et al.,
    arXiv:1611.01144).
    """

    support = constraints.real_vector  # its exponentials have the sum 1, which no constraint expresses
    has_rsample = True
    _kept = ("temperature",)

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.temperature = temperature
        super().__init__(probs, logits, validate_args)

    def rsample(self, sample_shape: Any = Size()) -> Any:
        # the logits with Gumbel noise; without the temperature the largest would be the drawn category
        shape = self._extended_shape(sample_shape)
        u = clamp_probs(rushlight.rand(shape, dtype=self.logits.dtype, device=self.logits.device))
        scores = (self.logits + -(-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(dim=-1, keepdim=True)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        n = self._categorical._num_events
        logits, value = broadcast_all(self.logits, value)
        t = rushlight.as_tensor(self.temperature, dtype=logits.dtype, device=logits.device)
        scale = t.log() * (n - 1)
        score = logits - value.mul(t)
        return (score - score.logsumexp(dim=-1, keepdim=True)).sum(-1) + scale + math.lgamma(n)


@parametric
class RelaxedOneHotCategorical(TransformedDistribution):
    """Positive numbers with the sum 1, close to a one-hot vector for a low `temperature`, with the chances of a
    categorical one.

    >>> import rushlight as torch
    >>> torch.distributions.RelaxedOneHotCategorical(torch.tensor(0.5), probs=torch.tensor([1.0, 3.0])).probs
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(
            ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args),
            ExpTransform(),
            validate_args=validate_args,
        )

    @property
    def temperature(self) -> Any:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Any:
        """Log probabilities."""
        return self.base_dist.logits

    @property
    def probs(self) -> Any:
        """Probabilities."""
        return self.base_dist.probs
