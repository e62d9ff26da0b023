"""`torch.fx.passes.infra`: what a pass is and what it returns."""

from __future__ import annotations

__all__ = ["partitioner", "pass_base", "pass_manager"]
