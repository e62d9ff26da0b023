"""Calls in the order that arguments had in older versions."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

__all__ = ["takes_second"]

P = ParamSpec("P")
R = TypeVar("R")


def takes_second(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function that takes one argument by its place also takes `name` so, and warns."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if len(args) != 2:
                return function(*args, **kwargs)
            warnings.warn(
                f"The argument order of {function.__name__} has been changed. Please check the document to avoid future breakages.",
                stacklevel=2,
            )
            first, kwargs[name] = args
            return cast("Any", function)(first, **kwargs)

        return call

    return decorate
