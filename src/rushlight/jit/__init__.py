"""The part of `torch.jit` that is true without a TorchScript compiler.

Nothing is ever being scripted or traced here, so `is_scripting()` and `is_tracing()` are False, and marks for the
compiler (`ignore`, `unused`, `export`, `Final`) stay marks.  `script(function)` gives a `ScriptFunction` that runs the
function as the Python it is: TorchScript is a subset of Python, so the values are the same and nothing becomes faster.
What needs the compiled form (`script(module)`, `trace`, `save`, `load`, `freeze`, `.graph`, `.code`) raises
NotImplementedError.  With `PYTORCH_JIT=0` in the environment `script` and `trace` return what they were given, as in
PyTorch.

>>> import rushlight as torch
>>> @torch.jit.script
... def double(x: torch.Tensor) -> torch.Tensor:
...     return x * 2
>>> double(torch.ones(2)), torch.jit.is_scripting()
(tensor([2., 2.]), False)
"""

from __future__ import annotations

import functools
import inspect
import os
import typing
import warnings
from collections.abc import Callable
from typing import Any, Final

from rushlight._interface.base import absent_class, absent_function, refuse
from rushlight._interface.operators import is_function
from rushlight.futures import Future
from rushlight.nn.modules.module import Module

__all__ = [
    "Attribute", "CompilationUnit", "Error", "Final", "Future", "ScriptFunction", "ScriptModule", "TracerWarning", "annotate", "enable_onednn_fusion",
    "export", "export_opnames", "fork", "freeze", "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load", "onednn_fusion_enabled",
    "optimize_for_inference", "save", "script", "script_if_tracing", "set_fusion_strategy", "trace", "trace_module", "unused", "wait",
]  # fmt: skip

_WHY = "there is no TorchScript compiler here; the model itself runs as Python, torch.save keeps its weights"
_is_instance = isinstance  # `torch.jit.isinstance` below has the same name


class Error(Exception):
    """What compiled code raises, as `torch.jit.Error`."""


class ScriptWarning(Warning):
    """Compiled code differs from the Python that it was made of."""


class TracingCheckError(Exception):
    """A traced function gives other results than the function itself."""


class TracerWarning(Warning):
    """A warning of the tracer, as `torch.jit.TracerWarning`; nothing here gives one."""


def is_scripting() -> bool:
    """Whether this code is being compiled by TorchScript: False."""
    return False


def is_tracing() -> bool:
    """Whether calls are being recorded by `torch.jit.trace`: False."""
    return False


# ***** marks *****


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Mark a method that the compiler should leave to Python; a decorator with or without arguments."""
    if callable(drop):
        return drop
    if not _is_instance(drop, bool):
        raise RuntimeError(f"Argument to @torch.jit.ignore must be a bool or a function but got {drop}")
    if drop:
        warnings.warn("ignore(True) has been deprecated. Use torch.jit.unused now.", FutureWarning, stacklevel=2)
        return unused
    return lambda function: function


def unused(fn: Any) -> Any:
    """Mark a method that compiled code never calls; `fn` is returned."""
    if _is_instance(fn, property):
        for each in (fn.fget, fn.fset):
            if each is not None:
                unused(each)
        return fn
    fn._torchscript_modifier = "unused (ignored and replaced with raising of an exception)"
    return fn


def export(fn: Any) -> Any:
    """Mark a method that should be compiled although nothing calls it; `fn` is returned."""
    fn._torchscript_modifier = "export (compile this function even if nothing calls it)"
    return fn


def _overload(func: Any) -> Any:
    """Mark a declaration of a function's further signature for the compiler; it is returned."""
    return func


def interface(obj: Any) -> Any:
    """Mark a class as an interface of modules; it is returned."""
    return obj


class Attribute(typing.NamedTuple):
    """A value with a type for the compiler: `torch.jit.Attribute(value, type)`."""

    value: Any
    type: Any


