"""Base of distributions of loc + scale * x, x from one fixed distribution of real numbers."""

from __future__ import annotations

from typing import Any

from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution

__all__ = ["LocationScale"]


class LocationScale(Distribution):
    """A symmetric distribution of real numbers around `loc`, as wide as `scale` says; both are broadcast to one shape,
    that of the batch.
    """

    loc: Any
    scale: Any

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, loc=loc, scale=scale)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc
