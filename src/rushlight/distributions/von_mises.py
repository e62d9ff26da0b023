"""The von Mises distribution."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution, parametric
from rushlight.distributions.utils import lazy_property

__all__ = ["VonMises"]


def _draw(concentration: Any, r: Any, shape: Any) -> Any:
    """Angles around 0 by rejection from a wrapped Cauchy distribution (Best and Fisher, 1979); until all are accepted,
    all are tried.
    """
    angles = rushlight.zeros(shape, dtype=r.dtype, device=r.device)
    accepted = rushlight.zeros(shape, dtype=rushlight.bool, device=r.device)
    while not accepted.all():
        u1, u2, u3 = rushlight.rand((3, *shape), dtype=r.dtype, device=r.device).unbind()
        z = (math.pi * u1).cos()
        cosine = (1 + r * z) / (r + z)
        c = concentration * (r - cosine)
        accept = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
        angles = rushlight.where(accept, (u3 - 0.5).sign() * cosine.acos(), angles)
        accepted = accepted | accept
    return angles


@parametric
class VonMises(Distribution):
    """The von Mises distribution of angles (in radians) around `loc`, the closer the larger `concentration`.

    >>> import rushlight as torch
    >>> torch.distributions.VonMises(1.0, 4.0).mean
    tensor(1.)
    """

    loc: Any
    concentration: Any

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, loc=loc, concentration=concentration)

    @property
    def mean(self) -> Any:
        """The circular mean."""
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        """The circular variance, 1 - I1(concentration) / I0(concentration)."""
        k = self.concentration
        return 1 - rushlight.special.i1e(k) / rushlight.special.i0e(k)

    @lazy_property
    def _proposal_r(self) -> Any:
        k = self.concentration.double()
        tau = 1 + (1 + 4 * k**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        # rho = k / 2 + O(k^3), of which the difference above keeps nothing for a small k
        return rushlight.where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))

    @rushlight.no_grad()
    def sample(self, sample_shape: Any = Size()) -> Any:
        # In float64: in lower precision a large concentration rejects for ever.
        angles = _draw(self.concentration.double(), self._proposal_r, self._extended_shape(sample_shape))
        return ((angles + math.pi + self.loc.double()) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        k = self.concentration
        # log I0(k) = log(exp(-k) I0(k)) + k, put where it cancels against the largest exponent
        return k * ((value - self.loc).cos() - 1) - math.log(2 * math.pi) - rushlight.special.i0e(k).log()
