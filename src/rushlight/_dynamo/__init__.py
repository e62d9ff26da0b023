"""What programs ask of PyTorch's graph capture (`torch._dynamo`): nothing is captured here, hints are accepted, and compiling is refused."""

from __future__ import annotations

from typing import Any

from rushlight._dynamo import config, eval_frame, exc
from rushlight._interface.base import absent_function
from rushlight.compiler import (
    _WHY,
    OptimizedModule,
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    reset,
    set_stance,
    substitute_in_graph,
)

__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "disallow_in_graph", "eval_frame", "exc", "explain",
    "export", "forbid_in_graph", "graph_break", "is_compiling", "list_backends", "mark_dynamic", "mark_static", "mark_static_address",
    "maybe_mark_dynamic", "optimize", "optimize_assert", "reset", "set_stance", "substitute_in_graph",
]  # fmt: skip


def graph_break(msg: str = "") -> None:
    """A captured graph should end here: there is none."""


def mark_dynamic(t: Any, index: Any, **hints: Any) -> None:
    """A hint that a dim of a tensor varies."""


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """A hint that a dim of a tensor may vary."""


def mark_static(t: Any, index: Any = None) -> None:
    """A hint that a dim of a tensor does not vary."""


def mark_static_address(t: Any, guard: bool = True) -> None:
    """A hint that a tensor's memory stays where it is."""


def disallow_in_graph(fn: Any) -> Any:
    """A function at which a captured graph should end; returned as it is."""
    return fn


forbid_in_graph = disallow_in_graph
optimize, optimize_assert = (
    absent_function("torch._dynamo.optimize", _WHY),
    absent_function("torch._dynamo.optimize_assert", _WHY),
)
explain, export = absent_function("torch._dynamo.explain", _WHY), absent_function("torch._dynamo.export", _WHY)
