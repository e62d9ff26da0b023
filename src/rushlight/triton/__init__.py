"""The Triton language: kernels on blocks of numbers, written in Python's syntax, compiled for the CPU and the GPU.

`python -m rushlight` answers `import triton` with this package where the real one is not installed.

>>> import rushlight as torch
>>> from rushlight import triton
>>> triton.cdiv(10, 4), triton.next_power_of_2(1000)
(3, 1024)
"""

from __future__ import annotations

from . import backends, compiler, errors, knobs, language, runtime, testing, tools
from ._semantics.constants import constexpr_function
from .compiler import CompilationError, compile
from .host import cdiv, next_power_of_2, set_allocator
from .runtime import (
    Config,
    InterpreterError,
    JITFunction,
    KernelInterface,
    MockTensor,
    OutOfResources,
    TensorWrapper,
    autotune,
    heuristics,
    reinterpret,
)
from .runtime.errors import TritonError
from .runtime.jit import jit

# The version of Triton whose language this is.
__version__ = "3.6.0+rushlight"

__all__ = [
    "CompilationError", "Config", "InterpreterError", "JITFunction", "KernelInterface", "MockTensor", "OutOfResources", "TensorWrapper",
    "TritonError", "autotune", "backends", "cdiv", "compile", "compiler", "constexpr_function", "errors", "heuristics", "jit", "knobs", "language", "next_power_of_2",
    "reinterpret", "runtime", "set_allocator", "testing", "tools",
]  # fmt: skip
