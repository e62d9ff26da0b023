"""`torch._inductor.ir`: nodes of Inductor's loops, for annotations."""

from __future__ import annotations

from rushlight._interface.base import absent_class

__all__ = ["Pointwise", "TensorBox"]

_WHY = "there are no loops of Inductor here"
TensorBox = absent_class("torch._inductor.ir.TensorBox", _WHY)
Pointwise = absent_class("torch._inductor.ir.Pointwise", _WHY)
