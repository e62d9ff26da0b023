"""`torch.fx.experimental`: models made ready for use; what programs ask about tracing tensors themselves, which there
is none of.
"""

from __future__ import annotations

__all__ = ["optimization", "proxy_tensor", "symbolic_shapes"]
