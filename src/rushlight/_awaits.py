"""Calls that are made when their value is asked for, as `torch._awaits`.

>>> import rushlight as torch
>>> later = torch.jit._awaitable(lambda x: x * 2, 21)
>>> torch.jit._awaitable_wait(later)
42
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, TypeVar

__all__ = ["Await"]

W = TypeVar("W")


class _Await(Generic[W]):
    """A call of `function(*args)` that `wait` makes, once; its value serves all further calls.

    Attributes of the value are those of this object, which makes the call for them.
    """

    def __init__(self, function: Callable[..., W] | None, args: tuple[Any, ...] = (), value: Any = None) -> None:
        self._function, self._args, self._value = function, args, value
        self._nowait = self._known = function is None
        self._lock = RLock()

    @classmethod
    def of_value(cls, value: W) -> _Await[W]:
        """One whose value is known."""
        return cls(None, (), value)

    def wait(self) -> W:
        """The value.  An error of the call is raised, and the next `wait` tries again."""
        with self._lock:
            if not self._known:
                assert self._function is not None
                self._value = self._function(*self._args)
                self._known = True
        found: W = self._value
        return found

    def fn(self) -> Callable[..., W]:
        """The function; RuntimeError where the value was given."""
        if self._function is None:
            raise RuntimeError("this Await was made of a value, not of a function")
        return self._function

    def args(self) -> tuple[Any, ...]:
        """The arguments of the function."""
        return self._args

    def is_nowait(self) -> bool:
        """Whether the value was given."""
        return self._nowait

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(self.wait(), name)


Await = _Await
