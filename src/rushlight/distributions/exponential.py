"""The exponential distribution."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.distribution import parametric
from rushlight.distributions.exp_family import ExponentialFamily

__all__ = ["Exponential"]


@parametric
class Exponential(ExponentialFamily):
    """The exponential distribution: waiting times between events that come with `rate`.

    >>> import rushlight as torch
    >>> torch.distributions.Exponential(torch.tensor([2.0])).mean
    tensor([0.5000])
    """

    rate: Any

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure: Any = 0

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, rate=rate)

    @property
    def mean(self) -> Any:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Any:
        return rushlight.zeros_like(self.rate)

    @property
    def stddev(self) -> Any:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Any:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Any = Size()) -> Any:
        return self.rate.new_empty(self._extended_shape(sample_shape)).exponential_() / self.rate

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return 1 - (-self.rate * value).exp()

    def icdf(self, value: Any) -> Any:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Any:
        return 1 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (-self.rate,)

    def _log_normalizer(self, x: Any) -> Any:
        return -(-x).log()
