"""The parts of `torch.fx.experimental` that programs ask about tracing; the answer is that there is none."""

from __future__ import annotations

__all__ = ["proxy_tensor", "symbolic_shapes"]
