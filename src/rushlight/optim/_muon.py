"""`Muon` under the name of its module in PyTorch."""

from __future__ import annotations

from rushlight.optim.muon import Muon, muon

__all__ = ["Muon", "muon"]
