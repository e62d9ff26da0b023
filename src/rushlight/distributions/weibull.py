"""The Weibull distribution."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.distributions import constraints
from rushlight.distributions.distribution import parametric
from rushlight.distributions.exponential import Exponential
from rushlight.distributions.transformed_distribution import TransformedDistribution
from rushlight.distributions.transforms import AffineTransform, PowerTransform
from rushlight.distributions.utils import broadcast_all, euler_constant

__all__ = ["Weibull"]


@parametric
class Weibull(TransformedDistribution):
    """The Weibull distribution: P(X > x) = exp(-(x / scale) ** concentration).

    >>> import rushlight as torch
    >>> torch.distributions.Weibull(2.0, 1.0).mean
    tensor(2.)
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(rushlight.ones_like(self.scale), validate_args=validate_args)
        transforms = [PowerTransform(exponent=self.concentration_reciprocal), AffineTransform(loc=0, scale=self.scale)]
        super().__init__(base, transforms, validate_args=validate_args)

    @property
    def concentration_reciprocal(self) -> Any:
        """1 / concentration."""
        return self.concentration.reciprocal()

    def _moment(self, n: int) -> Any:
        """The mean of (x / scale) ** n."""
        return (1 + n * self.concentration_reciprocal).lgamma().exp()

    @property
    def mean(self) -> Any:
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Any:
        return self.scale * ((self.concentration - 1) / self.concentration) ** self.concentration.reciprocal()

    @property
    def variance(self) -> Any:
        return self.scale.pow(2) * (self._moment(2) - self._moment(1).square())

    def entropy(self) -> Any:
        return (
            euler_constant * (1 - self.concentration_reciprocal)
            + (self.scale * self.concentration_reciprocal).log()
            + 1
        )
