"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight.distributions.cauchy import Cauchy
from rushlight.distributions.distribution import parametric
from rushlight.distributions.folded import Folded

__all__ = ["HalfCauchy"]


@parametric
class HalfCauchy(Folded):
    """The distribution of |x|, x from a Cauchy distribution around 0 with the width `scale`.

    >>> import rushlight as torch
    >>> torch.distributions.HalfCauchy(2.0).icdf(torch.tensor(0.5))
    tensor(2.)
    """

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Any:
        return rushlight.full_like(self.scale, math.inf)

    @property
    def variance(self) -> Any:
        return self.base_dist.variance

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self._log_density(rushlight.as_tensor(value, dtype=self.scale.dtype, device=self.scale.device))
