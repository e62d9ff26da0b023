"""TorchScript: typed functions and modules that are compiled to graphs, run, printed, saved and loaded as in
`torch.jit`.

`script` compiles a function, a class or a module from its source, which it reads and never runs: a typed subset of
Python, whose errors name the user's line.  `trace` records what a call does.  `save` and `load` write and read PyTorch's
archives.  With `PYTORCH_JIT=0` in the environment `script` and `trace` return what they were given.

>>> import rushlight as torch
>>> @torch.jit.script
... def double(x: torch.Tensor) -> torch.Tensor:
...     return x * 2
>>> double(torch.ones(2)), torch.jit.is_scripting()
(tensor([2., 2.]), False)
"""

from __future__ import annotations

import os
import typing
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from rushlight._awaits import _Await
from rushlight._interface.base import LazyModule, trace_marks
from rushlight.futures import Future

scripting: Any = LazyModule("rushlight.jit.scripting")
modules: Any = LazyModule("rushlight.jit.modules")
errors: Any = LazyModule("rushlight.jit.errors")
units: Any = LazyModule("rushlight.jit.units")
freezing: Any = LazyModule("rushlight.jit.freezing")
tracer: Any = LazyModule("rushlight.jit.tracing.tracer")
reader: Any = LazyModule("rushlight.jit.serialization.reader")
writer: Any = LazyModule("rushlight.jit.serialization.writer")

__all__ = [
    "Attribute", "CompilationUnit", "Error", "Final", "Future", "ScriptFunction", "ScriptModule", "TracerWarning", "annotate", "enable_onednn_fusion",
    "export", "export_opnames", "fork", "freeze", "fuser", "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "last_executed_optimized_graph",
    "load", "onednn_fusion_enabled", "optimize_for_inference", "optimized_execution", "run_frozen_optimizations", "save", "script", "script_if_tracing",
    "script_method", "set_fusion_strategy", "set_module", "strict_fusion", "trace", "trace_module", "unused", "wait",
]  # fmt: skip

_is_instance = isinstance  # `torch.jit.isinstance` below has the same name
_LATE = {
    "Error": errors, "ScriptWarning": errors, "TracerWarning": errors, "TracingCheckError": errors, "ScriptFunction": modules, "ScriptModule": modules,
    "RecursiveScriptModule": modules, "TopLevelTracedModule": modules, "TracedModule": modules, "ScriptMethod": modules, "CompilationUnit": units,
    "ConstMap": modules,
}  # fmt: skip


def __getattr__(name: str) -> Any:
    place = _LATE.get(name)
    if place is None:
        raise AttributeError(f"module 'rushlight.jit' has no attribute {name!r}")
    found = globals()[name] = getattr(place, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})


def is_scripting() -> bool:
    """Whether this code is being compiled by TorchScript: False where it runs as Python."""
    return False


def is_tracing() -> bool:
    """Whether calls are being recorded by `torch.jit.trace`."""
    return _TRACING.depth > 0


class _Tracing:
    """How many traces record at the moment."""

    depth = 0


_TRACING = _Tracing()


# ***** marks *****


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Mark a method that the compiler should leave to Python; a decorator with or without arguments."""
    if callable(drop):
        drop._torchscript_modifier = "ignore (leave as a call to Python, cannot be torch.jit.save'd)"
        return drop
    if not _is_instance(drop, bool):
        raise RuntimeError(f"Argument to @torch.jit.ignore must be a bool or a function but got {drop}")
    if drop:
        warnings.warn("ignore(True) has been deprecated. Use torch.jit.unused now.", FutureWarning, stacklevel=2)
        return unused
    return ignore


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


_OVERLOADS: dict[str, list[Any]] = {}


def _overload(func: Any) -> Any:
    """Mark a declaration of a function's further signature; the compiler takes the first that fits."""
    _OVERLOADS.setdefault(f"{func.__module__}.{func.__qualname__}", []).append(func)
    return func


def interface(obj: Any) -> Any:
    """Mark a class as an interface: any class with methods of these names and types may stand for it."""
    obj._is_script_interface = True
    return obj


class Attribute(typing.NamedTuple):
    """A value with a type for the compiler: `torch.jit.Attribute(value, type)`."""

    value: Any
    type: Any


def annotate(the_type: Any, the_value: Any) -> Any:
    """`the_value`; the type is for the compiler."""
    return the_value


_WITHOUT_TYPES: dict[Any, str] = {
    held: f"Attempted to use {name} without {'contained types' if 'ict' in name else 'a contained type'}. Please add "
    f"{'contained type' if 'ict' in name else 'a contained type'}, e.g. {name}[{'int, int' if 'ict' in name else 'int'}]"
    for name, held in (
        ("List", typing.List), ("Tuple", typing.Tuple), ("Dict", typing.Dict), ("Optional", typing.Optional),  # noqa: UP006
        ("list", list), ("tuple", tuple), ("dict", dict),
    )
}  # fmt: skip


