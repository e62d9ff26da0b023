"""Base of all distributions: shapes, checks of arguments and values, and what follows from a class's parameters.

The shape of a sample is `sample_shape + batch_shape + event_shape`: independent draws, independent but differently
parametrised ones, and the dims that belong to one draw.
"""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

import rushlight
from rushlight import Size, Tensor
from rushlight._interface.functorch import root
from rushlight.distributions import constraints
from rushlight.distributions.utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits

__all__ = ["Distribution", "ProbsOrLogits", "parametric"]

Class = TypeVar("Class", bound=type)


def holds(checked: Tensor) -> Tensor:
    """Whether all elements are true, as a tensor; inside of `vmap`, those of all items."""
    return root(checked.all()).all()


class Distribution:
    """The base of all distributions.

    A subclass sets `batch_shape` and `event_shape` through `super().__init__`, describes its parameters in
    `arg_constraints` and the values it takes in `support`, and defines what it can of `sample`, `rsample`, `log_prob`,
    ...; the rest raises `NotImplementedError`.  With `validate_args` (the default, unless Python runs with `-O`)
    parameters and values are checked and `ValueError` tells what was wrong.
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args = __debug__
    # What `parametric` expands or hands on beside the parameters: distributions of the same batch, and what has no
    # batch.
    _parts: tuple[str, ...] = ()
    _kept: tuple[str, ...] = ()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check their arguments unless told otherwise."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = Size(), event_shape: Any = Size(), validate_args: bool | None = None) -> None:
        self._batch_shape, self._event_shape = batch_shape, event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()

    def _validate_parameters(self) -> None:
        try:
            described = self.arg_constraints
        except NotImplementedError:
            described = {}
            warnings.warn(
                f"{self.__class__} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize the distribution "
                "with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
        for name, constraint in described.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property):
                continue  # it follows from a parameter that was given
            value = getattr(self, name)
            if not holds(constraint.check(value)):
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution {self!r} "
                    f"to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    # ***** shapes and regions *****

    @property
    def batch_shape(self) -> Any:
        """The shape of the parameters' batch."""
        return self._batch_shape

    @property
    def event_shape(self) -> Any:
        """The shape of one draw."""
        return self._event_shape

    @property
    def arg_constraints(self) -> Any:
        """The parameters' names and the constraints that they satisfy."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint that says which values are possible."""
        raise NotImplementedError

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The distribution with its parameters expanded (without copies) to the given batch shape.

        `_instance` is for subclasses: the object to be filled by a base class's `expand`.
        """
        raise NotImplementedError

    # ***** moments *****

    @property
    def mean(self) -> Any:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Any:
        """The value where the density is largest."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Any:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Any:
        """The standard deviation."""
        return self.variance.sqrt()

    # ***** draws, densities *****

    def sample(self, sample_shape: Any = Size()) -> Any:
        """Draws of the shape `sample_shape + batch_shape + event_shape`, without gradient."""
        with rushlight.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = Size()) -> Any:
        """Draws that are differentiable in the parameters, where `has_rsample`."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Any:
        """`sample((n,))`, under its old name."""
        warnings.warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning, stacklevel=2)
        return self.sample(Size((n,)))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density (or probability) at `value`: shape without the event's dims."""
        raise NotImplementedError

    def cdf(self, value: Any) -> Any:
        """The probability of at most `value`."""
        raise NotImplementedError

    def icdf(self, value: Any) -> Any:
        """The inverse of `cdf`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Any:
        """All possible values of a discrete distribution along a new first dim; over the whole batch if `expand`."""
        raise NotImplementedError

    def entropy(self) -> Any:
        """The entropy, in nats, of each distribution of the batch."""
        raise NotImplementedError

    def perplexity(self) -> Any:
        """exp(entropy)."""
        return rushlight.exp(self.entropy())

    # ***** for subclasses *****

    def _extended_shape(self, sample_shape: Any = Size()) -> Any:
        """The shape of `sample(sample_shape)`."""
        return Size(sample_shape) + Size(self._batch_shape) + Size(self._event_shape)

    def _validate_sample(self, value: Any) -> None:
        """`ValueError` unless `value` is a tensor that fits the shapes and lies in the support."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        first_event_dim = value.dim() - len(self._event_shape)
        if value.shape[max(first_event_dim, 0) :] != self._event_shape:
            raise ValueError(
                f"The right-most size of value must match event_shape: {value.shape} vs {self._event_shape}."
            )
        mine = (*self._batch_shape, *self._event_shape)
        for given, own in zip(reversed(value.shape), reversed(mine), strict=False):
            if given != 1 and own != 1 and given != own:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs {Size(mine)}."
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `support` to enable sample validation. Please initialize the distribution with "
                "`validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not holds(support.check(value)):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support ({support!r}) "
                f"of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def _get_checked_instance(self, cls: Any, _instance: Any = None) -> Any:
        """The object that `cls.expand` fills.  A subclass with an `__init__` of its own has to bring its own `expand`."""
        if _instance is not None:
            return _instance
        if type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also define a custom "
                ".expand() method."
            )
        return self.__new__(type(self))

    def _finished(self, new: Any, batch_shape: Any, event_shape: Any = None) -> Any:
        """`new`, filled with this one's expanded state, made a distribution of the given shapes; it is not checked
        again.
        """
        shape = self._event_shape if event_shape is None else event_shape
        Distribution.__init__(new, batch_shape, shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _broadcast(self, validate_args: bool | None, **parameters: Any) -> None:
        """Make the parameters tensors of one shape, which is that of the batch, and attributes; then check them."""
        values = broadcast_all(*parameters.values())
        self.__dict__.update(zip(parameters, values, strict=True))
        Distribution.__init__(self, values[0].size(), validate_args=validate_args)

    def __repr__(self) -> str:
        own = self.__dict__
        shown = (
            f"{name}: {own[name] if own[name].numel() == 1 else own[name].size()}"
            for name in self.arg_constraints
            if name in own
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def parametric(cls: Class) -> Class:
    """Give a class the `expand` that follows from its state.

    Parameters (the names in `arg_constraints` that the object holds) are expanded in front of their event dims, the
    distributions named in `_parts` by their own `expand`; what `_kept` names goes over as it is.  Then a base class
    that can expand does the rest.
    """
    above = super(cls, cls).expand  # type: ignore[arg-type]

    def expand(self: Any, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(cls, _instance)
        batch_shape = Size(batch_shape)
        described = cls.arg_constraints  # type: ignore[attr-defined]
        if isinstance(described, property):
            described = described.__get__(self)
        for name, constraint in described.items():
            value = self.__dict__.get(name)
            if value is not None:
                own = value.shape[value.dim() - constraint.event_dim :]
                new.__dict__[name] = value.expand(batch_shape + own)
        for name in cls._parts:  # type: ignore[attr-defined]
            new.__dict__[name] = self.__dict__[name].expand(batch_shape)
        for name in cls._kept:  # type: ignore[attr-defined]
            new.__dict__[name] = self.__dict__[name]
        if above is not Distribution.expand:
            return above(self, batch_shape, _instance=new)
        return self._finished(new, batch_shape)

    expand.__doc__ = Distribution.expand.__doc__
    expand.__qualname__ = f"{cls.__name__}.expand"
    cls.expand = expand  # type: ignore[attr-defined]
    return cls


class ProbsOrLogits(Distribution):
    """Base of distributions that take either `probs` or `logits`: each follows from the other when it is asked for."""

    _is_binary = True

    def _take(self, probs: Any, logits: Any) -> str:
        """The name of the one that is given."""
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        return "logits" if probs is None else "probs"

    @lazy_property
    def logits(self) -> Any:
        """Log odds (of one outcome) or unnormalised log probabilities (of several)."""
        return probs_to_logits(self.probs, self._is_binary)

    @lazy_property
    def probs(self) -> Any:
        """Probabilities."""
        return logits_to_probs(self.logits, self._is_binary)

    @lazy_property
    def _param(self) -> Any:
        return self.__dict__["probs" if "probs" in self.__dict__ else "logits"]

    @property
    def param_shape(self) -> Any:
        """The shape of `probs` and `logits`."""
        return self._param.size()

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._param.new(*args, **kwargs)
