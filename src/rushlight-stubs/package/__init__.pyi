"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool
from rushlight.package.importers import _SystemImporter as _SystemImporter
from typing import Any as _Any

from rushlight.package.patterns import Directory as Directory
from rushlight.package.errors import EmptyMatchError as EmptyMatchError
from rushlight.package.patterns import GlobGroup as GlobGroup
from rushlight.package.importers import Importer as Importer
from rushlight.package.errors import ObjMismatchError as ObjMismatchError
from rushlight.package.errors import ObjNotFoundError as ObjNotFoundError
from rushlight.package.importers import OrderedImporter as OrderedImporter
from rushlight.package.errors import PackageCodeError as PackageCodeError
from rushlight.package.exporting import PackageExporter as PackageExporter
from rushlight.package.importing import PackageImporter as PackageImporter
from rushlight.package.errors import PackagingError as PackagingError
from rushlight.package import errors as errors
from rushlight.package import exporting as exporting
from rushlight.package import importers as importers
from rushlight.package import importing as importing
def is_from_package(obj: _Any) -> _bool: ...
from rushlight.package import patterns as patterns
sys_importer: _SystemImporter
