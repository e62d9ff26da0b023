"""`torch._inductor`: modes and options of the default backend, which is rushlight's own compiler, and programs compiled ahead of time.

>>> import rushlight as torch
>>> torch._inductor.list_mode_options("reduce-overhead")
{'triton.cudagraphs': True}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._inductor import config
from rushlight._inductor.packaging import aot_compile, aoti_compile_and_package, aoti_load_package
from rushlight._interface.base import absent_function
from rushlight.compiler.compilation import MODES, OWN_OPTIONS, check_options, mode_options
from rushlight.compiler.compilation import compile as _compile
from rushlight.compiler.settings import settings

__all__ = [
    "aot_compile", "aoti_compile_and_package", "aoti_load_package", "compile", "config", "cudagraph_mark_step_begin", "list_mode_options",
    "list_options", "standalone_compile",
]  # fmt: skip

_WHY = "compiled programs live in the process that compiled them"


def compile(gm: Any, example_inputs: Any, options: dict[str, Any] | None = None) -> Callable[..., Any]:
    """The module of an fx graph, compiled."""
    return _compile(gm, fullgraph=True, options=check_options(options) if options else None)


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """Options of modes, by name; with `mode` what that one sets.  RuntimeError for an unknown mode."""
    return mode_options(mode, dynamic) if mode else {name: dict(options) for name, options in MODES.items()}


def list_options() -> list[str]:
    """Names for `compile(options=...)`: passes of rushlight's own, and PyTorch's settings."""
    return [*OWN_OPTIONS, *settings("torch._inductor.config").defaults]


def cudagraph_mark_step_begin() -> None:
    """A new step begins: a hint for recorded CUDA graphs, of which there are none on a CPU."""


standalone_compile = absent_function("torch._inductor.standalone_compile", _WHY)
