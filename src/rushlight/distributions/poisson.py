"""The Poisson distribution."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.distribution import parametric
from rushlight.distributions.exp_family import ExponentialFamily

__all__ = ["Poisson"]


@parametric
class Poisson(ExponentialFamily):
    """The Poisson distribution: the number of events where `rate` are expected.

    >>> import rushlight as torch
    >>> torch.distributions.Poisson(4.0).variance
    tensor(4.)
    """

    rate: Any

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, rate=rate)

    @property
    def mean(self) -> Any:
        return self.rate

    @property
    def mode(self) -> Any:
        return self.rate.floor()

    @property
    def variance(self) -> Any:
        return self.rate

    def sample(self, sample_shape: Any = Size()) -> Any:
        with rushlight.no_grad():
            return rushlight.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        if not isinstance(value, rushlight.Tensor):
            value = rushlight.full_like(self.rate, value)
        return rushlight.xlogy(value, self.rate) - self.rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.rate.log(),)

    def _log_normalizer(self, x: Any) -> Any:
        return x.exp()
