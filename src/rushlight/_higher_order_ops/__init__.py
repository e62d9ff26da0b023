"""`torch._higher_order_ops`: functions of functions of tensors that packages name."""

from __future__ import annotations

from rushlight._higher_order_ops.associative_scan import associative_scan

__all__ = ["associative_scan"]
