"""The half-Normal distribution."""

from __future__ import annotations

import math
from typing import Any

from rushlight.distributions.distribution import parametric
from rushlight.distributions.folded import Folded
from rushlight.distributions.normal import Normal

__all__ = ["HalfNormal"]


@parametric
class HalfNormal(Folded):
    """The distribution of |x|, x normal around 0 with standard deviation `scale`.

    >>> import rushlight as torch
    >>> torch.distributions.HalfNormal(1.0).mean
    tensor(0.7979)
    """

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Any:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Any:
        return self.scale.pow(2) * (1 - 2 / math.pi)
