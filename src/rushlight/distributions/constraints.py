"""Regions of tensors: what parameters and values of distributions may be, and what transforms map between.

A constraint says with `check(value)` which elements lie inside: `event_dim` dims of the value make one element, and the
result has the shape of the others.  Constraints that depend on a distribution's parameters are properties
(`dependent_property`).

    >>> import rushlight as torch
    >>> from rushlight.distributions import constraints
    >>> constraints.positive.check(torch.tensor([1.0, -1.0]))
    tensor([ True, False])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight

__all__ = [
    "Constraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than", "greater_than_eq", "independent",
    "integer_interval", "interval", "half_open_interval", "is_dependent", "less_than", "lower_cholesky", "lower_triangular",
    "MixtureSameFamilyConstraint", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_semidefinite",
    "positive_definite", "positive_integer", "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """A region.  `is_discrete`: whether it is a set of isolated points; `event_dim`: how many rightmost dims make one
    element.
    """

    is_discrete: Any = False
    event_dim: Any = 0
    _shown: tuple[str, ...] = ()  # the attributes that the printed form tells

    def check(self, value: Any) -> Any:
        """A bool tensor of the shape `value.shape[:-event_dim]`: which elements lie inside."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__[1:]}({', '.join(f'{name}={getattr(self, name)}' for name in self._shown)})"


def _require(constraint: Any) -> None:
    if not isinstance(constraint, Constraint):
        raise AssertionError(f"base_constraint must be a Constraint, got {type(constraint).__name__}")


# ***** regions that are known only with a distribution's parameters *****


class _Dependent(Constraint):
    """Stands for a region that depends on other values; it can be called to declare what is known of it."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> Any:
        return self._known("is_discrete")

    @property
    def event_dim(self) -> Any:
        return self._known("event_dim")

    def _known(self, name: str) -> Any:
        value = getattr(self, "_" + name)
        if value is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    def _declared(self, is_discrete: Any, event_dim: Any) -> dict[str, Any]:
        return {
            "is_discrete": self._is_discrete if is_discrete is NotImplemented else is_discrete,
            "event_dim": self._event_dim if event_dim is NotImplemented else event_dim,
        }

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> Any:
        return _Dependent(**self._declared(is_discrete, event_dim))

    def check(self, x: Any) -> Any:
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Any) -> bool:
    """Whether the constraint stands for one that depends on parameters."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property whose value is a constraint; on the class it is itself a (dependent) constraint.

    `@dependent_property` and `@dependent_property(is_discrete=False, event_dim=0)` are both understood.
    """

    def __init__(
        self,
        fn: Callable[[Any], Any] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Any = None, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> Any:
        return _DependentProperty(fn, **self._declared(is_discrete, event_dim))


# ***** regions made of regions *****


class _IndependentConstraint(Constraint):
    """`base_constraint` for every place of further `reinterpreted_batch_ndims` dims."""

    def __init__(self, base_constraint: Any, reinterpreted_batch_ndims: Any) -> None:
        _require(base_constraint)
        if not isinstance(reinterpreted_batch_ndims, int) or reinterpreted_batch_ndims < 0:
            raise AssertionError(f"reinterpreted_batch_ndims must be an int >= 0, got {reinterpreted_batch_ndims!r}")
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> Any:
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> Any:
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Any) -> Any:
        inside = self.base_constraint.check(value)
        dims = self.reinterpreted_batch_ndims
        if inside.dim() < dims:
            raise ValueError(f"Expected value.dim() >= {self.base_constraint.event_dim + dims} but got {value.dim()}")
        return inside.reshape(*inside.shape[: inside.dim() - dims], -1).all(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__[1:]}({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """The support of a mixture: a value is inside if it is inside for every component (a dim before the event's dims)."""

    def __init__(self, base_constraint: Any) -> None:
        _require(base_constraint)
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> Any:
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> Any:
        return self.base_constraint.event_dim

    def check(self, value: Any) -> Any:
        event_dim = self.event_dim
        if value.dim() < event_dim:
            raise ValueError(f"Expected value.dim() >= {event_dim} but got {value.dim()}")
        inside = self.base_constraint.check(value.unsqueeze(-1 - event_dim))
        return inside.reshape(*value.shape[: value.dim() - event_dim], -1).all(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_constraint!r})"


class _Joined(Constraint):
    """Regions side by side along a dim."""

    def __init__(self, cseq: Sequence[Any]) -> None:
        if not all(isinstance(c, Constraint) for c in cseq):
            raise AssertionError("All elements of cseq must be Constraint instances")
        self.cseq = list(cseq)

    @property
    def is_discrete(self) -> Any:
        return any(c.is_discrete for c in self.cseq)

    def _check_dim(self, value: Any) -> None:
        if not -value.dim() <= self.dim < value.dim():  # type: ignore[attr-defined]
            raise AssertionError(f"dim {self.dim} out of range for a value of {value.dim()} dims")  # type: ignore[attr-defined]