def isinstance(obj: Any, target_type: Any) -> bool:
    """`isinstance` that also looks into containers: lists, dicts, tuples and optionals of a type.

    RuntimeError for a container without the types of what it holds.  An empty one is of every such type, and warned of.

    >>> torch.jit.isinstance([1, 2], list[int]), torch.jit.isinstance([1, "a"], list[int])
    (True, False)
    """
    if _is_instance(target_type, tuple):
        return any(isinstance(obj, each) for each in target_type)
    if _is_instance(target_type, (list, set, dict)):
        raise RuntimeError("The second argument to `torch.jit.isinstance` must be a type or a tuple of types")
    origin, inner = typing.get_origin(target_type), typing.get_args(target_type)
    if not inner and target_type in _WITHOUT_TYPES:
        raise RuntimeError(_WITHOUT_TYPES[target_type])
    if origin in (list, tuple, dict) and _is_instance(obj, (list, tuple, dict)) and not obj:
        warnings.warn(
            "The inner type of a container is lost when calling torch.jit.isinstance in eager mode. For example, List[int] would become list "
            "and therefore falsely return True for List[float] or List[str].",
            stacklevel=2,
        )
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


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """Compile a function, a class or a module from its source.

    The source is a typed subset of Python: arguments without an annotation are tensors.  RuntimeError names the line of
    what is not in the subset.
    """
    if optimize is not None:
        warnings.warn(
            "`optimize` is deprecated and has no effect. Use `with torch.jit.optimized_execution()` instead",
            FutureWarning,
            stacklevel=2,
        )
    return obj if _switched_off() else scripting.script(obj, example_inputs)


def script_if_tracing(fn: Any) -> Any:
    """A function that is compiled when a trace calls it first, and then called in the trace; elsewhere it runs as it is.

    >>> import rushlight as torch
    >>> @torch.jit.script_if_tracing
    ... def clipped(x: torch.Tensor) -> torch.Tensor:
    ...     return x.clamp(max=1) if x.sum() > 1 else x
    >>> clipped(torch.tensor([2.0]))
    tensor([1.])
    """
    import functools

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not is_tracing():
            return fn(*args, **kwargs)
        compiled = script(fn)
        return compiled(*args, **kwargs)

    wrapper.__original_fn = fn  # type: ignore[attr-defined]
    wrapper.__script_if_tracing_wrapper = True  # type: ignore[attr-defined]
    return wrapper


_script_if_tracing = script_if_tracing


def script_method(fn: Any) -> Any:
    """Mark a method of a `ScriptModule` class: it is compiled when an object's `__init__` is done; `fn` is returned.

    >>> import rushlight as torch
    >>> class Scale(torch.jit.ScriptModule):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weight = torch.nn.Parameter(torch.tensor([2.0]))
    ...     @torch.jit.script_method
    ...     def forward(self, x: torch.Tensor) -> torch.Tensor:
    ...         return x * self.weight
    >>> Scale()(torch.ones(2)).tolist()
    [2.0, 2.0]
    """
    fn._script_method = True
    return fn


def _overload_method(fn: Any) -> Any:
    """Mark a signature of a method; the compiler takes the first that fits."""
    _OVERLOADS.setdefault(f"{fn.__module__}.{fn.__qualname__}", []).append(fn)
    return fn


def trace(
    func: Any,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: Any = None,
    _store_inputs: bool = True,
) -> Any:
    """Record what a function or a module does with example inputs, as a graph that runs with other tensors.

    What Python decides (branches, loops, numbers taken out of tensors) stays as it was with the examples; a
    `TracerWarning` says where.  With `check_trace` the graph is run beside the function.
    """
    if _switched_off():
        return func
    return tracer.trace(
        func, example_inputs, example_kwarg_inputs, tracer.Checks(check_trace, check_inputs, check_tolerance), strict
    )


def trace_module(
    mod: Any,
    inputs: Any,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_inputs_is_kwarg: bool = False,
    _store_inputs: bool = True,
) -> Any:
    """Record several methods of a module: `inputs` gives the example inputs of each by its name."""
    if _switched_off():
        return mod
    return tracer.trace_module(mod, inputs, tracer.Checks(check_trace, check_inputs, check_tolerance), strict)


# ***** files *****


@trace_marks.changes_later_calls
def save(m: Any, f: Any, _extra_files: Any = None) -> None:
    """Write a compiled module or function to a file or a path, as PyTorch's archive; `_extra_files` are further records."""
    writer.save(m, f, _extra_files)


