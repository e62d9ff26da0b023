"""Instructions of the `match` statement."""

from __future__ import annotations

import sys
from typing import Any

from rushlight._capture.bytecode.frame import Frame
from rushlight._capture.bytecode.interpreter import Interpreter

SEQUENCE, MAPPING, MATCH_SELF = 1 << 5, 1 << 6, 1 << 22  # flags of types, as collections.abc and CPython set them
KIND = "type" if sys.version_info < (3, 12) else "class"  # in the words of CPython
_MISSING = object()


def get_len(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Push the length of the top."""
    it.deliver(it.operations.call(len, [frame.stack[-1]], {}))


def match_mapping(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Push whether the top is a mapping."""
    frame.stack.append(it.operations.has_type_flag(frame.stack[-1], MAPPING))


def match_sequence(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Push whether the top is a sequence, and no string."""
    frame.stack.append(it.operations.has_type_flag(frame.stack[-1], SEQUENCE))


def match_keys(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Push the values of the keys at the top in the mapping below, or None where one is missing."""
    keys, subject = frame.stack[-1], it.operations.real(frame.stack[-2])
    if len(set(keys)) < len(keys):
        seen = set()
        for key in keys:
            if key in seen:
                raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
            seen.add(key)
    values: list[Any] | None = []
    for key in keys:
        value = it.complete(it.operations.call(subject.get, [key, _MISSING], {}))
        if value is _MISSING:
            values = None
            break
        assert values is not None
        values.append(value)
    frame.stack.append(None if values is None else tuple(values))


def match_class(it: Interpreter, frame: Frame, arg: int) -> None:
    """Replace subject, class and names by the values of the attributes, or None where the subject does not match."""
    names, kind, subject = frame.stack.pop(), frame.stack.pop(), frame.stack.pop()
    if not isinstance(kind, type):
        raise TypeError(f"called match pattern must be a {KIND}")
    if not it.operations.truth(it.complete(it.operations.call(isinstance, [subject, kind], {}))):
        frame.stack.append(None)
        return
    values = _attributes(it, subject, kind, names, arg)
    frame.stack.append(values)


def _attributes(
    it: Interpreter, subject: Any, kind: type, names: tuple[str, ...], count: int
) -> tuple[Any, ...] | None:
    values: list[Any] = []
    positional: tuple[Any, ...] = ()
    if count:
        try:
            positional = kind.__match_args__  # type: ignore[attr-defined]
        except AttributeError:
            itself = bool(kind.__flags__ & MATCH_SELF)
            allowed = int(itself)
        else:
            itself = False
            if type(positional) is not tuple:
                got = type(positional).__name__
                raise TypeError(f"{kind.__name__}.__match_args__ must be a tuple (got {got})")
            allowed = len(positional)
        if allowed < count:
            plural = "" if allowed == 1 else "s"
            raise TypeError(f"{kind.__name__}() accepts {allowed} positional sub-pattern{plural} ({count} given)")
        if itself:
            values.append(subject)
            count = 0
    seen: set[str] = set()
    for name in (*positional[:count], *names):
        if not isinstance(name, str):
            raise TypeError(f"__match_args__ elements must be strings (got {type(name).__name__})")
        if name in seen:
            raise TypeError(f"{kind.__name__}() got multiple sub-patterns for attribute {name!r}")
        seen.add(name)
        try:
            values.append(it.complete(it.operations.load_attr(subject, name)))
        except AttributeError:
            return None
    return tuple(values)
