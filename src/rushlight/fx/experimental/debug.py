"""`torch.fx.experimental.debug`: a breakpoint in the code of a graph."""

from __future__ import annotations

from rushlight._interface.base import trace_marks
from rushlight.fx.graph_module import GraphModule

__all__ = ["set_trace"]


@trace_marks.changes_later_calls
def set_trace(gm: GraphModule) -> GraphModule:
    """Let the debugger start when the module is called, before its first line; in place."""

    def stop_first(body: list[str]) -> list[str]:
        return ["import pdb; pdb.set_trace()\n", *body]

    with gm.graph.on_generate_code(lambda before: lambda body: stop_first(before(body) if before else body)):
        gm.recompile()
    return gm
