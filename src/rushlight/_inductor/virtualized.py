"""`torch._inductor.virtualized`: the operators of Inductor's loops."""

from __future__ import annotations

from rushlight._interface.base import absent_class

__all__ = ["ops"]

ops = absent_class("torch._inductor.virtualized.ops", "there are no loops of Inductor here")
