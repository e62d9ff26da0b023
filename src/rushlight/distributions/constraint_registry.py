"""Which transform leads from unconstrained numbers into a constraint's region.

`biject_to(constraint)` gives a bijection, so densities can be carried over; `transform_to(constraint)` gives a map that
is good for optimisation and may be no bijection (softmax for the simplex).

    >>> import rushlight as torch
    >>> from rushlight.distributions import biject_to, constraints
    >>> biject_to(constraints.positive)(torch.tensor(0.0))
    tensor(1.)
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

from rushlight.distributions import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

Factory = Callable[[Any], Any]


class ConstraintRegistry:
    """From classes of constraints to functions that make a transform for a constraint of the class."""

    def __init__(self) -> None:
        self._registry: dict[type, Factory] = {}

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Register `factory` for a constraint's class (an instance stands for its class); without a factory: a
        decorator.
        """
        if factory is None:
            return lambda given: self.register(constraint, given)
        cls = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not isinstance(cls, type) or not issubclass(cls, constraints.Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[cls] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """A transform into the region.  `NotImplementedError` for a class that is not registered."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _above(constraint: Any) -> Any:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.lower_bound, 1)]
    )


def _below(constraint: Any) -> Any:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)]
    )


def _between(constraint: Any) -> Any:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, Number) and isinstance(high, Number) and low == 0 and high == 1:
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform(
        [transforms.SigmoidTransform(), transforms.AffineTransform(loc=low, scale=high - low)]
    )


# Where both registries agree.
_BOTH: list[tuple[Any, Factory]] = [
    (constraints.real, lambda c: transforms.identity_transform),
    (constraints.greater_than, _above),
    (constraints.greater_than_eq, _above),
    (constraints.less_than, _below),
    (constraints.interval, _between),
    (constraints.half_open_interval, _between),
    (constraints.corr_cholesky, lambda c: transforms.CorrCholeskyTransform()),
]


def _of_parts(registry: ConstraintRegistry) -> list[tuple[Any, Factory]]:
    """Constraints made of constraints: their transforms are made of those of the parts."""
    return [
        (
            constraints.independent,
            lambda c: transforms.IndependentTransform(registry(c.base_constraint), c.reinterpreted_batch_ndims),
        ),
        (constraints.cat, lambda c: transforms.CatTransform([registry(p) for p in c.cseq], c.dim, c.lengths)),
        (constraints.stack, lambda c: transforms.StackTransform([registry(p) for p in c.cseq], c.dim)),
    ]


for _registry in (biject_to, transform_to):
    for _constraint, _factory in (*_BOTH, *_of_parts(_registry)):
        _registry.register(_constraint, _factory)

biject_to.register(constraints.simplex, lambda c: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda c: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda c: transforms.LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda c: transforms.PositiveDefiniteTransform())
transform_to.register(constraints.positive_semidefinite, lambda c: transforms.PositiveDefiniteTransform())
