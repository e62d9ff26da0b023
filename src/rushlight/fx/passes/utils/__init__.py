"""`torch.fx.passes.utils`: finding parts of graphs."""

from __future__ import annotations

from rushlight.fx.passes.utils.subgraphs import HolderModule, compare_graphs, lift_subgraph_as_module

__all__ = [
    "HolderModule",
    "compare_graphs",
    "fuser_utils",
    "lift_subgraph_as_module",
    "matcher_utils",
    "matcher_with_name_node_map_utils",
    "source_matcher_utils",
]
