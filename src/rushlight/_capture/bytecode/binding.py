"""The locals that a call begins with: arguments bound to parameters as CPython does."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from rushlight._capture.bytecode.code import decode
from rushlight._capture.bytecode.frame import NULL

__all__ = ["bind"]

RUNS_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def bind(function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The list of locals with the parameters bound; TypeError, with CPython's words, where they do not fit."""
    code = function.__code__
    size = len(decode(code).local_names)
    count = code.co_argcount
    if not kwargs and len(args) == count and not code.co_kwonlyargcount and not code.co_flags & 12:
        return [*args, *[NULL] * (size - count)]
    locals = [NULL] * size
    if not _bind(locals, function, code, args, kwargs):
        _refuse(function, args, kwargs)
    return locals


def _bind(
    locals: list[Any], function: FunctionType, code: CodeType, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Fill the locals; False where the arguments do not fit."""
    count, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    taken = min(len(args), count)
    locals[:taken] = args[:taken]
    if code.co_flags & inspect.CO_VARARGS:
        locals[named] = tuple(args[count:])
    elif len(args) > count:
        return False
    rest: dict[str, Any] | None = None
    if code.co_flags & inspect.CO_VARKEYWORDS:
        rest = locals[named + bool(code.co_flags & inspect.CO_VARARGS)] = {}
    if kwargs:
        places = {name: i for i, name in enumerate(code.co_varnames[:named]) if i >= code.co_posonlyargcount}
        for name, value in kwargs.items():
            place = places.get(name)
            if place is None:
                if rest is None or not isinstance(name, str):
                    return False
                rest[name] = value
            elif locals[place] is not NULL:
                return False
            else:
                locals[place] = value
    return _fill(locals, function, code)


def _fill(locals: list[Any], function: FunctionType, code: CodeType) -> bool:
    """Put defaults where nothing was given; False where there is none."""
    count, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    defaults = function.__defaults__ or ()
    first = count - len(defaults)
    for i in range(count):
        if locals[i] is NULL:
            if i < first:
                return False
            locals[i] = defaults[i - first]
    by_name = function.__kwdefaults__ or {}
    for i in range(count, named):
        if locals[i] is NULL:
            name = code.co_varnames[i]
            if name not in by_name:
                return False
            locals[i] = by_name[name]
    return True


def _refuse(function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise the TypeError of CPython: call a function with the same parameters and nothing in it."""
    code = function.__code__
    decoded = decode(code)
    if decoded.bind_stub is None:
        nothing = (lambda: None).__code__
        decoded.bind_stub = nothing.replace(
            co_argcount=code.co_argcount,
            co_posonlyargcount=code.co_posonlyargcount,
            co_kwonlyargcount=code.co_kwonlyargcount,
            co_varnames=code.co_varnames,
            co_nlocals=code.co_nlocals,
            co_flags=code.co_flags & ~RUNS_LATER,
            co_name=code.co_name,
            co_qualname=code.co_qualname,
        )
    stub = FunctionType(decoded.bind_stub, {}, function.__name__, function.__defaults__)
    stub.__qualname__, stub.__kwdefaults__ = function.__qualname__, function.__kwdefaults__
    stub(*args, **kwargs)
    raise AssertionError(f"CPython takes the arguments of {function.__qualname__}() that were refused")
