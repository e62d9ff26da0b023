"""`Adafactor` under the name of its module in PyTorch."""

from __future__ import annotations

from rushlight.optim.adafactor import Adafactor, adafactor

__all__ = ["Adafactor", "adafactor"]
