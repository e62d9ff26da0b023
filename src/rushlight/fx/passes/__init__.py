"""`torch.fx.passes`: small programs that read or change graphs."""

from __future__ import annotations

__all__ = ["infra", "shape_prop", "split_module", "utils"]
