"""Grad modes: `no_grad`, `enable_grad`, `set_grad_enabled`, `inference_mode`; each a context manager and a decorator."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from types import GeneratorType
from typing import Any

from rushlight._engine.core.state import GRAD, INFERENCE, STATE

__all__ = [
    "enable_grad",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
]


def is_grad_enabled() -> bool:
    """Whether operations are recorded in this thread."""
    return STATE.word & GRAD != 0


def is_inference_mode_enabled() -> bool:
    """Whether this thread is in inference mode."""
    return STATE.word & INFERENCE != 0


_KEPT = GRAD | INFERENCE  # what a mode puts back
_OTHERS = ~_KEPT


class Decorating:
    """A context manager that is a decorator too, for functions and generators: every call, every step of a generator,
    is a block of its own.
    """

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *exc: object) -> None:
        raise NotImplementedError

    def clone(self) -> Any:
        """A fresh one with the same arguments."""
        raise NotImplementedError

    @staticmethod
    def in_contexts(make: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
        """A function each call of which runs in a new context; traces follow it into the function."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with make():
                return function(*args, **kwargs)

        return wrapped

    def __call__(self, function: Any) -> Any:
        if isinstance(function, type):
            warnings.warn(
                f"Decorating classes is deprecated, and {type(self).__name__} reaches their construction alone: decorate the methods of {function.__name__}",
                FutureWarning,
                stacklevel=2,
            )
        if function.__code__.co_flags & 0x20 if hasattr(function, "__code__") else False:
            return self._decorate_generator(function)

        return self.in_contexts(self.clone, function)

    def _decorate_generator(self, function: Callable[..., GeneratorType[Any, Any, Any]]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            sent: Any = None
            try:
                with self.clone():
                    item = next(generator)
                while True:
                    try:
                        sent = yield item
                    except GeneratorExit:
                        with self.clone():
                            generator.close()
                        raise
                    except BaseException:  # hand over whatever was thrown in
                        with self.clone():
                            item = generator.throw(sys.exc_info()[1])  # type: ignore[arg-type]
                    else:
                        with self.clone():
                            item = generator.send(sent)
            except StopIteration as stop:
                return stop.value

        return wrapped


class _Mode(Decorating):
    """Changes the state word for a block."""

    def __init__(self) -> None:
        self._before: list[int] = []

    def __exit__(self, *exc: object) -> None:
        STATE.word = (STATE.word & _OTHERS) | (self._before.pop() & _KEPT)

    def clone(self) -> Any:
        return type(self)()


_bare = object.__new__


class no_grad(_Mode):
    """Inside, nothing is recorded for backward.

    >>> import rushlight as torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    def __new__(cls, function: Any = None) -> Any:
        made = _bare(cls)
        if function is None:
            return made
        made.__init__()  # type: ignore[misc]
        return made(function)

    def __init__(self, function: Any = None) -> None:
        self._before = []

    def __enter__(self) -> None:
        word = STATE.word
        self._before.append(word)
        STATE.word = word & ~GRAD


class enable_grad(no_grad):
    """Inside, operations are recorded even within `no_grad`."""

    def __enter__(self) -> None:
        word = STATE.word
        self._before.append(word)
        STATE.word = word if word & INFERENCE else word | GRAD  # inference mode knows no graph, whoever asks


class set_grad_enabled(_Mode):
    """Switches recording on or off: at once, and back at the end when used with `with`."""

    def __init__(self, mode: bool) -> None:
        if mode is not True and mode is not False:
            raise TypeError(
                f"set_grad_enabled(): argument 'enabled' (position 1) must be bool, not {type(mode).__name__}"
            )
        self._before = []
        self.mode = mode
        self._at_start = word = STATE.word
        STATE.word = word | GRAD if mode and not word & INFERENCE else word & ~GRAD

    def __enter__(self) -> None:
        self._before.append(self._at_start)
        word = STATE.word
        STATE.word = word | GRAD if self.mode and not word & INFERENCE else word & ~GRAD

    def __call__(self, function: Any) -> Any:
        STATE.word = (STATE.word & ~GRAD) | (self._at_start & GRAD)
        return super().__call__(function)

    def clone(self) -> set_grad_enabled:
        return type(self)(self.mode)


class inference_mode(_Mode):
    """Stricter than `no_grad`: what is made inside keeps no version and can never take part in a graph."""

    def __new__(cls, mode: Any = True) -> Any:
        made = super().__new__(cls)
        if isinstance(mode, bool):
            return made
        made.__init__()  # type: ignore[misc]
        return made(mode)

    def __init__(self, mode: Any = True) -> None:
        super().__init__()
        self.mode = mode if isinstance(mode, bool) else True

    def __enter__(self) -> None:
        word = STATE.word
        self._before.append(word)
        STATE.word = (word | INFERENCE) & ~GRAD if self.mode else (word & ~INFERENCE) | GRAD

    def clone(self) -> inference_mode:
        return type(self)(self.mode)
