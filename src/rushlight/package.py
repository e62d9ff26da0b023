"""`torch.package`: archives of models together with the code that made them.  Its names may be imported; using one is
an error that names it.
"""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import absent_class, absent_value

__all__ = [
    "Directory", "EmptyMatchError", "GlobGroup", "Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter", "PackageExporter", "PackageImporter",
    "PackagingError", "is_from_package", "sys_importer",
]  # fmt: skip

_WHY = "models are not packed together with their code yet; torch.save and torch.load write and read weights and whole models"

Directory = absent_class("torch.package.Directory", _WHY)
GlobGroup = absent_class("torch.package.GlobGroup", _WHY)
Importer = absent_class("torch.package.Importer", _WHY)
OrderedImporter = absent_class("torch.package.OrderedImporter", _WHY)
PackageExporter = absent_class("torch.package.PackageExporter", _WHY)
PackageImporter = absent_class("torch.package.PackageImporter", _WHY)
sys_importer = absent_value("torch.package.sys_importer", _WHY)


class PackagingError(Exception):
    """A package cannot be written."""


class EmptyMatchError(Exception):
    """A pattern of modules matches nothing."""


class ObjNotFoundError(Exception):
    """An importer does not know an object by its name."""


class ObjMismatchError(Exception):
    """An importer knows another object by that name."""


def is_from_package(obj: Any) -> bool:
    """Whether an object came out of a package: False, nothing does."""
    return False
