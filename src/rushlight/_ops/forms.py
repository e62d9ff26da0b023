"""The forms of a call, for a Python function whose own signature does not show them.

    @forms(
        "(input: Tensor) -> Tensor",
        "(input: Tensor, dim: int, keepdim: bool = False, *, out: tuple[Tensor, ...] | None = None) -> return_types.max",
    )
    def max(input, *args, **kwargs): ...

Each is a signature in Python's notation.  Type stubs and documentation pages are generated from them; a function
without forms is described by its own annotations.  A form may use the names of the function's module, and those of
`_surface/reference/annotations.py` (`Tensor`, `Scalar`, `dtype`, `Device`, `return_types.max`, ...).  `**options: Factory` stands
for the keywords of every function that creates tensors; `... -> T` keeps the function's own parameters and declares
only its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["forms", "forms_of"]

_F = TypeVar("_F", bound=Callable[..., object])


def forms(*signatures: str) -> Callable[[_F], _F]:
    """Declare the forms of a function's calls; returns the same function."""

    def keep(function: _F) -> _F:
        function.__dict__["__forms__"] = signatures
        return function

    return keep


def forms_of(function: object) -> tuple[str, ...]:
    """The declared forms of a function, or ()."""
    return getattr(function, "__dict__", {}).get("__forms__", ())
