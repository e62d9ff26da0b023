"""Functions of the standard library that a trace treats by itself, in the place of following their code.

Warnings and log records wait for the end of the trace, and are given then as the program's line would have given them.
What is read of the process, as its environment, is guarded.  Functions of plain values run as they are.
"""

from __future__ import annotations

import copy
import functools
import importlib.metadata
import importlib.util
import inspect
import logging
import os
import os.path
import re
import sys
import types
import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rushlight._base.own_names import own_module
from rushlight._capture.recording import DataDependentError, HostNumber
from rushlight._capture.trace.entering import guard_defaults
from rushlight._capture.trace.objects import classes
from rushlight._capture.trace.outside import ABSENT, is_plain
from rushlight._capture.trace.reports.events import Break
from rushlight._capture.trace.reports.warned import FILTERING, caller, change_filters, warn
from rushlight._engine.core.tensor import Tensor
from rushlight._types.symbols import is_symbolic

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["instead", "memoized"]


def instead(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call with a handler here; ABSENT for all others."""
    handler = _HANDLERS.get(function) or classes.HANDLERS.get(function)
    if handler is None:
        if (
            args
            and isinstance(function, types.FunctionType)
            and function.__globals__.get("__name__") in ("os", "_collections_abc")
            and tracer.real(args[0]) is os.environ
        ):
            return _environment(tracer, function.__name__, [tracer.real(x) for x in args[1:]], kwargs)
        return ABSENT
    return handler(tracer, *[tracer.real(x) for x in args], **{key: tracer.real(x) for key, x in kwargs.items()})


def memoized(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function under `functools.lru_cache` with plain arguments: the cached result, or a new one that is cached.
    ABSENT for other arguments.
    """
    args = tuple([_settled(tracer.real(x)) for x in args])
    kwargs = {key: _settled(tracer.real(x)) for key, x in kwargs.items()}
    if not all(_is_constant(tracer, x) for x in (*args, *kwargs.values())):
        return ABSENT
    if not tracer.outside.is_outside(function):
        return tracer.native(function, *args, **kwargs)  # made by the trace, which it calls back
    tracer.unkept = "it holds the result of a memoized function"
    found = tracer.outside_of_trace(function, *args, **kwargs)
    if own_module(getattr(function, "__module__", None)).partition(".")[0] not in _WITHOUT_STATE:
        name = tracer.constants.name  # its memory may be cleared
        given = ", ".join([*map(name, args), *[f"{key}={name(x)}" for key, x in kwargs.items()]])
        same = f"== {name(found)}" if is_plain(found) and found == found else f"is {name(found)}"
        tracer.reads.check(tracer.constant_source(function), f"{{}}({given}) {same}")
    return found if is_plain(found) else tracer.wrap_constant(found)


def _settled(value: Any) -> Any:
    """A symbolic number as the number that it is in this trace: a function of the program keeps it.  DataDependentError
    for one that each call passes on.
    """
    if isinstance(value, HostNumber):
        raise DataDependentError("a memoized function asks for the value of a number that each call passes on")
    if type(value) is tuple:
        return tuple([_settled(x) for x in value])
    return value.pin() if is_symbolic(value) else value


_WITHOUT_STATE = sys.stdlib_module_names | {"rushlight"}  # modules whose functions give the same at every time


def memo(tracer: Tracer, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply `functools.lru_cache` to a function: the cache belongs to the trace."""
    return tracer.native(MEMO, functools.partial(tracer.nested_call, function), *args, **kwargs)


MEMO: Any = type(functools.lru_cache(len))
DISPATCH = functools.singledispatch(len).dispatch.__code__


def dispatched(tracer: Tracer, dispatch: Any, kind: Any) -> Any:
    """Which function a generic function (`functools.singledispatch`) calls for a class."""
    kind = tracer.real(kind)
    found = tracer.outside_of_trace(dispatch, kind)
    name = tracer.constants.name
    tracer.reads.check(tracer.constant_source(dispatch), f"{{}}({name(kind)}) is {name(found)}")
    tracer.outside.adopt(found, tracer.reads.constant(found))
    return found


def _is_constant(tracer: Tracer, value: Any) -> bool:
    """Whether a value is the same at every call for which the trace is used."""
    if is_plain(value) or isinstance(value, (type, types.ModuleType, logging.Logger)):
        return True
    return type(value) is tuple and all(_is_constant(tracer, x) for x in value)


# ***** plain functions *****


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """A handler that runs a function of plain values."""

    def handler(tracer: Tracer, *args: Any, **kwargs: Any) -> Any:
        if not all(_is_constant(tracer, x) or isinstance(x, (re.Pattern, re.Match)) for x in (*args, *kwargs.values())):
            raise Break(f"calls {function.__module__}.{function.__qualname__}() with objects")
        tracer.unkept = "it holds the result of a function that is not followed"
        return tracer.noted(function(*args, **kwargs))

    return handler


def _signature(tracer: Tracer, function: Any, **kwargs: Any) -> Any:
    """`inspect.signature`: of functions that the trace has guarded by their code, and of classes."""
    held = function.__func__ if isinstance(function, types.MethodType) else function
    if not isinstance(held, (types.FunctionType, type)) or id(held) in tracer.made_functions:
        raise Break(f"calls inspect.signature() of a {type(function).__name__}")
    source = tracer.constant_source(held)
    tracer.reads.check(source, f"{{}} is {tracer.constants.name(held)}")
    made = [getattr(held, name) for name in ("__init__", "__new__")]
    for each in made if isinstance(held, type) else (held, inspect.unwrap(held)):
        if isinstance(each, types.FunctionType):
            guard_defaults(tracer, each)
    return tracer.wrap_constant(tracer.outside_of_trace(inspect.signature, function, **kwargs))


def _find_spec(tracer: Tracer, name: str, package: str | None = None) -> Any:
    """`importlib.util.find_spec`: the packages that there are do not change while a program is compiled."""
    tracer.unkept = "it depends on which packages there are"
    found = importlib.util.find_spec(name, package)
    return None if found is None else tracer.wrap_constant(found)


# ***** the environment *****


def _environment(tracer: Tracer, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    key = args[0] if args else None
    if not isinstance(key, str) or name not in ("get", "__getitem__", "__contains__") or kwargs.keys() - {"default"}:
        raise Break(f"calls {name}() of the environment")
    found = tracer.outside.wrap(
        os.environ.get(key), tracer.reads.source(f"{{}}.get({key!r})", tracer.reads.constant(os.environ))
    )
    if name == "__contains__":
        return found is not None
    if found is not None:
        return found
    if name == "__getitem__":
        raise KeyError(key)
    return args[1] if len(args) > 1 else kwargs.get("default")


def _getenv(tracer: Tracer, key: Any, default: Any = None) -> Any:
    return _environment(tracer, "get", [key, default], {})


# ***** warnings and log records *****


def _effect(tracer: Tracer, what: str, function: Callable[..., Any], *args: Any) -> None:
    """Have a function called when the trace ends, with values that are the same then."""
    for x in args:
        if not _is_fixed(x):
            raise Break(f"{what} a {type(x).__name__}")
    tracer.effects.append((function, args))


def _is_fixed(value: Any) -> bool:
    if is_plain(value) or isinstance(value, (type, logging.Logger)):
        return True
    if isinstance(value, dict):
        return type(value) is dict and all(is_plain(x) for item in value.items() for x in item)
    return isinstance(value, tuple) and all(_is_fixed(x) for x in value)


_LEVELS = {
    logging.Logger.debug: logging.DEBUG, logging.Logger.info: logging.INFO, logging.Logger.warning: logging.WARNING,
    logging.Logger.error: logging.ERROR,
    logging.Logger.critical: logging.CRITICAL,
}  # fmt: skip


def _logs(level: int | None) -> Callable[..., None]:
    def handler(tracer: Tracer, logger: Any, *args: Any, stacklevel: int = 1, extra: Any = None, **rest: Any) -> None:
        if rest or extra is not None or type(logger) not in (logging.Logger, logging.RootLogger):
            raise Break("logs an exception or the like")
        used, args = (args[0], args[1:]) if level is None else (level, args)
        place = caller(tracer, stacklevel)
        if place is None:
            raise Break("logs as a line outside of the compiled function")
        if _seen_by(tracer, logger):
            raise Break("logs to a handler of the program's own")
        _effect(tracer, "logs", _log, logger, used, args[0], args[1:], *place[:3])

    return handler


def _seen_by(tracer: Tracer, logger: logging.Logger | None) -> bool:
    """Whether the program's modules define a handler that gets a logger's records: what it does is seen at once."""
    modules = {frame.globals.get("__name__") for interpreter in tracer.interpreters for frame in interpreter.frames}
    while logger is not None:
        if any(type(handler).__module__ in modules for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _log(
    logger: logging.Logger, level: int, message: str, args: tuple[Any, ...], filename: str, line: int, name: str
) -> None:
    """Log as a line of the program."""
    if logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(logger.name, level, filename, line, message, args, None, name))


def _is_enabled(tracer: Tracer, logger: logging.Logger, level: int) -> bool:
    found = logger.isEnabledFor(level)
    tracer.reads.check(tracer.constant_source(logger), f"{{}}.isEnabledFor({level}) is {found}")
    return found


def _effective_level(tracer: Tracer, logger: logging.Logger) -> int:
    found = logger.getEffectiveLevel()
    tracer.reads.check(tracer.constant_source(logger), f"{{}}.getEffectiveLevel() == {found}")
    return found


# ***** copies *****


def _copy(tracer: Tracer, value: Any) -> Any:
    kind = type(value)
    if is_plain(value) or kind in _ATOMS or isinstance(value, type):
        return value
    if kind in (list, dict, set, tuple, frozenset, OrderedDict, defaultdict, deque):
        return copy.copy(value)
    method = tracer.method_of(value, "__copy__")
    if method is not None:
        return tracer.call(method, (), {})
    if isinstance(value, Tensor):
        return tracer.native(copy.copy, value)
    made = _bare(tracer, value)
    for name in _names(tracer, value):
        object.__setattr__(made, name, tracer.real(tracer.instance_attribute(value, name)))
    return made


_ATOMS = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, property)


def _deepcopy(tracer: Tracer, value: Any, memo: Any = None) -> Any:
    return _deep(tracer, value, {} if memo is None else memo)


def _deep(tracer: Tracer, value: Any, memo: dict[int, Any]) -> Any:
    value, kind = tracer.real(value), type(tracer.real(value))
    if is_plain(value) or kind in _ATOMS or isinstance(value, type):
        return value
    if id(value) in memo:
        return memo[id(value)]
    tracer.kept.append(value)
    if kind in (tuple, frozenset):
        made: Any = kind([_deep(tracer, x, memo) for x in value])
        made = value if kind is tuple and all(a is b for a, b in zip(made, value, strict=True)) else made
        memo[id(value)] = made
    elif kind in (list, deque):
        made = memo[id(value)] = kind() if kind is list else deque(maxlen=value.maxlen)
        made.extend([_deep(tracer, x, memo) for x in value])
    elif kind is set:
        made = memo[id(value)] = {_deep(tracer, x, memo) for x in value}
    elif kind in (dict, OrderedDict, defaultdict):
        made = memo[id(value)] = kind() if kind is not defaultdict else defaultdict(value.default_factory)
        for key, each in list(value.items()):
            made[_deep(tracer, key, memo)] = _deep(tracer, each, memo)
    elif tracer.method_of(value, "__deepcopy__") is not None:
        made = memo[id(value)] = tracer.nested(tracer.method_of(value, "__deepcopy__"), (memo,))
    elif isinstance(value, Tensor):
        made = memo[id(value)] = tracer.native(copy.deepcopy, value)
    else:
        made = memo[id(value)] = _bare(tracer, value)
        for name in _names(tracer, value):
            object.__setattr__(made, name, _deep(tracer, tracer.instance_attribute(value, name), memo))
    return made


def _bare(tracer: Tracer, value: Any) -> Any:
    """A new object of the class of another, as `copyreg` makes it."""
    kind = type(value)
    if (
        not tracer.is_user_object(value)
        or kind.__reduce_ex__ is not object.__reduce_ex__
        or kind.__reduce__ is not object.__reduce__
        or kind.__new__ is not object.__new__
        or any(hasattr(kind, name) for name in ("__setstate__", "__getnewargs__", "__getnewargs_ex__"))
        or getattr(kind, "__getstate__", None) is not getattr(object, "__getstate__", None)
        or any(isinstance(x, types.MemberDescriptorType) for each in kind.__mro__ for x in vars(each).values())
    ):
        raise Break(f"copies a {kind.__name__}")
    made = object.__new__(kind)
    tracer.kept.append(made)
    return made


def _names(tracer: Tracer, value: Any) -> list[str]:
    return tracer.instance_names(value) if tracer.outside.is_outside(value) else list(value.__dict__)


_HANDLERS: dict[Any, Callable[..., Any]] = {
    inspect.signature: _signature, importlib.util.find_spec: _find_spec, importlib.metadata.version: _as_it_is(importlib.metadata.version),
    os.getenv: _getenv, warnings.warn: warn, copy.copy: _copy, copy.deepcopy: _deepcopy, logging.Logger.isEnabledFor: _is_enabled,
    logging.Logger.getEffectiveLevel: _effective_level, logging.Logger.log: _logs(None),
    **{function: _logs(level) for function, level in _LEVELS.items()}, **{function: change_filters(function) for function in FILTERING},
    **{function: _as_it_is(function) for function in (
        re.match, re.search, re.fullmatch, re.sub, re.split, re.findall, re.compile, re.escape, os.path.join, os.path.basename, os.path.dirname,
        os.path.splitext, os.path.split, inspect.isfunction, inspect.isclass, inspect.ismethod,
    )},
}  # fmt: skip
