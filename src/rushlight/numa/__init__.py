"""`torch.numa`: which cores near which GPU a worker uses; the names of the settings, for programs that pass them on."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__: list[str] = []

__getattr__ = lazy_files(__name__, {}, ("binding",))
