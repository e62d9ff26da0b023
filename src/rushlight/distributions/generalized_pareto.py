"""The generalized Pareto distribution."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution, parametric

__all__ = ["GeneralizedPareto"]


@parametric
class GeneralizedPareto(Distribution):
    """The generalized Pareto distribution: exceedances over `loc`, with tails as heavy as `concentration` says.

    The survival function is (1 + c z)^(-1/c) with z = (x - loc) / scale; for c = 0 it is exp(-z) (Coles, "An
    Introduction to Statistical Modeling of Extreme Values", section 4.2).

        >>> import rushlight as torch
        >>> torch.distributions.GeneralizedPareto(0.0, 1.0, 0.5).mean
        tensor(2.)
    """

    loc: Any
    scale: Any
    concentration: Any

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        end = rushlight.where(
            self.concentration < 0, self.loc - self.scale / self.concentration, self.loc.new_tensor(math.inf)
        )
        return constraints.interval(self.loc, end)

    def _split(self) -> tuple[Any, Any]:
        """(where the concentration counts as 0, the concentration with 1 in these places)."""
        near = rushlight.isclose(self.concentration, rushlight.zeros_like(self.concentration))
        return near, rushlight.where(near, rushlight.ones_like(self.concentration), self.concentration)

    @property
    def mean(self) -> Any:
        c = self.concentration
        return (self.loc + self.scale / (1 - c)).masked_fill(c >= 1, math.nan)

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        c = self.concentration
        return (self.scale.pow(2) / ((1 - c) ** 2 * (1 - 2 * c))).masked_fill(c >= 0.5, math.nan)

    def rsample(self, sample_shape: Any = Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.icdf(rushlight.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        near, c = self._split()
        z = (value - self.loc) / self.scale
        return rushlight.where(near, -z, -(1 + 1 / c) * (c * z).log1p()) - self.scale.log()

    def log_survival_function(self, value: Any) -> Any:
        """The logarithm of the probability of more than `value`."""
        if self._validate_args:
            self._validate_sample(value)
        near, c = self._split()
        z = (value - self.loc) / self.scale
        return rushlight.where(near, -z, -(c * z).log1p() / c)

    def log_cdf(self, value: Any) -> Any:
        """The logarithm of `cdf`."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Any) -> Any:
        return self.log_cdf(value).exp()

    def icdf(self, value: Any) -> Any:
        near, c = self._split()
        log_rest = (-value).log1p()
        return self.loc + self.scale * rushlight.where(near, -log_rest, (-c * log_rest).expm1() / c)

    def entropy(self) -> Any:
        return self.scale.log() + self.concentration + 1
