"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.bernoulli import cross_entropy
from rushlight.distributions.distribution import ProbsOrLogits, parametric
from rushlight.distributions.exp_family import ExponentialFamily
from rushlight.distributions.utils import clamp_probs, lazy_property

__all__ = ["ContinuousBernoulli"]


@parametric
class ContinuousBernoulli(ProbsOrLogits, ExponentialFamily):
    """The density proportional to p^x (1 - p)^(1 - x) on [0, 1] (Loaiza-Ganem and Cunningham, arXiv:1907.06845).

    Where `probs` is between `lims`, close to 1/2, the closed forms are 0 / 0 and give way to their Taylor series.

        >>> import rushlight as torch
        >>> torch.distributions.ContinuousBernoulli(torch.tensor([0.5])).mean
        tensor([0.5000])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure: Any = 0
    _kept = ("_lims",)

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        given = self._take(probs, logits)
        self._lims = lims
        self._broadcast(validate_args, **{given: logits if probs is None else probs})
        if probs is not None:
            self.probs = clamp_probs(self.probs)

    @lazy_property
    def probs(self) -> Any:
        """Probabilities, kept off 0 and 1, where the norm is infinite."""
        return clamp_probs(super().probs)

    def _outside_unstable_region(self) -> Any:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self) -> Any:
        """The probabilities, with those of the unstable region moved to its edge."""
        return rushlight.where(
            self._outside_unstable_region(), self.probs, rushlight.full_like(self.probs, self._lims[0])
        )

    def _cont_bern_log_norm(self) -> Any:
        """log of 2 atanh(1 - 2p) / (1 - 2p), the factor that makes the integral 1."""
        p = self._cut_probs()
        normalizer = ((-p).log1p() - p.log()).abs().log() - (1 - 2 * p).abs().log()
        square = (self.probs - 0.5) ** 2
        near = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * square) * square
        return rushlight.where(self._outside_unstable_region(), normalizer, near)

    @property
    def mean(self) -> Any:
        p, away = self._cut_probs(), self.probs - 0.5
        closed = p / (2.0 * p - 1.0) + 1.0 / ((-p).log1p() - p.log())
        near = 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * away**2) * away
        return rushlight.where(self._outside_unstable_region(), closed, near)

    @property
    def stddev(self) -> Any:
        return self.variance.sqrt()

    @property
    def variance(self) -> Any:
        p, square = self._cut_probs(), (self.probs - 0.5) ** 2
        closed = p * (p - 1.0) / (1.0 - 2.0 * p) ** 2 + 1.0 / ((-p).log1p() - p.log()) ** 2
        near = 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * square) * square
        return rushlight.where(self._outside_unstable_region(), closed, near)

    def sample(self, sample_shape: Any = Size()) -> Any:
        with rushlight.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.icdf(rushlight.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self._cont_bern_log_norm() - cross_entropy(self.logits, value)

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        p = self._cut_probs()
        closed = (p.pow(value) * (1.0 - p).pow(1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        inside = rushlight.where(self._outside_unstable_region(), closed, value)
        return inside.masked_fill(value <= 0.0, 0.0).masked_fill(value >= 1.0, 1.0)

    def icdf(self, value: Any) -> Any:
        p = self._cut_probs()
        failing = (-p).log1p()
        closed = ((-p + value * (2.0 * p - 1.0)).log1p() - failing) / (p.log() - failing)
        return rushlight.where(self._outside_unstable_region(), closed, value)

    def entropy(self) -> Any:
        failing = (-self.probs).log1p()
        return self.mean * (failing - self.probs.log()) - self._cont_bern_log_norm() - failing

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Any) -> Any:
        """log of the integral of e^(x t) over [0, 1]."""
        outside = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        cut = rushlight.where(outside, x, rushlight.full_like(x, self._lims[0] - 0.5))
        closed = (cut.exp() - 1).abs().log() - cut.abs().log()
        return rushlight.where(outside, closed, 0.5 * x + x**2 / 24.0 - x**4 / 2880.0)
