"""Importers: they find modules by name, and the names of objects."""

from __future__ import annotations

import importlib
import pickle
from typing import Any

from rushlight.package.errors import ObjMismatchError, ObjNotFoundError

__all__ = ["Importer", "OrderedImporter", "sys_importer"]


class Importer:
    """Something that imports modules by name, and tells the names of objects."""

    modules: dict[str, Any]

    def import_module(self, module_name: str) -> Any:
        """A module by its name; ModuleNotFoundError for none."""
        raise NotImplementedError

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        """(module, name) by which an object is found; ObjNotFoundError and ObjMismatchError where it is not."""
        if name is None:
            name = getattr(obj, "__qualname__", None) or obj.__name__
        assert name is not None
        module_name = self.whichmodule(obj, name)
        try:
            found = self.import_module(module_name)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, KeyError, AttributeError):
            raise ObjNotFoundError(f"{obj} was not found as {module_name}.{name}") from None
        if found is not obj:
            raise ObjMismatchError(f"{module_name}.{name} is another object than {obj}")
        return module_name, name

    def whichmodule(self, obj: Any, name: str) -> str:
        """The name of the module that holds an object."""
        return str(getattr(obj, "__module__", None) or "__main__")


class _SystemImporter(Importer):
    """Python's own imports."""

    def import_module(self, module_name: str) -> Any:
        return importlib.import_module(module_name)

    def whichmodule(self, obj: Any, name: str) -> str:
        return str(getattr(pickle, "whichmodule")(obj, name))  # noqa: B009  # the type stubs lack it


class OrderedImporter(Importer):
    """Several importers: the first that knows a module gives it."""

    def __init__(self, *args: Importer) -> None:
        self._importers = list(args)

    def import_module(self, module_name: str) -> Any:
        """A module of the first importer that has it."""
        last: Exception | None = None
        for importer in self._importers:
            try:
                return importer.import_module(module_name)
            except ModuleNotFoundError as error:
                last = error
        raise last if last is not None else ModuleNotFoundError(module_name)

    def whichmodule(self, obj: Any, name: str) -> str:
        """The name of the module that holds an object, by the first importer that knows it."""
        for importer in self._importers:
            found = importer.whichmodule(obj, name)
            if found != "__main__":
                return found
        return "__main__"


sys_importer = _SystemImporter()
