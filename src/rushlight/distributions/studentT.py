"""Student's t distribution."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.chi2 import Chi2
from rushlight.distributions.distribution import Distribution, parametric
from rushlight.distributions.utils import lazy_property, standard_normal

__all__ = ["StudentT"]


@parametric
class StudentT(Distribution):
    """Student's t distribution with `df` degrees of freedom, shifted by `loc` and scaled by `scale`; draws are
    differentiable.

    >>> import rushlight as torch
    >>> torch.distributions.StudentT(4.0).variance
    tensor(2.)
    """

    df: Any
    loc: Any
    scale: Any

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, df=df, loc=loc, scale=scale)

    @lazy_property
    def _chi2(self) -> Any:
        return Chi2(self.df, validate_args=False)

    @property
    def mean(self) -> Any:
        return self.loc.masked_fill(self.df <= 1, math.nan)

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        finite = self.scale.pow(2) * self.df / (self.df - 2)
        return finite.masked_fill(self.df <= 2, math.inf).masked_fill(self.df <= 1, math.nan)

    def rsample(self, sample_shape: Any = Size()) -> Any:
        # a normal number divided by the root of an independent chi-squared one over its degrees of freedom
        noise = standard_normal(self._extended_shape(sample_shape), self.df.dtype, self.df.device)
        spread = self._chi2.rsample(sample_shape)
        return self.loc + self.scale * (noise * rushlight.rsqrt(spread / self.df))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        y, df = (value - self.loc) / self.scale, self.df
        normalizer = self.scale.log() + 0.5 * (df * math.pi).log() + (0.5 * df).lgamma() - (0.5 * (df + 1.0)).lgamma()
        return -0.5 * (df + 1.0) * (y**2.0 / df).log1p() - normalizer

    def entropy(self) -> Any:
        half, above = 0.5 * self.df, 0.5 * (self.df + 1)
        log_beta = half.lgamma() + math.lgamma(0.5) - above.lgamma()
        return self.scale.log() + above * (above.digamma() - half.digamma()) + 0.5 * self.df.log() + log_beta
