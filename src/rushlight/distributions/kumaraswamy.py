"""The Kumaraswamy distribution."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight.distributions import constraints
from rushlight.distributions.distribution import parametric
from rushlight.distributions.transformed_distribution import TransformedDistribution
from rushlight.distributions.transforms import AffineTransform, PowerTransform
from rushlight.distributions.uniform import Uniform
from rushlight.distributions.utils import broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


@parametric
class Kumaraswamy(TransformedDistribution):
    """The Kumaraswamy distribution on (0, 1): P(X > x) = (1 - x ** concentration1) ** concentration0.

    >>> import rushlight as torch
    >>> torch.distributions.Kumaraswamy(1.0, 1.0).variance
    tensor(0.0833)
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        zero = rushlight.full_like(self.concentration0, 0)
        one = rushlight.full_like(self.concentration0, 1)
        transforms = [
            PowerTransform(exponent=self.concentration0.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(exponent=self.concentration1.reciprocal()),
        ]
        super().__init__(Uniform(zero, one, validate_args=validate_args), transforms, validate_args=validate_args)

    def _moment(self, n: int) -> Any:
        """The mean of x ** n: b B(1 + n / a, b)."""
        a, b = self.concentration1, self.concentration0
        first = 1 + n / a
        return b * (first.lgamma() + b.lgamma() - (first + b).lgamma()).exp()

    @property
    def mean(self) -> Any:
        return self._moment(1)

    @property
    def mode(self) -> Any:
        """((a - 1) / (a b - 1)) ** (1 / a); NaN where a concentration is below 1, or both are 1."""
        a, b = self.concentration1, self.concentration0
        mode = ((a - 1) / (a * b - 1)) ** a.reciprocal()
        return mode.masked_fill((a < 1) | (b < 1), math.nan)

    @property
    def variance(self) -> Any:
        return self._moment(2) - self._moment(1).pow(2)

    def entropy(self) -> Any:
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + euler_constant
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - a.log() - b.log()