def annotate(the_type: Any, the_value: Any) -> Any:
    """`the_value`; the type is for the compiler."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """`isinstance` that also looks into containers: lists, dicts, tuples and optionals of a type.

    >>> torch.jit.isinstance([1, 2], list[int]), torch.jit.isinstance([1, "a"], list[int])
    (True, False)
    """
    if _is_instance(target_type, tuple):
        return any(isinstance(obj, each) for each in target_type)
    origin, inner = typing.get_origin(target_type), typing.get_args(target_type)
    if origin is None:
        return _is_instance(obj, type(None) if target_type is None else target_type)
    if type(None) in inner or origin is typing.Union:
        return any(isinstance(obj, each) for each in inner)
    if not _is_instance(obj, origin):
        return False
    if origin is tuple:
        return len(obj) == len(inner) and all(isinstance(o, t) for o, t in zip(obj, inner, strict=True))
    if origin is dict:
        return all(isinstance(k, inner[0]) and isinstance(v, inner[1]) for k, v in obj.items())
    return all(isinstance(each, inner[0]) for each in obj)


# ***** compiling *****


def _switched_off() -> bool:
    return os.environ.get("PYTORCH_JIT", "1") == "0"


class ScriptFunction:
    """What `script` makes of a function: it runs as Python; the compiled form (`graph`, `code`, `save`) is not there."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]

    @property
    def name(self) -> str:
        """The function's name."""
        return self.__name__  # type: ignore[attr-defined]

    @property
    def graph(self) -> Any:
        """Raises NotImplementedError."""
        refuse("torch.jit.ScriptFunction.graph", _WHY)

    @property
    def code(self) -> str:
        """Raises NotImplementedError."""
        refuse("torch.jit.ScriptFunction.code", _WHY)

    def save(self, filename: Any, _extra_files: Any = None) -> None:
        """Raises NotImplementedError."""
        refuse("torch.jit.ScriptFunction.save()", _WHY)


ScriptModule = absent_class("torch.jit.ScriptModule", _WHY, (Module,))
CompilationUnit = absent_class("torch.jit.CompilationUnit", _WHY)


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """A function as a `ScriptFunction`; a class as itself.  NotImplementedError for a module, whose compiled form would
    be used in its place.
    """
    if _switched_off() or _is_instance(obj, (ScriptFunction, type)):
        return obj
    if _is_instance(obj, Module):
        refuse("torch.jit.script(module)", _WHY)
    if not (is_function(obj) or inspect.ismethod(obj)):
        refuse(f"torch.jit.script() of a {type(obj).__name__}", _WHY)
    return ScriptFunction(obj)


def script_if_tracing(fn: Any) -> Any:
    """`fn`: it would be compiled where a trace is being recorded, which never happens here."""
    return fn


_script_if_tracing = script_if_tracing


def _overload_method(fn: Any) -> Any:
    """Mark a signature of a method; `fn` is returned."""
    return fn


def trace(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Raises NotImplementedError (with `PYTORCH_JIT=0`, `func` is returned)."""
    if _switched_off():
        return func
    refuse("torch.jit.trace()", _WHY)


def trace_module(mod: Any, *args: Any, **kwargs: Any) -> Any:
    """As `trace`."""
    if _switched_off():
        return mod
    refuse("torch.jit.trace_module()", _WHY)


save, load, freeze, _get_trace_graph = (
    absent_function(f"torch.jit.{name}", _WHY) for name in ("save", "load", "freeze", "_get_trace_graph")
)
optimize_for_inference, export_opnames = (
    absent_function(f"torch.jit.{name}", _WHY) for name in ("optimize_for_inference", "export_opnames")
)
set_fusion_strategy = absent_function("torch.jit.set_fusion_strategy", _WHY)


def onednn_fusion_enabled() -> bool:
    """False."""
    return False


def enable_onednn_fusion(enabled: bool) -> None:
    """NotImplementedError for True."""
    if enabled:
        refuse("torch.jit.enable_onednn_fusion(True)", _WHY)


# ***** tasks *****


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A future of `func(*args, **kwargs)`.  Outside compiled code PyTorch runs it at once, and so does this."""
    future: Any = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Any) -> Any:
    """The value of a future of `fork`."""
    return future.wait()
