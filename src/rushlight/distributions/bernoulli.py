"""The Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.distribution import ProbsOrLogits, parametric
from rushlight.distributions.exp_family import ExponentialFamily
from rushlight.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Bernoulli"]


def cross_entropy(logits: Any, value: Any) -> Any:
    """-log p(value) for the odds exp(logits) of a 1, over the broadcast shape."""
    if not isinstance(value, rushlight.Tensor):
        value = rushlight.full_like(logits, value)
    logits, value = rushlight.broadcast_tensors(logits, value)
    return binary_cross_entropy_with_logits(logits, value, reduction="none")


@parametric
class Bernoulli(ProbsOrLogits, ExponentialFamily):
    """1 with the probability `probs`, else 0; parametrised by `probs` or by log odds, `logits`.

    >>> import rushlight as torch
    >>> torch.distributions.Bernoulli(torch.tensor([0.25])).variance
    tensor([0.1875])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure: Any = 0

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        given = self._take(probs, logits)
        self._broadcast(validate_args, **{given: logits if probs is None else probs})

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        """The likelier value; NaN where both are equally likely."""
        return (self.probs >= 0.5).to(self.probs).masked_fill(self.probs == 0.5, math.nan)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = Size()) -> Any:
        with rushlight.no_grad():
            return rushlight.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return -cross_entropy(self.logits, value)

    def entropy(self) -> Any:
        return cross_entropy(self.logits, self.probs)

    def enumerate_support(self, expand: bool = True) -> Any:
        values = rushlight.arange(2, dtype=self._param.dtype, device=self._param.device)
        values = values.view(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (rushlight.logit(self.probs),)

    def _log_normalizer(self, x: Any) -> Any:
        return x.exp().log1p()
