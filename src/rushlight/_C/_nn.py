"""The one function of PyTorch's native `nn` that packages use: it reads the arguments of `to`."""

from __future__ import annotations

from rushlight.nn.modules.conversion import parse_to as _parse_to

__all__ = ["_parse_to"]
