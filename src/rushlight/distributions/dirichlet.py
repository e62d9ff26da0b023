"""The Dirichlet distribution."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution, parametric
from rushlight.distributions.exp_family import ExponentialFamily

__all__ = ["Dirichlet"]


class _Dirichlet(rushlight.autograd.Function):
    """Draws and their derivative by the concentrations."""

    @staticmethod
    def forward(ctx: Any, concentration: Any) -> Any:
        x = rushlight._sample_dirichlet(concentration)
        ctx.save_for_backward(x, concentration)
        return x

    @staticmethod
    @rushlight.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        # More of concentration i moves x towards corner i: the direction is e_i - x, its length the derivative of the
        # marginal.
        x, concentration = ctx.saved_tensors
        total = concentration.sum(-1, True).expand_as(concentration)
        return rushlight._dirichlet_grad(x, concentration, total) * (grad - (x * grad).sum(-1, True))


@parametric
class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution over vectors of positive numbers with the sum 1; draws are differentiable.

    `concentration`: shape batch + (n,), n the length of an event.

        >>> import rushlight as torch
        >>> torch.distributions.Dirichlet(torch.tensor([1.0, 3.0])).mean
        tensor([0.2500, 0.7500])
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = concentration.shape
        Distribution.__init__(self, shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Any:
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, True)
        # Where every concentration is below 1 the density has its poles in the corners; the first one is named.
        corners = (self.concentration < 1).all(-1, keepdim=True)
        corner = rushlight.zeros_like(mode)
        corner[..., 0] = 1
        return rushlight.where(corners, corner, mode)

    @property
    def variance(self) -> Any:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Any = Size()) -> Any:
        return _Dirichlet.apply(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        a = self.concentration
        return rushlight.xlogy(a - 1.0, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Any:
        a, n = self.concentration, self.concentration.size(-1)
        total = a.sum(-1)
        return a.lgamma().sum(-1) - total.lgamma() - (n - total) * total.digamma() - ((a - 1.0) * a.digamma()).sum(-1)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.concentration,)

    def _log_normalizer(self, x: Any) -> Any:
        return x.lgamma().sum(-1) - x.sum(-1).lgamma()
