"""Sizes that only elements tell: operators like `nonzero` and numbers of the program as sizes run between two programs."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._capture.recording import HostNumber
from rushlight._engine.core.tensor import Tensor

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["gives_numbers", "is_own_loop", "numbers_among", "runs_between"]

# Functions of tensors that give Python's objects: what asks these for elements is a break.
_GIVES_NUMBERS = frozenset((
    "item", "tolist", "numpy", "equal", "allclose", "is_nonzero", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__array__",
    "__len__", "__contains__", "__format__", "__repr__", "__str__", "__hash__", "compare", "contains", "truth", "format",
))  # fmt: skip
_OF_EACH: list[Any] = [
    range(0), range(1 << 70), [], (), {}, {}.values(), {}.items(), reversed([]), enumerate([]), zip(), iter(set()), "",
]  # fmt: skip
_ITERATORS = tuple(type(iter(x)) for x in _OF_EACH)


def numbers_among(values: Iterable[Any]) -> bool:
    """Whether one of some values, or of the items of a sequence or a slice among them, is a number of the program."""
    return any(
        isinstance(x, HostNumber)
        or (type(x) in (list, tuple) and numbers_among(x))
        or (type(x) is slice and numbers_among((x.start, x.stop, x.step)))
        for x in values
    )


def gives_numbers(function: Callable[..., Any]) -> bool:
    """Whether a function of tensors gives Python's objects: what asks it for elements is a break."""
    if isinstance(function, (type, types.BuiltinFunctionType)) and function.__module__ == "builtins":
        return True
    return getattr(function, "__name__", "") in _GIVES_NUMBERS


def runs_between(tracer: Tracer, function: Callable[..., Any], given: Sequence[Any]) -> bool:
    """Whether a call whose result has a size that only elements tell runs between two programs, and is no break: users
    ask for that by `fullgraph`, by `capture_dynamic_output_shape_ops`, and by `capture_scalar_outputs` for numbers as sizes.
    """
    if tracer.settings.backend is not None or gives_numbers(function):
        return False
    if tracer.has_numbers and numbers_among(given):
        return True
    return tracer.settings.captures_sizes() and any(isinstance(x, Tensor) for x in given)


def is_own_loop(tracer: Tracer, iterator: Any) -> bool:
    """Whether an iterator from outside is that of a loop of the program: where no break may be, frames that are gone on
    with come from behind an operator.
    """
    return tracer.resumed and tracer.settings.fullgraph and type(iterator) in _ITERATORS
