"""Tools of pages about programs compiled ahead of time."""

from __future__ import annotations

from rushlight._packages.exported import build_program
from rushlight._packages.loading import load
from rushlight._packages.tensors import load_tensors

__all__ = [
    "build_program",  # an exported program, or a function and example arguments, with its code
    "load",  # a package from its file, for NumPy arrays
    "load_tensors",  # a package for tensors
]
