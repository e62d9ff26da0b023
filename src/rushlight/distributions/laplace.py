"""The Laplace distribution."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions.distribution import parametric
from rushlight.distributions.location_scale import LocationScale

__all__ = ["Laplace"]


@parametric
class Laplace(LocationScale):
    """The Laplace distribution: an exponential distribution to both sides of `loc`.

    >>> import rushlight as torch
    >>> torch.distributions.Laplace(1.0, 2.0).variance
    tensor(8.)
    """

    @property
    def variance(self) -> Any:
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Any:
        return (2**0.5) * self.scale

    def rsample(self, sample_shape: Any = Size()) -> Any:
        # uniform in (-1, 1): its sign chooses the side, its distance from 0 the place
        eps = rushlight.finfo(self.loc.dtype).eps
        u = self.loc.new_empty(self._extended_shape(sample_shape)).uniform_(eps - 1, 1)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        away = value - self.loc
        return 0.5 - 0.5 * away.sign() * (-away.abs() / self.scale).expm1()

    def icdf(self, value: Any) -> Any:
        part = value - 0.5
        return self.loc - self.scale * part.sign() * (-2 * part.abs()).log1p()

    def entropy(self) -> Any:
        return 1 + math.log(2) + self.scale.log()
