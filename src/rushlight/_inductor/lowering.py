"""`torch._inductor.lowering`: how Inductor computes operators in its own loops.

Compiled programs here take an operator's definition over primitives, and there are no loops of Inductor that a function could
give.  So functions that are registered are kept and never called, and a program that compiles such an operator warns, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rushlight._interface.base import absent_function, warn_once
from rushlight._interface.dispatch import HOOKS

__all__ = ["lowerings", "register_lowering", "to_dtype"]

lowerings: dict[Any, Callable[..., Any]] = {}


def register_lowering(aten_fn: Any, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that puts a function into `lowerings` for an operator, or for each of a list.

    UserWarning, once for an operator, when a program is compiled that calls it: the function is not used.
    """

    def registered(function: Callable[..., Any]) -> Callable[..., Any]:
        for each in aten_fn if isinstance(aten_fn, (list, tuple)) else [aten_fn]:
            lowerings[each] = function
        HOOKS.operators_compiled = _warn
        return function

    return registered


def _warn(compiled: Iterable[str]) -> None:
    """Warn of lowerings for operators of a program."""
    names = {name.partition(".")[0] for name in compiled}
    for each in lowerings:
        if _name(each) in names:
            warn_once(
                f"torch._inductor.lowering: the function that was registered for {each} is not called: rushlight has no loops of Inductor, "
                "and compiles the operator from its own definition"
            )


def _name(operator: Any) -> str:
    """An operator's name without its form: "aten::gelu"."""
    packet = getattr(operator, "overloadpacket", operator)
    return str(getattr(packet, "_qualified_op_name", operator))


to_dtype = absent_function("torch._inductor.lowering.to_dtype", "there are no loops of Inductor here")
