"""`torch.distributed.rpc.functions`: marks of functions that others call."""

from __future__ import annotations

import functools
from typing import Any

__all__ = ["async_execution"]


def async_execution(fn: Any) -> Any:
    """Mark a function that returns a `torch.futures.Future`: its result is the answer, and no thread waits for it.

    Goes below `staticmethod` and `classmethod`, and on methods. RuntimeError at the caller where something else is returned.

    >>> import rushlight as torch
    >>> from rushlight.distributed import rpc
    >>> @rpc.functions.async_execution
    ... def later(x):
    ...     future = torch.futures.Future()
    ...     future.set_result(x + 1)
    ...     return future
    >>> later(1).wait()
    2
    """

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    wrapper._wrapped_async_rpc_function = fn  # type: ignore[attr-defined]
    return wrapper
