"""Functions that treat numbers which a program reads of its tensors in a way of their own.

`torch.full` and the like make a tensor and fill it.  What `torch._check` and the like look at is taken to hold, and the
program looks whether it does; where it does not, the frames run as they are and raise what they raise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rushlight._capture.recording.element_numbers import ElementNumber, fails
from rushlight._capture.trace.numbers.unknown_sizes import is_unknown
from rushlight._capture.trace.outside import ABSENT
from rushlight._capture.trace.reports.events import Break
from rushlight._engine.core.tensor import Tensor
from rushlight._types.shape_env import Undecided

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["FILLED", "check", "check_is_size", "check_with", "filling", "listed", "noted"]

FILLED = {"full": 1, "full_like": 1, "new_full": 2, "tensor": 0, "scalar_tensor": 0}  # place of the number
_MANY = 1024  # elements: each is an operator


def filling(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes a tensor of one number, for a number of the program, too."""
    place = FILLED[function.__name__]

    def fill(*args: Any, **kwargs: Any) -> Any:
        number = args[place] if len(args) > place else kwargs.get("fill_value")
        if not isinstance(number, ElementNumber) or kwargs.get("requires_grad"):
            return function(*args, **kwargs)
        zero = number.kind(0)
        made = (
            function(*args[:place], zero, *args[place + 1 :], **kwargs)
            if len(args) > place
            else function(*args, **{**kwargs, "fill_value": zero})
        )
        return made.fill_(number.tensor)

    return fill


def listed(tracer: Tracer, x: Any) -> Any:
    """`tolist`: the elements as numbers of the program, in nested lists; ABSENT where they are none, or many."""
    if (
        not tracer.rec.captures_elements
        or not isinstance(x, Tensor)
        or not tracer.rec.is_recorded(x)
        or x._spec.numel > _MANY
    ):
        return ABSENT
    return _nested(tracer, x)


def _nested(tracer: Tracer, x: Tensor) -> Any:
    if not x.dim():
        return tracer.call(x.item, (), {})
    return [_nested(tracer, tracer.load_item(x, k)) for k in range(x.shape[0])]


def check(tracer: Tracer, cond: Any = None, message: Any = None) -> Any:
    """`torch._check` and those that raise other errors; ABSENT for conditions that are known."""
    if not isinstance(cond, ElementNumber):
        return ABSENT
    tracer.native(lambda: tracer.rec.check(fails(cond)))
    return None


def noted(tracer: Tracer, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A check as a node of a graph for another backend; ABSENT where it is to be followed."""
    given = (*args, *kwargs.values())
    if function.__name__ == "_check_is_size" and any(map(is_unknown, given)):
        if len(given) > 1:
            raise Break("torch._check_is_size with further arguments in a graph for another backend")
        tracer.is_size(function, given[0])
        return None
    if not any(isinstance(x, (ElementNumber, Undecided)) for x in given):
        return ABSENT
    cond, message = (*args, kwargs.get("cond"))[0], (*args[1:], kwargs.get("message"))[0]
    if len(given) > 2 or not isinstance(cond, (ElementNumber, Undecided)):
        raise Break("a check with further arguments in a graph for another backend")
    tracer.checked(function, cond, message)
    return None


def check_with(tracer: Tracer, error_type: Any, cond: Any = None, message: Any = None) -> Any:
    """`torch._check_with`."""
    return check(tracer, cond)


def check_is_size(tracer: Tracer, i: Any = None, message: Any = None, *, max: Any = None) -> Any:
    """`torch._check_is_size`."""
    if not isinstance(i, ElementNumber):
        return ABSENT
    check(tracer, i >= 0)
    if max is not None:
        check(tracer, i <= max)
    return None
