"""`triton.runtime`: launches, autotuning, devices."""

from __future__ import annotations

from . import autotuner, cache, errors, jit
from .autotuner import Autotuner, Config, Heuristics, autotune, heuristics
from .driver import driver
from .errors import InterpreterError, OutOfResources
from .jit import JITFunction, KernelInterface, MockTensor, TensorWrapper, reinterpret

__all__ = [
    "Autotuner", "Config", "Heuristics", "InterpreterError", "JITFunction", "KernelInterface", "MockTensor", "OutOfResources", "TensorWrapper",
    "autotune", "autotuner", "cache", "driver", "errors", "heuristics", "jit", "reinterpret",
]  # fmt: skip
