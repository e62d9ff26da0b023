"""`torch._dynamo`: graph capture, its settings, reports and exceptions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from rushlight._dynamo import compiled_autograd, config, decorators, eval_frame, exc, testing, utils
from rushlight._dynamo.decorators import *
from rushlight._interface.base import absent_function
from rushlight.compiler import OptimizedModule, is_compiling, reset
from rushlight.compiler.backends import list_backends, lookup_backend, register_backend
from rushlight.compiler.compilation import optimize, optimize_assert
from rushlight.compiler.explanation import explain

__all__ = [
    "OptimizedModule", "compiled_autograd", "config", "decorators", "dont_skip_tracing", "eval_frame", "exc", "explain", "export", "is_compiling",
    "is_dynamo_disable_recursive", "is_dynamo_supported", "is_inductor_supported", "list_backends", "lookup_backend", "optimize", "optimize_assert",
    "register_backend", "replay", "reset", "testing", "utils",
]  # fmt: skip
__all__ += decorators.__all__


def is_dynamo_supported() -> bool:
    """Whether `compile` can capture programs on this interpreter."""
    return True


def is_inductor_supported() -> bool:
    """Whether the default backend works here."""
    return True


def is_dynamo_disable_recursive(method: Callable[..., Any]) -> bool | None:
    """Whether a disabled function runs eagerly with all it calls; None where it is not disabled."""
    return getattr(method, "_torchdynamo_disable_recursive", None)


def dont_skip_tracing(fn: Any = None) -> Any:
    """A function that is captured whatever module it is from; nothing is skipped by its module here, so it is given
    back as it is.
    """
    return fn if fn is not None else contextlib.nullcontext()


export = absent_function(
    "torch._dynamo.export", "`torch._dynamo.explain(f)(*args).graphs` are the graphs of a function"
)
replay = absent_function("torch._dynamo.replay", "captures are not written to files")