@trace_marks.changes_later_calls
def load(f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False) -> Any:
    """Read an archive of `torch.jit.save`, of PyTorch's or of ours.

    Its code is read and compiled to graphs; nothing of it runs as Python.  `_extra_files` is a dict whose values are
    filled in.  RuntimeError for a damaged file.
    """
    return reader.load(f, map_location, _extra_files)


def jit_module_from_flatbuffer(f: Any) -> Any:
    """NotImplementedError: archives of PyTorch's mobile format are not read."""
    raise NotImplementedError(
        "rushlight reads no modules in PyTorch's flatbuffer format: save them with torch.jit.save"
    )


def save_jit_module_to_flatbuffer(m: Any, f: Any, _extra_files: Any = None) -> None:
    """NotImplementedError, as `jit_module_from_flatbuffer`."""
    raise NotImplementedError(
        "rushlight writes no modules in PyTorch's flatbuffer format: torch.jit.save writes archives"
    )


# ***** optimising *****


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    """A copy of a module in evaluation mode whose parameters and attributes are constants of one graph.

    `preserved_attrs` are attributes and methods that stay.
    """
    return freezing.freeze(mod, preserved_attrs, optimize_numerics)


def run_frozen_optimizations(mod: Any, optimize_numerics: bool = True, preserved_methods: Any = None) -> None:
    """Fold what freezing made constant; `freeze` has done it."""
    freezing.optimize(mod, optimize_numerics, preserved_methods)


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """A frozen module: as `freeze`, for a module that is not frozen yet."""
    return freezing.optimize_for_inference(mod, other_methods)


def export_opnames(m: Any) -> list[str]:
    """The operators that a compiled module calls, sorted: `aten::add.Tensor`, ..."""
    return list(freezing.operator_names(m))


@trace_marks.changes_later_calls
def set_fusion_strategy(strategy: Any) -> Any:
    """Keep a strategy of fusing and give the one before; graphs run operator by operator here, whatever it says."""
    before, _FUSION["strategy"] = _FUSION["strategy"], list(strategy)
    return before


_FUSION: dict[str, Any] = {"strategy": [("STATIC", 2), ("DYNAMIC", 10)], "onednn": False}


def onednn_fusion_enabled() -> bool:
    """False: graphs are not fused by oneDNN here."""
    return bool(_FUSION["onednn"])


@trace_marks.changes_later_calls
def enable_onednn_fusion(enabled: bool) -> None:
    """NotImplementedError for True."""
    if enabled:
        raise NotImplementedError("rushlight has no oneDNN whose fusions could be enabled")


class optimized_execution:
    """A context in which graphs may be optimised (or not): they run the same way."""

    def __init__(self, should_optimize: bool) -> None:
        self.should_optimize = should_optimize

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None


class fuser(optimized_execution):
    """A context that names a fuser: `fuser0` to `fuser3`; graphs run the same way."""

    def __init__(self, name: str) -> None:
        if name not in ("fuser0", "fuser1", "fuser2", "fuser3"):
            raise Exception(f"unrecognized fuser option (name: {name})")  # PyTorch's class
        super().__init__(True)


class strict_fusion:
    """A context for compiled code that asks that all of it is fused: there is no fuser, so it cannot be entered."""

    def __enter__(self) -> None:
        raise NotImplementedError("rushlight fuses no TorchScript graphs: torch.compile fuses operators")

    def __exit__(self, *exc: object) -> None:
        return None


def last_executed_optimized_graph() -> Any:
    """NotImplementedError: graphs run as they are, see `.inlined_graph`."""
    raise NotImplementedError("rushlight keeps no optimised copies of graphs: .inlined_graph shows what runs")


@trace_marks.changes_later_calls
def set_module(obj: Any, mod: str) -> None:
    """Give an object's `__module__`."""
    if not _is_instance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


def _get_trace_graph(f: Any, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
    """(graph, outputs) of a trace."""
    return tracer.trace_graph(f, args, kwargs)


# ***** tasks *****


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A future of `func(*args, **kwargs)`.  Outside compiled code PyTorch runs it at once, and so does this."""
    future: Any = Future()
    future.set_result(func(*args, **kwargs))
    return future


_fork = fork


def wait(future: Any) -> Any:
    """The value of a future of `fork`."""
    return future.wait()


_wait = wait


def _awaitable(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """An `Await` of `func(*args, **kwargs)`: the call is made when its value is asked for, in compiled code too."""
    return _Await(partial(func, **kwargs) if kwargs else func, args)


def _awaitable_wait(aw: Any) -> Any:
    """The value of an `Await`, whose call is made where it has not been."""
    return aw.wait()


def _awaitable_nowait(o: Any) -> Any:
    """An `Await` whose value is known."""
    return _Await.of_value(o)
