"""`functionalize` and `debug_unwrap`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rushlight._engine.batched import BatchedTensor
from rushlight._engine.tensor import Tensor
from rushlight._engine.transformed import Transformed

__all__ = ["debug_unwrap", "functionalize"]


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """What is inside of a tensor that a transform made: the whole batch, or the value without its tangent; for looking at, not for computing.

    With `recurse`, through all levels.
    """
    while isinstance(tensor, Transformed):
        tensor = tensor.value if isinstance(tensor, BatchedTensor) else tensor.primal  # type: ignore[attr-defined]
        if not recurse:
            break
    return tensor


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """A function that computes what `func` does; where it is traced, changes in place (and with "mutations_and_views" views) are not seen.

    Programs are traced here into graphs of primitives, which know neither changes in place nor views: both settings hold for every function, and
    what is returned runs `func` as it is.  RuntimeError for another `remove`.
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='mutations'): received invalid argument for remove=. Valid options are:\n     remove='mutations': all inplace and "
            f"out= operators will be removed.\n     remove='mutations_and_views': ... but got {remove!r}."
        )

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapped
