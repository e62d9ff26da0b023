"""`torch.export.pt2_archive`: exported programs in files, in the layout of PyTorch's `.pt2` archives."""

from __future__ import annotations

from rushlight._interface.base import lazy_files
from rushlight.export.pt2_archive._package import load_pt2, package_pt2

__all__ = ["constants", "load_pt2", "package_pt2"]

__getattr__ = lazy_files("rushlight.export.pt2_archive", {}, ("constants", "_package"))
