"""The gamma distribution."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.distribution import parametric
from rushlight.distributions.exp_family import ExponentialFamily

__all__ = ["Gamma"]


def _standard_gamma(concentration: Any) -> Any:
    return rushlight._standard_gamma(concentration)


@parametric
class Gamma(ExponentialFamily):
    """The gamma distribution of shape `concentration` and `rate`; draws are differentiable in both.

    >>> import rushlight as torch
    >>> torch.distributions.Gamma(3.0, 2.0).mean
    tensor(1.5000)
    """

    concentration: Any
    rate: Any

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure: Any = 0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> Any:
        return self.concentration / self.rate

    @property
    def mode(self) -> Any:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Any:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Any = Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        value = _standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        value.detach().clamp_(min=rushlight.finfo(value.dtype).tiny)  # 0 would have no logarithm
        return value

    def log_prob(self, value: Any) -> Any:
        value = rushlight.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        if self._validate_args:
            self._validate_sample(value)
        shape, rate = self.concentration, self.rate
        return rushlight.xlogy(shape, rate) + rushlight.xlogy(shape - 1, value) - rate * value - shape.lgamma()

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return rushlight.special.gammainc(self.concentration, self.rate * value)

    def entropy(self) -> Any:
        shape = self.concentration
        return shape - self.rate.log() + shape.lgamma() + (1.0 - shape) * shape.digamma()

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return (x + 1).lgamma() + (x + 1) * (-y.reciprocal()).log()
