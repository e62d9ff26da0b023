"""Decorators of data pipes: steps by name, promises about order, checks of types."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

from rushlight.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = [
    "argument_validation", "functional_datapipe", "guaranteed_datapipes_determinism", "non_deterministic", "runtime_validation",
    "runtime_validation_disabled",
]  # fmt: skip


class functional_datapipe:
    """Make a class of pipes a step of other pipes: after `@functional_datapipe("batch")`, `pipe.batch(...)` is
    `Class(pipe, ...)`.
    """

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name
        self.enable_df_api_tracing = enable_df_api_tracing

    def __call__(self, cls: Any) -> Any:
        wanted = cls
        if isinstance(cls, non_deterministic):
            wanted = cls.cls
        for kind in (IterDataPipe, MapDataPipe):
            if isinstance(wanted, type) and issubclass(wanted, kind):
                kind.register_datapipe_as_function(self.name, cls, enable_df_api_tracing=self.enable_df_api_tracing)
                return cls
        raise TypeError("`functional_datapipe` can only decorate IterDataPipe")


class _Switch:
    """A flag for the time of a `with` block (or from its making on)."""

    _state: list[bool]
    _before = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        self._state[0] = self._before


_determinism, _checked = [False], [True]


class guaranteed_datapipes_determinism(_Switch):
    """In this block pipes whose order is not fixed cannot be made: TypeError."""

    _state = _determinism

    def __init__(self) -> None:
        self._before, _determinism[0] = _determinism[0], True


class runtime_validation_disabled(_Switch):
    """In this block pipes do not check the types of what they yield."""

    _state = _checked

    def __init__(self) -> None:
        self._before, _checked[0] = _checked[0], False


class non_deterministic:
    """Say that a class of pipes has no fixed order, always or for arguments of which a function says so."""

    cls: Any = None

    def __init__(self, arg: Any) -> None:
        self.deterministic_fn: Callable[..., bool] | None = None
        if isinstance(arg, type):
            if not issubclass(arg, IterDataPipe):
                raise TypeError(
                    f"Only `IterDataPipe` can be decorated with `non_deterministic`, but {arg.__name__} is found"
                )
            self.cls = arg
        elif callable(arg):
            self.deterministic_fn = arg
        else:
            raise TypeError(f"{arg} can not be decorated by non_deterministic")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.cls is None:  # the decorator with a function: this is the class
            cls = args[0] if args else None
            if not (isinstance(cls, type) and issubclass(cls, IterDataPipe)):
                raise TypeError(f"Only `IterDataPipe` can be decorated, but {getattr(cls, '__name__', cls)} is found")
            self.cls = cls
            return self.deterministic_wrapper_fn
        if _determinism[0]:
            raise TypeError(_unfixed(self.cls, ""))
        return self.cls(*args, **kwargs)

    def deterministic_wrapper_fn(self, *args: Any, **kwargs: Any) -> Any:
        """Make the pipe, unless its arguments have no fixed order where one is asked for."""
        assert self.deterministic_fn is not None
        unfixed = self.deterministic_fn(*args, **kwargs)
        if not isinstance(unfixed, bool):
            raise TypeError(
                f"deterministic_fn of `non_deterministic` decorator is required to return a boolean value, but {type(unfixed)} is found"
            )
        if _determinism[0] and unfixed:
            raise TypeError(_unfixed(self.cls, " with the inputs"))
        return self.cls(*args, **kwargs)


def _unfixed(cls: type, when: str) -> str:
    return (
        f"{cls.__name__} is non-deterministic{when}, but you set 'guaranteed_datapipes_determinism'. "
        "You can turn off determinism for this DataPipe if that is acceptable for your application"
    )


def argument_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Check that arguments annotated as `IterDataPipe` are pipes: TypeError for others."""
    signature = inspect.signature(f)
    hints = typing.get_type_hints(f)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if hints.get(name) is IterDataPipe and not isinstance(value, IterDataPipe):
                raise TypeError(f"Expected argument '{name}' as a IterDataPipe, but found {type(value)}")
        return f(*args, **kwargs)

    return checked


def runtime_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """For the `__iter__` of a pipe declared as `IterDataPipe[SomeClass]`: check what it yields. RuntimeError for other
    samples.
    """
    if f.__name__ != "__iter__":
        raise TypeError(f"Can not decorate function {f.__name__} with 'runtime_validation'")

    @functools.wraps(f)
    def checked(self: Any) -> Any:
        wanted = _element_type(type(self))
        for item in f(self):
            if _checked[0] and wanted is not None and not isinstance(item, wanted):
                raise RuntimeError(
                    f"Expected an instance as subtype of {wanted}, but found an instance of {type(item)}"
                )
            yield item

    return checked


def _element_type(cls: type) -> type | None:
    for base in getattr(cls, "__orig_bases__", ()):
        for argument in typing.get_args(base):
            if isinstance(argument, type):
                return argument
    return None
