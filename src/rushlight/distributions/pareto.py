"""The Pareto distribution."""

from __future__ import annotations

import math
from typing import Any

from rushlight.distributions import constraints
from rushlight.distributions.distribution import parametric
from rushlight.distributions.exponential import Exponential
from rushlight.distributions.transformed_distribution import TransformedDistribution
from rushlight.distributions.transforms import AffineTransform, ExpTransform
from rushlight.distributions.utils import broadcast_all

__all__ = ["Pareto"]


@parametric
class Pareto(TransformedDistribution):
    """The Pareto distribution (type 1): P(X > x) = (scale / x) ** alpha for x >= scale.

    >>> import rushlight as torch
    >>> torch.distributions.Pareto(1.0, 3.0).mean
    tensor(1.5000)
    """

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        transforms = [ExpTransform(), AffineTransform(loc=0, scale=self.scale)]
        super().__init__(Exponential(self.alpha, validate_args=validate_args), transforms, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Any:
        return (self.alpha * self.scale / (self.alpha - 1)).masked_fill(self.alpha <= 1, math.inf)

    @property
    def mode(self) -> Any:
        return self.scale

    @property
    def variance(self) -> Any:
        a = self.alpha
        return (self.scale.pow(2) * a / ((a - 1).pow(2) * (a - 2))).masked_fill(a <= 2, math.inf)

    def entropy(self) -> Any:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())
