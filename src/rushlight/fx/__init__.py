"""The names of `torch.fx` that programs need in order to be imported.  Nothing is traced symbolically here yet: `symbolic_trace` and making a
`Graph`, a `GraphModule` or a `Tracer` raise NotImplementedError; `wrap` and `has_side_effect`, which only mark functions for a tracer, do that.

>>> import rushlight as torch
>>> isinstance(torch.nn.Identity(), torch.fx.GraphModule)
False
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from rushlight._base.absent import absent_class, absent_function
from rushlight.nn.modules.module import Module

__all__ = [
    "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "has_side_effect", "replace_pattern", "symbolic_trace", "wrap",
]  # fmt: skip

_WHY = "there is no symbolic tracing yet"

Proxy, Node, Graph = (absent_class(f"torch.fx.{name}", _WHY) for name in ("Proxy", "Node", "Graph"))
Tracer, Interpreter, Transformer = (absent_class(f"torch.fx.{name}", _WHY) for name in ("Tracer", "Interpreter", "Transformer"))
GraphModule = absent_class("torch.fx.GraphModule", _WHY, (Module,))
symbolic_trace = absent_function("torch.fx.symbolic_trace", _WHY)
replace_pattern = absent_function("torch.fx.replace_pattern", _WHY)


def wrap(fn_or_name: Any) -> Any:
    """Mark a function of the calling module, itself or by name, as one that a tracer should not look into; returns the argument."""
    if not isinstance(fn_or_name, str) and not callable(fn_or_name):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    if sys._getframe(1).f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    return fn_or_name


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function whose calls a graph must keep; it is returned."""
    return fn


def __getattr__(name: str) -> Any:
    if name in ("experimental", "graph_module", "node", "proxy"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"rushlight.fx has no {name!r} yet")
