"""Results of special methods: Python refuses those of other types, as a `__bool__` that gives a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rushlight._capture.recording import HostNumber
from rushlight._capture.recording.element_numbers import ElementNumber
from rushlight._engine.core.tensor import Tensor
from rushlight._types.shape_env import Undecided
from rushlight._types.symbols import is_symbolic

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["called", "iterator"]


def called(tracer: Tracer, owner: Any, method: Any, name: str, ask: Callable[[Any], Any]) -> Any:
    """Result of `ask` for an object whose special method is followed: Python itself looks at it.  A number that the program
    computes stays as it is.
    """
    found = tracer.real(tracer.nested(method, ()))
    if isinstance(found, (HostNumber, ElementNumber, Undecided, Tensor)) or is_symbolic(found):
        return found
    stand_in = type(type(owner).__name__, (), {name: lambda self: found})
    return tracer.native(ask, stand_in())


def iterator(tracer: Tracer, made: Any) -> Any:
    """The iterator that a followed `__iter__` returned; TypeError for anything else."""
    real = tracer.real(made)
    if not isinstance(real, Iterator) and tracer.method_of(real, "__next__") is None:
        raise TypeError(f"iter() returned non-iterator of type '{type(real).__name__}'")
    return made
