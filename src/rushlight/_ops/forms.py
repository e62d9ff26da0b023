"""The forms in which users write a call, where a Python function takes more than its own signature says.

    @forms(
        "(input: Tensor) -> Tensor",
        "(input: Tensor, dim: int, keepdim: bool = False, *, out: tuple[Tensor, ...] | None = None) -> return_types.max",
    )
    def max(input, *args, **kwargs): ...

Each is a signature in Python's notation.  Type stubs and documentation pages are made from them; a function without forms is
described by its own annotations.  The names that may stand in a form are those of the function's module, and the words of
`_surface/annotations.py` (`Tensor`, `Scalar`, `dtype`, `Device`, `return_types.max`, ...).  `**options: Factory` stands for the keywords of
every function that makes tensors; `... -> T` keeps the function's own parameters and says only what they give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["forms", "forms_of"]

_F = TypeVar("_F", bound=Callable[..., object])


def forms(*signatures: str) -> Callable[[_F], _F]:
    """Say how a function may be called; it is the same function afterwards."""

    def keep(function: _F) -> _F:
        function.__dict__["__forms__"] = signatures
        return function

    return keep


def forms_of(function: object) -> tuple[str, ...]:
    """The forms that were given to a function, or ()."""
    return getattr(function, "__dict__", {}).get("__forms__", ())
