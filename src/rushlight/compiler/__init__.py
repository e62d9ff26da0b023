"""`torch.compile` and `torch.compiler`.

`compile` gives a function or module that is captured, compiled and kept the first time it is called.  Where it cannot
be captured whole, the graph breaks: the parts are compiled, and what lies between them runs eagerly.

>>> import rushlight as torch
>>> torch.compiler.is_compiling(), torch.compiler.list_backends()
(False, ['inductor'])
>>> torch.compile(torch.nn.Identity(), backend="eager")(torch.ones(2))
tensor([1., 1.])
"""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import absent_function, trace_marks
from rushlight._interface.compiling import reset as _reset
from rushlight.compiler import config
from rushlight.compiler.artifacts import CacheInfo, load_cache_artifacts, save_cache_artifacts
from rushlight.compiler.backends import get_default_backend, list_backends, set_default_backend
from rushlight.compiler.compilation import compile, disable
from rushlight.compiler.guard_filters import (
    keep_portable_guards_unsafe,
    keep_tensor_guards_unsafe,
    skip_all_guards_unsafe,
    skip_guard_on_all_nn_modules_unsafe,
    skip_guard_on_globals_unsafe,
    skip_guard_on_inbuilt_nn_modules_unsafe,
)
from rushlight.compiler.hooks import register
from rushlight.compiler.journal import clear
from rushlight.compiler.marks import allow_in_graph, assume_constant_result, nested_compile_region, substitute_in_graph
from rushlight.compiler.optimized_module import OptimizedModule
from rushlight.compiler.stances import set_stance

__all__ = [
    "CacheInfo", "OptimizedModule", "allow_in_graph", "assume_constant_result", "compile", "config", "cudagraph_mark_step_begin", "disable",
    "get_default_backend", "is_compiling", "is_dynamo_compiling", "is_exporting", "keep_portable_guards_unsafe", "keep_tensor_guards_unsafe",
    "list_backends", "load_cache_artifacts", "load_compiled_function", "nested_compile_region", "reset", "save_cache_artifacts",
    "set_default_backend", "set_enable_guard_collectives", "set_stance", "skip_all_guards_unsafe", "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe", "substitute_in_graph", "wrap_numpy",
]  # fmt: skip

_WHY = "call the model as it is, or compile it when the program starts"
_is_compiling_flag = _is_exporting_flag = False


def is_compiling() -> bool:
    """Whether this code is being captured, by `compile` or `export`."""
    return _is_compiling_flag or _is_exporting_flag


def is_dynamo_compiling() -> bool:
    """Whether this code is being captured by `compile`."""
    return _is_compiling_flag


def is_exporting() -> bool:
    """Whether this code is being captured by `export`."""
    return _is_exporting_flag


register(is_compiling, is_dynamo_compiling)


def cudagraph_mark_step_begin() -> None:
    """A new step begins: a hint for recorded CUDA graphs, of which there are none on a CPU."""


@trace_marks.changes_later_calls
def set_enable_guard_collectives(enabled: bool) -> bool:
    """Let all processes compile again when one must; gives the setting before.  There is one process here, so it is
    False.

    NotImplementedError for True.
    """
    if enabled:
        absent_function("torch.compiler.set_enable_guard_collectives(True)", "guards hold for one process")()
    return False


@trace_marks.changes_later_calls
def reset() -> None:
    """Forget everything that was compiled, and all counters."""
    _reset()
    clear()


wrap_numpy: Any = absent_function("torch.compiler.wrap_numpy", "functions of NumPy run eagerly")
load_compiled_function = absent_function("torch.compiler.load_compiled_function", _WHY)
