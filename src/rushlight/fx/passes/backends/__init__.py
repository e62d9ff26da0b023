"""`torch.fx.passes.backends`: parts of graphs for one way of running them."""

from __future__ import annotations

__all__ = ["cudagraphs"]
