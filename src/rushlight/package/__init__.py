"""`torch.package`: archives of models together with the code that made them.

Texts, bytes, tensors and compiled modules of a package are read without running anything.  Its Python code runs only
where the importer was made with `allow_code=True`: do that for packages that you trust.

>>> import io
>>> import rushlight as torch
>>> out = io.BytesIO()
>>> with torch.package.PackageExporter(out) as exporter:
...     exporter.save_text("notes", "about.txt", "one model")
...     exporter.save_pickle("model", "weights.pkl", {"w": torch.ones(2)})
>>> importer = torch.package.PackageImporter(io.BytesIO(out.getvalue()))
>>> importer.load_text("notes", "about.txt"), importer.load_pickle("model", "weights.pkl")
('one model', {'w': tensor([1., 1.])})
"""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import LazyModule
from rushlight.package.errors import (
    EmptyMatchError,
    ObjMismatchError,
    ObjNotFoundError,
    PackageCodeError,
    PackagingError,
)
from rushlight.package.importers import Importer, OrderedImporter, sys_importer
from rushlight.package.patterns import Directory, GlobGroup

exporting: Any = LazyModule("rushlight.package.exporting")
importing: Any = LazyModule("rushlight.package.importing")

__all__ = [
    "Directory", "EmptyMatchError", "GlobGroup", "Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter", "PackageCodeError", "PackageExporter",
    "PackageImporter", "PackagingError", "is_from_package", "sys_importer",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "PackageExporter":
        return exporting.PackageExporter
    if name == "PackageImporter":
        return importing.PackageImporter
    raise AttributeError(f"module 'rushlight.package' has no attribute {name!r}")


def is_from_package(obj: Any) -> bool:
    """Whether an object's module came out of a package."""
    return bool(importing.is_from_package(obj))
