"""What pages about programs compiled ahead of time use."""

from __future__ import annotations

from rushlight._base.errors import PackageError
from rushlight._packages.building import SizeRange, Sizes, build
from rushlight._packages.loading import load
from rushlight._packages.tensors import load_tensors

__all__ = [
    "PackageError",  # what cannot be packaged, or is no package
    "SizeRange",  # a size that calls choose
    "Sizes",  # all of them, and the shapes of inputs
    "build",  # the program of a function and example arguments, with its code
    "load",  # a package from its file, for NumPy arrays
    "load_tensors",  # a package for tensors
]
