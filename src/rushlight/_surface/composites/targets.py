"""Losses over class numbers: a class that does not exist is reported as such."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rushlight._base.tracebacks import shorten
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import FUNCTION_MODE, STATE
from rushlight._engine.core.tensor import plain_classes
from rushlight._engine.dispatch.plans.native_plans import schema_signature
from rushlight._ops.table import OPERATORS
from rushlight._surface.registry import SPACES, function_of

__all__: list[str] = []

_BAD = re.compile(r"index (-?\d+) is out of bounds for dimension \d+ with size (\d+)")


# The error for a target that is no class; PyTorch's losses differ in it.
_ERRORS: dict[str, type[Exception]] = {
    "cross_entropy": IndexError,
    "multi_margin_loss": RuntimeError,
    "multilabel_margin_loss": RuntimeError,
    "nll_loss": IndexError,
}


def _checked(name: str) -> Callable[..., Any]:
    """The operator, with the kernel's complaint about an index in the words of a loss."""

    state, known = STATE, plain_classes

    def loss(*args: Any, **kwargs: Any) -> Any:
        try:
            if state.word & FUNCTION_MODE or not args or type(args[0]) not in known:
                handled, made = HOOKS.override(loss, args, kwargs)
                if handled:
                    return made
            try:
                return function_of(name)(*args, **kwargs)
            except (RuntimeError, IndexError) as error:
                found = _BAD.match(str(error))
                if found is None:
                    raise
                raise _ERRORS[name](
                    f"Target {found[1]} is out of bounds. {name}() found {found[2]} classes in its input: 0 to {int(found[2]) - 1}"
                ) from None
        except BaseException as error:
            shorten(error)
            raise

    loss.__name__ = loss.__qualname__ = name
    loss.__doc__ = OPERATORS[name].doc
    loss.operator = OPERATORS[name]  # type: ignore[attr-defined]
    import inspect  # loaded with `nn.functional` anyway

    loss.__signature__ = schema_signature(OPERATORS[name], inspect)  # type: ignore[attr-defined]
    return loss


for _name in _ERRORS:
    SPACES["nn.functional"].defer(_name, _checked, _name)
