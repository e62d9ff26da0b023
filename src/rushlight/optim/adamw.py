"""`AdamW` under the name of its module in PyTorch; it is a form of `Adam`."""

from __future__ import annotations

from rushlight.optim.adam import AdamW, adamw

__all__ = ["AdamW", "adamw"]