class _Cat(_Joined):
    """Slices of `lengths` along `dim`, each with its constraint."""

    def __init__(self, cseq: Sequence[Any], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"{len(self.lengths)} lengths for {len(self.cseq)} constraints")
        self.dim = dim

    @property
    def event_dim(self) -> Any:
        return max(c.event_dim for c in self.cseq)

    def check(self, value: Any) -> Any:
        self._check_dim(value)
        pieces, start = [], 0
        for constraint, length in zip(self.cseq, self.lengths, strict=True):
            pieces.append(constraint.check(value.narrow(self.dim, start, length)))
            start += length
        return rushlight.cat(pieces, self.dim)


class _Stack(_Joined):
    """One constraint for each index of `dim`."""

    def __init__(self, cseq: Sequence[Any], dim: int = 0) -> None:
        super().__init__(cseq)
        self.dim = dim

    @property
    def event_dim(self) -> Any:
        highest = max(c.event_dim for c in self.cseq)
        return highest + 1 if self.dim + highest < 0 else highest

    def check(self, value: Any) -> Any:
        self._check_dim(value)
        pieces = (value.select(self.dim, i) for i in range(value.size(self.dim)))
        return rushlight.stack([c.check(v) for c, v in zip(self.cseq, pieces, strict=False)], self.dim)


# ***** numbers *****


class _Boolean(Constraint):
    """0 and 1."""

    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value == 0) | (value == 1)


class _Real(Constraint):
    """Every number that is not NaN."""

    def check(self, value: Any) -> Any:
        return value == value


# Bounds are numbers, or tensors that broadcast with the values.


class _Above(Constraint):
    _shown = ("lower_bound",)

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class _Below(Constraint):
    _shown = ("upper_bound",)

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound


class _Between(Constraint):
    _shown = ("lower_bound", "upper_bound")

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _GreaterThan(_Above):
    """Numbers above `lower_bound`."""

    def check(self, value: Any) -> Any:
        return self.lower_bound < value


class _GreaterThanEq(_Above):
    """Numbers from `lower_bound` on."""

    def check(self, value: Any) -> Any:
        return self.lower_bound <= value


class _LessThan(_Below):
    """Numbers below `upper_bound`."""

    def check(self, value: Any) -> Any:
        return value < self.upper_bound


class _Interval(_Between):
    """Numbers between the bounds, which belong to it."""

    def check(self, value: Any) -> Any:
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Between):
    """Numbers between the bounds, of which the lower one belongs to it."""

    def check(self, value: Any) -> Any:
        return (self.lower_bound <= value) & (value < self.upper_bound)


def _whole(value: Any) -> Any:
    return value % 1 == 0


class _IntegerInterval(_Between):
    """Whole numbers between the bounds, which belong to it."""

    is_discrete = True

    def check(self, value: Any) -> Any:
        return _whole(value) & (self.lower_bound <= value) & (value <= self.upper_bound)


class _IntegerLessThan(_Below):
    """Whole numbers up to `upper_bound`."""

    is_discrete = True

    def check(self, value: Any) -> Any:
        return _whole(value) & (value <= self.upper_bound)


class _IntegerGreaterThan(_Above):
    """Whole numbers from `lower_bound` on."""

    is_discrete = True

    def check(self, value: Any) -> Any:
        return _whole(value) & (value >= self.lower_bound)


# ***** vectors *****


class _OneHot(Constraint):
    """Vectors of zeros with a single one."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Any) -> Any:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Simplex(Constraint):
    """Vectors of numbers >= 0 with the sum 1 (within 1e-6)."""

    event_dim = 1

    def check(self, value: Any) -> Any:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    """Vectors of counts >= 0 with at most `upper_bound` together."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, x: Any) -> Any:
        return (x >= 0).all(-1) & (x.sum(-1) <= self.upper_bound)


# ***** matrices *****


def _all_of_matrix(inside: Any) -> Any:
    return inside.flatten(-2).all(-1)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        return _all_of_matrix(value.tril() == value)


class _LowerCholesky(Constraint):
    """Lower triangular matrices with a positive diagonal."""

    event_dim = 2

    def check(self, value: Any) -> Any:
        return _all_of_matrix(value.tril() == value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(Constraint):
    """Lower Cholesky factors of correlation matrices: the rows have the length 1."""

    event_dim = 2

    def check(self, value: Any) -> Any:
        # What roundings of a row add up to, with room
        tolerance = rushlight.finfo(value.dtype).eps * value.size(-1) * 10
        row_length = value.detach().norm(dim=-1)
        return _LowerCholesky().check(value) & ((row_length - 1).abs() <= tolerance).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        square = value.shape[-2] == value.shape[-1]
        return rushlight.full(value.shape[:-2], square, dtype=rushlight.bool, device=value.device)


class _Symmetric(_Square):
    def check(self, value: Any) -> Any:
        square = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return square
        return _all_of_matrix(rushlight.isclose(value, value.mT, atol=1e-6))


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        symmetric = super().check(value)
        if not symmetric.all():
            return symmetric
        return rushlight.linalg.eigvalsh(value).ge(0).all(-1)


class _PositiveDefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        symmetric = super().check(value)
        if not symmetric.all():
            return symmetric
        return rushlight.linalg.cholesky_ex(value).info.eq(0)


# ***** the public names: classes where parameters are needed, else the region itself *****

dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
cat = _Cat
stack = _Stack
integer_interval = _IntegerInterval
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
interval = _Interval
half_open_interval = _HalfOpenInterval
multinomial = _Multinomial

boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
unit_interval = _Interval(0.0, 1.0)
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
