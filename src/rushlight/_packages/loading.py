"""Packages over NumPy arrays.  `rushlight_loader` does it, which a process without rushlight imports alone."""

from __future__ import annotations

from rushlight_loader.loading import LoadedPackage, load, opened

__all__ = ["LoadedPackage", "load", "opened"]
