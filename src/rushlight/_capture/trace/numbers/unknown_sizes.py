"""Results whose sizes only elements tell, in graphs for other backends: their lengths are symbols without a value.

An operator like `nonzero` is asked for its result as fake tensors; the trace goes on with recorded ones of the same
layout.  Integers that a program reads of its tensors are such symbols, too, so that they can be sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._capture.recording.element_numbers import ElementNumber
from rushlight._capture.trace.numbers.element_sizes import gives_numbers
from rushlight._capture.trace.settings import HOOKS
from rushlight._engine.core.tensor import Tensor
from rushlight._types.symbols import is_symbolic

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["as_size", "asks_itself", "is_unknown", "unknown_result", "written_into"]

_ANY = -(1 << 62)  # a number of a tensor may be any integer


def is_unknown(value: Any) -> bool:
    """Whether a number is a formula of sizes that only elements tell."""
    if not is_symbolic(value):
        return False
    env = value.shape_env
    unknown = getattr(env, "unbacked_names", ())
    return bool(unknown) and any(name in unknown for name in env.symbols_in(value))


def as_size(tracer: Tracer, number: Any) -> Any:
    """An integer that the program reads of a tensor, as a symbol without a value; other numbers as they are."""
    if not isinstance(number, ElementNumber) or number.kind is not int:
        return number
    env: Any = tracer.outside.varying.sizes.env
    return env.create_unbacked_symint(_ANY)


def asks_itself(tracer: Tracer, function: Callable[..., Any], args: Sequence[Any]) -> bool:
    """Whether what a call asks of unknown sizes the program asks, by Python's own operators, and no operator of tensors."""
    python = getattr(function, "__module__", "") in ("builtins", "_operator", "math")
    return (python or getattr(function, "__self__", None) is tracer) and not any(isinstance(x, Tensor) for x in args)


def unknown_result(tracer: Tracer, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result of a call that asked for elements to know its sizes, in a tuple; None where it is to be a break."""
    if (
        not (tracer.settings.numbers and tracer.settings.captures_sizes())
        or gives_numbers(function)
        or HOOKS.sized_by_elements is None
    ):
        return None
    env = tracer.outside.varying.sizes.env
    found = tracer.outside_of_trace(HOOKS.sized_by_elements, env, function, args, kwargs)
    return (_recorded(found[0]),) if found is not None and _is_sized(found) else None


def written_into(x: Any, value: Any) -> None:
    """Give a recorded tensor the history that it has when a value is written at places that only elements tell: the
    graph has the operation itself, and its record is never run.
    """
    x.mul_(1)
    if isinstance(value, Tensor) and value.requires_grad:
        x.add_(value.sum())


def _is_sized(found: Any) -> bool:
    """Whether a tensor among nested results has an unknown size."""
    if isinstance(found, (tuple, list)):
        return any(map(_is_sized, found))
    return isinstance(found, Tensor) and any(map(is_unknown, found.shape))


def _recorded(found: Any) -> Any:
    """Recorded tensors with the layouts of fake ones, in tuples and lists."""
    if isinstance(found, (tuple, list)):
        items = [_recorded(each) for each in found]
        return type(found)(*items) if hasattr(found, "_fields") else type(found)(items)
    if not isinstance(found, Tensor):
        return found
    public = HOOKS.public
    made = public.empty_strided(tuple(found.shape), tuple(found.stride()), dtype=found.dtype)
    return made.requires_grad_() if found.requires_grad else made
