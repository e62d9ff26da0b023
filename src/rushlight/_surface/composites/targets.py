"""Losses over class numbers: a class that does not exist is reported as such."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rushlight._ops.table import OPERATORS
from rushlight._surface.registry import SPACES, function_of

__all__: list[str] = []

_BAD = re.compile(r"index (-?\d+) is out of bounds for dimension")


def _checked(name: str) -> Callable[..., Any]:
    """The operator, with the kernel's complaint about an index in the words of a loss."""

    def loss(*args: Any, **kwargs: Any) -> Any:
        try:
            return function_of(name)(*args, **kwargs)
        except (RuntimeError, IndexError) as error:
            found = _BAD.match(str(error))
            if found is None:
                raise
            raise IndexError(f"Target {_wrong_class(found[1], *args, **kwargs)} is out of bounds.") from None

    loss.__name__ = loss.__qualname__ = name
    loss.__doc__ = OPERATORS[name].doc
    loss.operator = OPERATORS[name]  # type: ignore[attr-defined]
    return loss


def _wrong_class(
    reported: str, input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, *_: Any, **_others: Any
) -> Any:
    """The first class that does not exist; the kernel, which reads negative ones out of range, reports another number for those."""
    classes = input.shape[min(input.dim() - 1, 1)]
    wrong = (c for c in target.reshape(-1).tolist() if not 0 <= c < classes and c != ignore_index)
    return next(wrong, reported)


for _name in ("cross_entropy", "nll_loss"):
    SPACES["nn.functional"][_name] = _checked(_name)
