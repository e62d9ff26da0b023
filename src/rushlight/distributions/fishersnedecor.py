"""The F distribution."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution, parametric
from rushlight.distributions.gamma import Gamma
from rushlight.distributions.utils import lazy_property

__all__ = ["FisherSnedecor"]


@parametric
class FisherSnedecor(Distribution):
    """The F distribution: the quotient of two chi-squared numbers, each divided by its degrees of freedom `df1`, `df2`.

    >>> import rushlight as torch
    >>> torch.distributions.FisherSnedecor(1.0, 4.0).mean
    tensor(2.)
    """

    df1: Any
    df2: Any

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, df1=df1, df2=df2)

    @lazy_property
    def _gamma1(self) -> Any:
        return Gamma(self.df1 * 0.5, self.df1, validate_args=False)

    @lazy_property
    def _gamma2(self) -> Any:
        return Gamma(self.df2 * 0.5, self.df2, validate_args=False)

    @property
    def mean(self) -> Any:
        return (self.df2 / (self.df2 - 2)).masked_fill(self.df2 <= 2, math.nan)

    @property
    def mode(self) -> Any:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return mode.masked_fill(self.df1 <= 2, math.nan)

    @property
    def variance(self) -> Any:
        df1, df2 = self.df1, self.df2.masked_fill(self.df2 <= 4, math.nan)
        return 2 * df2.pow(2) * (df1 + df2 - 2) / (df1 * (df2 - 2).pow(2) * (df2 - 4))

    def rsample(self, sample_shape: Any = Size()) -> Any:
        above, below = self._gamma1.rsample(sample_shape), self._gamma2.rsample(sample_shape)
        tiny = rushlight.finfo(below.dtype).tiny
        below.detach().clamp_(min=tiny)
        quotient = above / below
        quotient.detach().clamp_(min=tiny)
        return quotient

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        half1, half2, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        normalizer = (half1 + half2).lgamma() - half1.lgamma() - half2.lgamma()
        return normalizer + half1 * ratio.log() + (half1 - 1) * value.log() - (half1 + half2) * (ratio * value).log1p()
