"""`torch.fx.passes.utils`: finding parts of graphs."""

from __future__ import annotations

__all__ = ["matcher_utils"]
