"""The table of handlers: functions of the package by the names of aten operators, as calls of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["HANDLERS", "Handler", "handles"]

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}


def handles(names: str) -> Callable[[Handler], Handler]:
    """Decorator: the handler of these functions."""

    def register(handler: Handler) -> Handler:
        for name in names.split():
            HANDLERS[name] = handler
        return handler

    return register
