"""Losses over class numbers: a class that does not exist is reported as such."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rushlight._ops.table import OPERATORS
from rushlight._surface.registry import SPACES, function_of

__all__: list[str] = []

_BAD = re.compile(r"index (-?\d+) is out of bounds for dimension \d+ with size (\d+)")


def _checked(name: str) -> Callable[..., Any]:
    """The operator, with the kernel's complaint about an index in the words of a loss."""

    def loss(*args: Any, **kwargs: Any) -> Any:
        try:
            return function_of(name)(*args, **kwargs)
        except (RuntimeError, IndexError) as error:
            found = _BAD.match(str(error))
            if found is None:
                raise
            raise IndexError(f"Target {found[1]} is out of bounds. {name}() found {found[2]} classes in its input: 0 to {int(found[2]) - 1}") from None

    loss.__name__ = loss.__qualname__ = name
    loss.__doc__ = OPERATORS[name].doc
    loss.operator = OPERATORS[name]  # type: ignore[attr-defined]
    return loss


for _name in ("cross_entropy", "nll_loss"):
    SPACES["nn.functional"][_name] = _checked(_name)
