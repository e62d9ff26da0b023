"""The LKJ distribution of correlation matrices, by their Cholesky factors."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.beta import Beta
from rushlight.distributions.distribution import Distribution, parametric
from rushlight.distributions.utils import broadcast_all, lazy_property

__all__ = ["LKJCholesky"]


@parametric
class LKJCholesky(Distribution):
    """Lower Cholesky factors of correlation matrices C (`dim` x `dim`) with the density of C proportional to det(C) **
    (concentration - 1).

    With concentration 1 all correlation matrices are equally likely.  Draws are made by the onion method (Lewandowski,
    Kurowicka and Joe, "Generating random correlation matrices based on vines and extended onion method", 2009, section
    3).

        >>> import rushlight as torch
        >>> torch.distributions.LKJCholesky(3, 0.5).event_shape
        torch.Size([3, 3])
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    _kept = ("dim",)

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        Distribution.__init__(self, self.concentration.size(), Size((dim, dim)), validate_args=validate_args)

    @lazy_property
    def _beta(self) -> Any:
        """The squared length of each row's part before the diagonal; the first row has none, and draws all the same."""
        c = self.concentration
        before = rushlight.arange(self.dim - 1, dtype=c.dtype, device=c.device)
        before = rushlight.cat([before.new_zeros(1), before])
        return Beta(before + 0.5, c.unsqueeze(-1) + 0.5 * (self.dim - 2) - 0.5 * before, validate_args=False)

    def sample(self, sample_shape: Any = Size()) -> Any:
        with rushlight.no_grad():
            square = self._beta.sample(sample_shape).unsqueeze(-1)
            c = self.concentration
            noise = rushlight.randn(self._extended_shape(sample_shape), dtype=c.dtype, device=c.device).tril(-1)
            direction = noise / noise.norm(dim=-1, keepdim=True)
            direction[..., 0, :] = 0.0
            below = square.sqrt() * direction
            rest = (1 - below.pow(2).sum(-1)).clamp(min=rushlight.finfo(below.dtype).tiny)
            return below + rest.sqrt().diag_embed()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        c, rows = self.concentration, self.dim - 1
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        # of the diagonal's element i (from 2) the density has the power 2 (concentration - 1) + dim - i
        place = rushlight.arange(2, self.dim + 1, device=c.device)
        power = 2 * (c - 1).unsqueeze(-1) + self.dim - place
        density = (power * diagonal.log()).sum(-1)
        # the constant: Lewandowski, Kurowicka and Joe, page 1999
        alpha = c + 0.5 * rows
        constant = 0.5 * rows * math.log(math.pi) + rushlight.mvlgamma(alpha - 0.5, rows) - alpha.lgamma() * rows
        return density - constant
