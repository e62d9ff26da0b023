"""The normal distribution."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions.distribution import parametric
from rushlight.distributions.exp_family import ExponentialFamily
from rushlight.distributions.location_scale import LocationScale
from rushlight.distributions.utils import standard_normal

__all__ = ["Normal"]


@parametric
class Normal(LocationScale, ExponentialFamily):
    """The normal (Gaussian) distribution with mean `loc` and standard deviation `scale`.

    >>> import rushlight as torch
    >>> torch.distributions.Normal(0.0, 1.0).cdf(torch.tensor(0.0))
    tensor(0.5000)
    """

    _mean_carrier_measure: Any = 0

    @property
    def stddev(self) -> Any:
        return self.scale

    @property
    def variance(self) -> Any:
        return self.stddev.pow(2)

    def sample(self, sample_shape: Any = Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        with rushlight.no_grad():
            if self._validate_args:  # the scale is known to be positive: the same numbers, without looking again
                return standard_normal(shape, self.loc.dtype, self.loc.device).mul_(self.scale).add_(self.loc)
            return rushlight.normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape: Any = Size()) -> Any:
        noise = standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + noise * self.scale

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return -((value - self.loc) ** 2) / (2 * self.scale**2) - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return 0.5 * (1 + rushlight.erf((value - self.loc) * self.scale.reciprocal() / math.sqrt(2)))

    def icdf(self, value: Any) -> Any:
        return self.loc + self.scale * rushlight.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Any:
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return self.loc / self.scale.pow(2), -0.5 * self.scale.pow(2).reciprocal()

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return -0.25 * x.pow(2) / y + 0.5 * (-math.pi / y).log()
