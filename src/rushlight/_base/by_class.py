"""Answers about classes, kept as long as the classes live."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, cast

__all__ = ["by_class"]

Answer = TypeVar("Answer", bound=Callable[..., Any])


def by_class(function: Answer) -> Answer:
    """Keep what a function of a class, and of hashable values after it, told.  `functools.cache` would hold the class
    for ever, and with it what its methods close over.

    >>> kept = by_class(lambda kind: kind.__name__)
    >>> kept(int), kept(int)
    ('int', 'int')
    """
    known: weakref.WeakKeyDictionary[type, dict[tuple[Any, ...], Any]] = weakref.WeakKeyDictionary()

    @functools.wraps(function)
    def kept(kind: type, *rest: Any) -> Any:
        answers = known.get(kind)
        if answers is None:
            answers = known[kind] = {}
        if rest not in answers:
            answers[rest] = function(kind, *rest)
        return answers[rest]

    return cast("Answer", kept)
