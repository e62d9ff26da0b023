"""Mixtures of distributions of one kind."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.categorical import Categorical
from rushlight.distributions.constraints import MixtureSameFamilyConstraint
from rushlight.distributions.distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A draw from one of `component_distribution`'s last batch dim, chosen by `mixture_distribution` (a `Categorical`).

    >>> import rushlight as torch
    >>> from rushlight.distributions import Categorical, MixtureSameFamily, Normal
    >>> MixtureSameFamily(Categorical(torch.ones(2)), Normal(torch.tensor([0.0, 4.0]), 1.0)).mean
    tensor(2.)
    """

    arg_constraints: Any = {}
    has_rsample = False

    def __init__(
        self, mixture_distribution: Any, component_distribution: Any, validate_args: bool | None = None
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of torch.distributions.Distribution")
        batch = component_distribution.batch_shape
        components = batch[-1]
        for mine, other in zip(reversed(mixture_distribution.batch_shape), reversed(batch[:-1]), strict=False):
            if mine != 1 and other != 1 and mine != other:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({mixture_distribution.batch_shape}) is not compatible with "
                    f"`component_distribution.batch_shape`({batch[:-1]})"
                )
        weights = mixture_distribution.logits.shape[-1]
        if weights != components:
            raise ValueError(
                f"`mixture_distribution component` ({weights}) does not equal `component_distribution.batch_shape[-1]` ({components})"
            )
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        self._num_component = components
        self._event_ndims = len(component_distribution.event_shape)
        Distribution.__init__(self, batch[:-1], component_distribution.event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        batch_shape = Size(batch_shape)
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._component_distribution = self._component_distribution.expand((*batch_shape, self._num_component))
        new._num_component, new._event_ndims = self._num_component, self._event_ndims
        return self._finished(new, batch_shape)

    @constraints.dependent_property
    def support(self) -> Any:
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Any:
        """The distribution of the component."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The components."""
        return self._component_distribution

    def _over_event(self, weights: Any) -> Any:
        """A tensor with the components last, with dims of size 1 for the event appended."""
        return weights.reshape(*weights.shape, *[1] * self._event_ndims)

    def _averaged(self, of_components: Any) -> Any:
        weights = self._over_event(self._mixture_distribution.probs)
        return (weights * of_components).sum(-1 - self._event_ndims)

    @property
    def mean(self) -> Any:
        return self._averaged(self._component_distribution.mean)

    @property
    def variance(self) -> Any:
        """The mean of the components' variances plus the variance of their means."""
        components = self._component_distribution
        center = self.mean.unsqueeze(-1 - self._event_ndims)
        return self._averaged(components.variance) + self._averaged((components.mean - center).pow(2.0))

    def _spread(self, value: Any) -> Any:
        """A value for all components."""
        return value.unsqueeze(-1 - self._event_ndims)

    def log_prob(self, x: Any) -> Any:
        if self._validate_args:
            self._validate_sample(x)
        each = self._component_distribution.log_prob(self._spread(x))
        return rushlight.logsumexp(each + rushlight.log_softmax(self._mixture_distribution.logits, dim=-1), dim=-1)

    def cdf(self, x: Any) -> Any:
        each = self._component_distribution.cdf(self._spread(x))
        return (each * self._mixture_distribution.probs).sum(-1)

    def sample(self, sample_shape: Any = Size()) -> Any:
        with rushlight.no_grad():
            chosen = self._mixture_distribution.sample(sample_shape)
            drawn = self._component_distribution.sample(sample_shape)
            dim = drawn.dim() - 1 - self._event_ndims
            index = self._over_event(chosen.unsqueeze(-1))
            index = index.expand(*drawn.shape[:dim], 1, *self._event_shape)
            return drawn.gather(dim, index).squeeze(dim)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
