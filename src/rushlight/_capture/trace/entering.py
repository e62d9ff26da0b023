"""Functions that a trace follows: their code, their cells and the defaults of missing arguments are guarded."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from rushlight._base.own_names import own_module
from rushlight._capture.bytecode import Enter
from rushlight._capture.trace.outside import is_plain
from rushlight._capture.trace.package_code import PACKAGE

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["enter", "guard_defaults", "note_closure", "with_defaults"]


def enter(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **how: Any) -> Enter:
    """The call of a function that is followed; `how` are further arguments of `Enter`."""
    if tracer.repeats is not None:
        tracer.repeats.entered(function)
    if isinstance(function, types.FunctionType) and id(function) not in tracer.made_functions:
        note_closure(tracer, function)
        if own_module(function.__globals__.get("__name__")).partition(".")[0] != PACKAGE:
            code_of = tracer.constants.name(function.__code__)  # editors that reload modules give functions other code
            tracer.reads.check(tracer.constant_source(function), f"{{}}.__code__ is {code_of}")
        if function.__defaults__ or function.__kwdefaults__:
            args, kwargs = with_defaults(tracer, function, args, kwargs)
        _guard_missing(tracer, function, args, kwargs)
    return Enter(function, args, kwargs, **how)


def note_closure(tracer: Tracer, function: types.FunctionType) -> None:
    """Note where the cells of a function from outside come from."""
    source = tracer.constant_source(function)
    for number, cell in enumerate(function.__closure__ or ()):
        if source.is_constant:
            tracer.outside.adopt(cell, tracer.reads.constant(cell))
        else:
            closure = tracer.reads.source("{}.__closure__", source)
            tracer.outside.adopt(cell, tracer.reads.source(f"{{}}[{number}]", closure))


def with_defaults(
    tracer: Tracer, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, with the defaults of those that are missing, guarded."""
    code, source = function.__code__, tracer.constant_source(function)
    names = code.co_varnames[: code.co_argcount]
    given = dict(kwargs)
    defaults = function.__defaults__ or ()
    held = tracer.reads.source("{}.__defaults__", source)
    if defaults:  # they belong to the last parameters
        tracer.reads.check(held, f"len({{}}) == {len(defaults)}")
    missing = [name for name in names[len(args) : len(names) - len(defaults)] if name not in kwargs]
    for number, value in enumerate(defaults):
        place = len(names) - len(defaults) + number
        if place >= len(args) and names[place] not in kwargs:
            wrapped = tracer.outside.wrap(value, tracer.reads.source(f"{{}}[{number}]", held))
            if place >= code.co_posonlyargcount:
                given[names[place]] = wrapped
            elif place == len(args) and not missing:
                args = (*args, wrapped)
    named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    for name, value in (function.__kwdefaults__ or {}).items():
        if name not in kwargs and name in named:
            base = tracer.reads.source("{}.__kwdefaults__", source)
            given[name] = tracer.outside.wrap(value, tracer.reads.source(f"{{}}[{name!r}]", base))
    return args, given


def _guard_missing(tracer: Tracer, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Require that parameters without an argument, for which the call raises a TypeError, get no defaults."""
    code, count = function.__code__, function.__code__.co_argcount
    names = code.co_varnames[: count + code.co_kwonlyargcount]
    if not function.__defaults__ and any(name not in kwargs for name in names[len(args) : count]):
        tracer.reads.check(tracer.constant_source(function), "not {}.__defaults__")
    held = function.__kwdefaults__
    for name in [name for name in names[count:] if name not in kwargs]:
        if held is None:
            tracer.reads.check(tracer.constant_source(function), "{}.__kwdefaults__ is None")
        else:
            place = tracer.reads.source("{}.__kwdefaults__", tracer.constant_source(function))
            tracer.reads.check(place, f"{name!r} not in {{}}")


def guard_defaults(tracer: Tracer, function: types.FunctionType) -> None:
    """Require that a function has the defaults it has, for native code that reads them."""
    if id(function) in tracer.made_functions:
        return
    source, name = tracer.constant_source(function), tracer.constants.name
    for attribute in ("__defaults__", "__kwdefaults__"):
        held = getattr(function, attribute)
        if held is None:
            tracer.reads.check(source, f"{{}}.{attribute} is None")
            continue
        place = tracer.reads.source(f"{{}}.{attribute}", source)
        tracer.reads.check(place, f"{{}} is not None and len({{}}) == {len(held)}")
        for key, value in held.items() if isinstance(held, dict) else enumerate(held):
            item = tracer.reads.source(f"{{}}[{key!r}]", place)
            if is_plain(value):
                tracer.outside.guard_plain(value, item)
            else:
                tracer.reads.check(item, f"{{}} is {name(value)}")
