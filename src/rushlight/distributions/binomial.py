"""The binomial distribution."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.distribution import ProbsOrLogits, parametric
from rushlight.distributions.utils import broadcast_all

__all__ = ["Binomial"]


def trials_and_chances(total_count: Any, chance: Any) -> tuple[Any, Any]:
    """Both with one shape and in the dtype of the probabilities (or log odds)."""
    if isinstance(total_count, rushlight.Tensor) and not isinstance(chance, rushlight.Tensor):
        if not total_count.is_floating_point():
            total_count = total_count.to(rushlight.get_default_dtype())  # a probability is never rounded to an integer
    count, chance = broadcast_all(total_count, chance)
    return count.type_as(chance), chance


@parametric
class Binomial(ProbsOrLogits):
    """The number of successes in `total_count` trials, each with the probability `probs` or the log odds `logits`.

    >>> import rushlight as torch
    >>> torch.distributions.Binomial(8, torch.tensor([0.25])).mean
    tensor([2.])
    """

    total_count: Any

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        given = self._take(probs, logits)
        count, chance = trials_and_chances(total_count, logits if probs is None else probs)
        self._broadcast(validate_args, **{given: chance, "total_count": count})

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Any:
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        with rushlight.no_grad():
            return rushlight.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        n, x = self.total_count, self.logits
        # log C(n, k) + k x - n log(1 + e^x), with the last term in a form that does not overflow and whose slope at 0 is 1/2
        choices = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return choices + value * x - n * ((x + x.abs()) / 2 + (-x.abs()).exp().log1p())

    def _common_count(self, asker: str) -> int:
        """The number of trials, where it is the same in the whole batch."""
        count = int(self.total_count.max())
        if not self.total_count.min() == count:
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{asker}`.")
        return count

    def entropy(self) -> Any:
        self._common_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Any:
        values = rushlight.arange(
            1 + self._common_count("enumerate_support"), dtype=self._param.dtype, device=self._param.device
        )
        values = values.view(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values
