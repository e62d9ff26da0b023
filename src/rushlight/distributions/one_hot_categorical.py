"""The categorical distribution over one-hot vectors."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.by_categories import ByCategories
from rushlight.distributions.distribution import parametric

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


@parametric
class OneHotCategorical(ByCategories):
    """A vector of zeros with a one at an index drawn as by `Categorical`.

    >>> import rushlight as torch
    >>> torch.distributions.OneHotCategorical(torch.tensor([1.0, 3.0])).mode
    tensor([0., 1.])
    """

    support = constraints.one_hot
    has_enumerate_support = True

    @property
    def _param(self) -> Any:
        return self._categorical._param

    def _one_hot(self, index: Any) -> Any:
        return rushlight.nn.functional.one_hot(index, self._event_shape[-1])

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        return self._one_hot(self.probs.argmax(dim=-1)).to(self.probs)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = Size()) -> Any:
        return self._one_hot(self._categorical.sample(Size(sample_shape))).to(self.probs)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Any:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Any:
        n = self._event_shape[0]
        values = rushlight.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.view(n, *[1] * len(self._batch_shape), n)
        return values.expand(n, *self._batch_shape, n) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """The same with the gradient of the probabilities for that of the draws (Bengio et al., arXiv:1308.3432).

    >>> import rushlight as torch
    >>> torch.distributions.OneHotCategoricalStraightThrough(torch.tensor([0.0, 3.0])).rsample()
    tensor([0., 1.])
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = Size()) -> Any:
        probs = self._categorical.probs
        return self.sample(sample_shape) + (probs - probs.detach())
