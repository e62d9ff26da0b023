"""Settings: each is one typed, documented object, readable from the environment and settable in code.

>>> from rushlight._base.knobs import Knob
>>> depth = Knob("example_depth", env="RUSHLIGHT_EXAMPLE_DEPTH", kind=int, default=3, doc="How deep to look.")
>>> depth.get()
3
>>> with depth.scoped(5):
...     depth.get()
5
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

__all__ = ["KNOBS", "PLANNED", "Knob", "on_planned", "one_of"]

T = TypeVar("T")
KNOBS: dict[str, Knob[Any]] = {}

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}
_UNSET: Any = object()
# Its last item is a number for the values of all knobs that plans depend on: what was compiled is used while it is the same.
PLANNED = [0]
_KNOWN: dict[tuple[Any, ...], int] = {}
_FORGET: list[Callable[[], None]] = []


def on_planned(forget: Callable[[], None]) -> None:
    """Call `forget` when a knob that plans depend on is set to another value."""
    _FORGET.append(forget)


def _values() -> tuple[Any, ...]:
    return tuple(str(knob.get()) for knob in KNOBS.values() if knob.planned)


def _parse_bool(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"expected one of 1/0/true/false/yes/no/on/off, got {text!r}")


def one_of(*words: str) -> Callable[[str], str]:
    """The `kind` of a knob whose value is one of a few words.

    >>> one_of("driver", "emulated", "none")("other")
    Traceback (most recent call last):
        ...
    ValueError: expected driver, emulated or none
    """

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"expected {', '.join(words[:-1])} or {words[-1]}")
        return text

    return parse


class Knob(Generic[T]):
    """One setting.  `get` prefers a value set in code, then the environment, then the default (may be a function).

    `former` is the environment variable's name in the version before: it is still read, with a FutureWarning.  Where plans
    are made by a setting (`planned`), a change makes them anew.
    """

    __slots__ = ("_value", "default", "doc", "env", "former", "kind", "name", "planned")

    def __init__(
        self, name: str, *, env: str, kind: Callable[[str], T], default: T | Callable[[], T], doc: str, former: str = "",
        planned: bool = False,
    ) -> None:  # fmt: skip
        if name in KNOBS:
            raise ValueError(f"knob {name!r} is registered twice")
        self.name, self.env, self.kind, self.default, self.doc, self.former = name, env, kind, default, doc, former
        self._value: T = _UNSET
        self.planned = planned
        KNOBS[name] = self

    def get(self) -> T:
        """The current value."""
        if self._value is not _UNSET:
            return self._value
        env, text = self.env, os.environ.get(self.env)
        if text is None and self.former in os.environ:
            env, text = self.former, os.environ[self.former]
            warnings.warn(
                f"{env} is called {self.env} now; the old name will not be read in the next version",
                FutureWarning,
                stacklevel=2,
            )
        if text is not None:
            try:
                self._value = _parse_bool(text) if self.kind is bool else self.kind(text)  # type: ignore[assignment]
            except ValueError as error:
                raise ValueError(f"environment variable {env}={text!r}: {error}") from None
        else:
            self._value = self.default() if callable(self.default) else self.default
        return self._value

    def _change(self, value: T) -> None:
        if not self.planned:
            self._value = value
            return
        before = _values()
        _KNOWN.setdefault(before, len(_KNOWN))
        self._value = value
        if (now := _values()) != before:
            PLANNED[-1] = _KNOWN.setdefault(now, len(_KNOWN))
            for forget in _FORGET:
                forget()

    def set(self, value: T) -> None:
        """Set the value for the rest of the process."""
        self._change(value)

    def reset(self) -> None:
        """Discard a value set in code; the next `get` reads the environment again."""
        self._change(_UNSET)

    @contextmanager
    def scoped(self, value: T) -> Iterator[None]:
        """Set the value inside a `with` block."""
        before = self._value
        self._change(value)
        try:
            yield
        finally:
            self._change(before)
