"""The error of programs that leave."""

from __future__ import annotations

__all__ = ["PackageError"]


class PackageError(RuntimeError):
    """A program cannot be packaged, or a file is no package that can be loaded; the text says why."""
