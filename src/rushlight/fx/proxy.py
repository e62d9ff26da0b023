"""`torch.fx.proxy`: the class of the values that a tracer passes through a program."""

from __future__ import annotations

from rushlight.fx import Proxy

__all__ = ["Proxy"]
