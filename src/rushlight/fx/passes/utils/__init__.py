"""`torch.fx.passes.utils`: finding parts of graphs."""

from __future__ import annotations

__all__ = ["matcher_utils", "matcher_with_name_node_map_utils", "source_matcher_utils"]
