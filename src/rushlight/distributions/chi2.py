"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from rushlight.distributions import constraints
from rushlight.distributions.distribution import parametric
from rushlight.distributions.gamma import Gamma

__all__ = ["Chi2"]


@parametric
class Chi2(Gamma):
    """The sum of the squares of `df` standard normal numbers: a gamma distribution of shape df / 2 and rate 1 / 2.

    >>> import rushlight as torch
    >>> torch.distributions.Chi2(torch.tensor([3.0])).mean
    tensor([3.])
    """

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Any:
        """Degrees of freedom."""
        return self.concentration * 2
