"""`torch.ao.ns.fx`: measures of error."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__ = ["utils"]

__getattr__ = lazy_files(__name__, {}, __all__)
