"""Errors of packages."""

from __future__ import annotations

__all__ = ["EmptyMatchError", "ObjMismatchError", "ObjNotFoundError", "PackageCodeError", "PackagingError"]


class PackagingError(Exception):
    """A package cannot be written: modules that no pattern names, or that were denied."""


class EmptyMatchError(Exception):
    """A pattern of modules matches nothing."""


class ObjNotFoundError(Exception):
    """An importer does not know an object by its name."""


class ObjMismatchError(Exception):
    """An importer knows another object by that name."""


class PackageCodeError(RuntimeError):
    """Code of a package would run, and nobody allowed it."""
