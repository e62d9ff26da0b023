"""Calls in the order that arguments had in older versions."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["takes_second"]

P, R = ParamSpec("P"), TypeVar("R")


def takes_second(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function that takes one argument by its place also takes `name` so, and warns."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if len(args) == 2:
                warnings.warn(
                    f"The argument order of {function.__name__} has been changed. Please check the document to avoid future breakages.",
                    stacklevel=2,
                )
                args, kwargs[name] = args[:1], args[1]  # type: ignore[assignment]
            return function(*args, **kwargs)

        return call

    return decorate
