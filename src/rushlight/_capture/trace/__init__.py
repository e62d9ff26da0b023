"""Functions compiled whole: their bytecode followed on tensors without elements, what they read guarded, what they do
run as programs.

`compile_function(function)` is what `torch.compile` gives.
"""

from typing import Any

from rushlight._base.lazy import LazyModule

__all__ = [
    "COUNTERS",
    "EVENTS",
    "HOOKS",
    "CompileSettings",
    "CompiledFunction",
    "compile_function",
    "look_again",
    "reset",
    "show_segments",
]

_PLACES = {
    "COUNTERS": "reports.events", "EVENTS": "reports.events", "HOOKS": "settings", "CompileSettings": "settings", "CompiledFunction": "segments.compiled",
    "compile_function": "segments.compiled", "look_again": "segments.fronts", "reset": "segments.compiled", "show_segments": "segments.compiled",
}  # fmt: skip


def __getattr__(name: str) -> Any:  # with the first function that is compiled
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(LazyModule(f"{__name__}.{_PLACES[name]}"), name)
