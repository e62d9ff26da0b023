"""`torch.utils._sympy`: numbers and ranges by which symbolic sizes are described."""

from __future__ import annotations

__all__ = ["numbers", "value_ranges"]
