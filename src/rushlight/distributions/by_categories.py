"""Shared part of distributions of vectors with the parameters of a categorical distribution."""

from __future__ import annotations

from typing import Any

from rushlight.distributions import constraints
from rushlight.distributions.categorical import Categorical
from rushlight.distributions.distribution import Distribution

__all__ = ["ByCategories"]


class ByCategories(Distribution):
    """A distribution of vectors with an element for each category, of which `probs` or `logits` tell how likely they
    are.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _parts = ("_categorical",)

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits)
        Distribution.__init__(
            self, self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args
        )

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._categorical._new(*args, **kwargs)

    @property
    def probs(self) -> Any:
        """Probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        """Log probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        """The shape of `probs` and `logits`."""
        return self._categorical.param_shape
