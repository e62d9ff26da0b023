"""`torch._dynamo.explain(f)(*args)`: which graphs a call makes, where it breaks, and why."""

from __future__ import annotations

import dataclasses
import functools
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from rushlight._interface.compiling import EVENTS
from rushlight.compiler.compilation import compile
from rushlight.compiler.marks import innermost_function

__all__ = ["ExplainOutput", "GraphCompileReason", "explain"]


@dataclasses.dataclass
class GraphCompileReason:
    """Why a graph ends: the reason, and the lines of the program that led there, outermost first."""

    reason: str
    user_stack: list[traceback.FrameSummary]
    graph_break: bool = True


@dataclasses.dataclass
class ExplainOutput:
    """Result of `explain`: fx graphs in order, breaks, operators and guards."""

    graphs: list[Any]
    graph_count: int
    graph_break_count: int
    break_reasons: list[GraphCompileReason]
    op_count: int
    ops_per_graph: list[list[Any]] | None = None
    out_guards: list[Any] | None = None
    compile_times: str | None = None

    def __str__(self) -> str:
        lines = [
            f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}", f"Op Count: {self.op_count}", "Break Reasons:",
        ]  # fmt: skip
        for number, reason in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {number}:", f"    Reason: {reason.reason}", "    User Stack:"]
            lines += [f"      {frame}" for frame in reason.user_stack]
        if self.ops_per_graph is not None:
            lines.append("Ops per Graph:")
            for number, names in enumerate(self.ops_per_graph, 1):
                lines += [f"  Ops {number}:", *(f"    {name}" for name in names)]
        if self.out_guards is not None:
            lines.append("Out Guards:")
            for number, guard in enumerate(self.out_guards, 1):
                lines += [f"  Guard {number}:", *(f"    {line}" for line in str(guard).splitlines())]
        if self.compile_times is not None:
            lines.append(f"Compile Times: {self.compile_times}\n")
        return "\n".join(lines)


def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """`explain(f)(*args)` calls `f` and gives an `ExplainOutput`.

    Arguments in the first call are deprecated (FutureWarning).
    """

    @functools.wraps(f)
    def inner(*args: Any, **kwargs: Any) -> ExplainOutput:
        return _explained(f, args, kwargs)

    if extra_args or extra_kwargs:
        warnings.warn(
            "explain(f, *args, **kwargs) is deprecated, use explain(f)(*args, **kwargs) instead.  If you don't migrate, we may break your "
            "explain call in the future if your user defined kwargs conflict with future kwargs added to explain(f).",
            FutureWarning,
            stacklevel=2,
        )
        return inner(*extra_args, **extra_kwargs)
    return inner


def _explained(f: Callable[..., Any], args: Any, kwargs: Any) -> ExplainOutput:
    """Call a function compiled by a backend that keeps the graphs, and listen to the tracer."""
    graphs: list[Any] = []
    reasons: list[GraphCompileReason] = []
    guards: list[Any] = []

    def keep(gm: Any, example_inputs: Any) -> Callable[..., Any]:
        graphs.append(gm)
        return gm.forward

    def listen(kind: str, text: str, details: dict[str, Any]) -> None:
        if kind in ("break", "failure"):
            reasons.append(GraphCompileReason(details.get("reason", text), _stack(details)))
        elif kind == "graph":
            guards.extend(getattr(details.get("segment"), "guards", ()))

    EVENTS.append(listen)
    begun = time.perf_counter()
    try:
        compile(innermost_function(f), backend=keep)(*args, **kwargs)
    finally:
        EVENTS.remove(listen)
    operators = [[node.target for node in gm.graph.nodes if node.op in _CALLS] for gm in graphs]
    return ExplainOutput(
        graphs=graphs,
        graph_count=len(graphs),
        graph_break_count=max(len(graphs) - 1, 0),
        break_reasons=reasons,
        op_count=sum(map(len, operators)),
        ops_per_graph=operators,
        out_guards=guards,
        compile_times=f"{time.perf_counter() - begun:.4f} s for the call",
    )


_CALLS = ("call_function", "call_method", "call_module")


def _stack(details: dict[str, Any]) -> list[traceback.FrameSummary]:
    """The line of the program where a graph ends."""
    path, _, line = str(details.get("where", "")).rpartition(":")
    return [traceback.FrameSummary(path, int(line), details.get("function", "?"))] if line.isdigit() else []
