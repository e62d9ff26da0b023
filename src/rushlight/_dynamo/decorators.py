"""`torch._dynamo.decorators`: marks, by the name that programs know them by."""

from __future__ import annotations

from rushlight.compiler.compilation import disable, run
from rushlight.compiler.marks import (
    allow_in_graph,
    assume_constant_result,
    disallow_in_graph,
    forbid_in_graph,
    graph_break,
    mark_dynamic,
    mark_static,
    mark_static_address,
    mark_unbacked,
    maybe_mark_dynamic,
    nonstrict_trace,
    skip_frame,
    step_unsupported,
    substitute_in_graph,
)
from rushlight.compiler.stances import set_stance
from rushlight.compiler.strictness import error_on_graph_break, patch_dynamo_config

__all__ = [
    "allow_in_graph", "assume_constant_result", "disable", "disallow_in_graph", "error_on_graph_break", "forbid_in_graph",
    "graph_break", "mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked", "maybe_mark_dynamic",
    "nonstrict_trace", "patch_dynamo_config", "run", "set_stance", "skip_frame", "step_unsupported", "substitute_in_graph",
]  # fmt: skip
