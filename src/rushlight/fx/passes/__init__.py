"""`torch.fx.passes`: small programs that read or change graphs."""

from __future__ import annotations

__all__ = [
    "annotate_getitem_nodes",
    "backends",
    "graph_manipulation",
    "infra",
    "operator_support",
    "param_fetch",
    "pass_manager",
    "shape_prop",
    "split_module",
    "split_utils",
    "tools_common",
    "utils",
]
