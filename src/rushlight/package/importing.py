"""`PackageImporter`: reads packages that PyTorch or rushlight wrote.

Texts, bytes, tensors, containers and compiled modules are read without running anything.  Modules of Python in a package
run only where the importer was made with `allow_code=True`.
"""

from __future__ import annotations

import builtins
import importlib
import io
import linecache
import os
import pickle
import types
import zipfile
from collections.abc import Callable
from typing import Any

from rushlight._interface.base import LazyModule
from rushlight.package.errors import PackageCodeError
from rushlight.package.importers import Importer
from rushlight.package.patterns import Directory, GlobGroup
from rushlight.serialization.archive import ArchiveReader
from rushlight.serialization.loading import _Storages
from rushlight.serialization.names import find_torch_global
from rushlight.serialization.unpickler import SafeUnpickler, _Allowed

reader: Any = LazyModule("rushlight.jit.serialization.reader")
records: Any = LazyModule("rushlight.jit.serialization.records")

__all__ = ["PackageImporter", "is_from_package"]

_COUNT = [0]
_OBJECTS: set[str] = set()


def is_from_package(obj: Any) -> bool:
    """Whether an object's module came out of a package."""
    name = (
        obj.__name__
        if isinstance(obj, types.ModuleType)
        else getattr(type(obj) if not isinstance(obj, type) else obj, "__module__", "")
    )
    return name.partition(".")[0] in _OBJECTS


class _PackageStorages(_Storages):
    """Storages of a package: `.data/N.storage`."""

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, tuple) and len(pid) == 5 and isinstance(pid[2], int):
            pid = (*pid[:2], str(pid[2]), *pid[3:])
        return super().persistent_load(pid)


class _Renamed:
    """An archive whose records `data/N` are `.data/N.storage`."""

    def __init__(self, archive: Any) -> None:
        self._archive = archive

    def locate(self, name: str) -> Any:
        return self._archive.locate(f".data/{name.removeprefix('data/')}.storage")

    def read_into(self, name: str, target: Any) -> None:
        self._archive.read_into(f".data/{name.removeprefix('data/')}.storage", target)

    def read(self, name: str) -> Any:
        return self._archive.read(name)

    def __contains__(self, name: str) -> bool:
        return name in self._archive


class _Compiled:
    """The records of one compiled module in a package, as an archive of its own."""

    def __init__(self, archive: Any, number: str) -> None:
        self._archive, self._number = archive, number

    def _place(self, name: str) -> str:
        if name.startswith("code/"):
            return f".data/ts_code/{name}"
        if name.startswith("data/"):
            return f".data/{name.removeprefix('data/').removesuffix('.storage')}.storage"
        if name.startswith("constants/"):
            return f".data/{name.removeprefix('constants/').removesuffix('.storage')}.storage"
        if name in ("data.pkl", "constants.pkl"):
            return f".data/ts_code/{self._number}/{name}"
        return f".data/{name}" if name == "version" else name

    def names(self) -> list[str]:
        return [n.removeprefix(".data/ts_code/") for n in self._archive.names() if n.startswith(".data/ts_code/code/")]

    def __contains__(self, name: str) -> bool:
        return self._place(name) in self._archive

    def read(self, name: str) -> Any:
        return self._archive.read(self._place(name))

    def locate(self, name: str) -> Any:
        return self._archive.locate(self._place(name))

    def read_into(self, name: str, target: Any) -> None:
        self._archive.read_into(self._place(name), target)


class _Safe(SafeUnpickler):
    """Reads a pickle of a package without running any code."""

    def _push_global(self, module: str, name: str) -> None:
        if (module, name) == ("torch.jit._script", "unpackage_script_module"):
            self._stack.append(_Allowed(f"{module}.{name}", _marker, by_user=False))
            return
        try:
            super()._push_global(module, name)
        except pickle.UnpicklingError as error:
            raise PackageCodeError(
                f"{error} To run the package's own code and to make any object that its pickles name, open it with "
                "PackageImporter(..., allow_code=True): do so only for a package that you trust."
            ) from None


def _marker(*args: Any) -> Any:
    """Stands for the function that makes compiled modules: only its name counts."""
    raise pickle.UnpicklingError("compiled modules are made from their records")


class PackageImporter(Importer):
    """Reads a package from a path or a file.

    `allow_code` is the consent to run the Python code of the package and to make any object that its pickles name.
    """

    def __init__(
        self,
        file_or_buffer: Any,
        module_allowed: Callable[[str], bool] = lambda name: True,
        *,
        allow_code: bool = False,
    ) -> None:
        self.filename = "<binary>"
        if isinstance(file_or_buffer, (str, os.PathLike)):
            self.filename = os.fspath(file_or_buffer)
            if os.path.isdir(self.filename):
                self._file: Any = _zipped(self.filename)
            elif os.path.isfile(self.filename):
                self._file = open(self.filename, "rb")  # read from as long as the importer lives
            else:
                raise FileNotFoundError(f"there is no package {self.filename!r}")
        else:
            self._file = file_or_buffer
        self.zip_reader: ArchiveReader = records.ModelArchive(self._file, self.filename)
        self.allow_code, self._module_allowed = allow_code, module_allowed
        self._storages = _PackageStorages(_Renamed(self.zip_reader), None, None)  # type: ignore[arg-type]
        self.extern_modules = self._lines(".data/extern_modules")
        own = (
            ".".join(parts[:k]) for parts in (n.split(".") for n in self.extern_modules) for k in range(1, len(parts))
        )
        self._above_extern = {name for name in own if name not in self.extern_modules}
        self._root = f"<torch_package_{_COUNT[0]}>"
        _COUNT[0] += 1
        _OBJECTS.add(self._root)
        self.modules: dict[str, Any] = {}

    def _lines(self, name: str) -> list[str]:
        return self.zip_reader.read(name).decode("utf-8").split() if name in self.zip_reader else []

    # ***** resources *****

    @staticmethod
    def _path(package: str, resource: str) -> str:
        if any(part in ("..", "") for part in resource.split("/")):
            raise ValueError(f"{resource!r} is no name of a resource")
        return f"{package.replace('.', '/')}/{resource}" if package else resource

    def load_binary(self, package: str, resource: str) -> bytes:
        """The bytes of a resource."""
        return self.zip_reader.read(self._path(package, resource))

    def load_text(self, package: str, resource: str, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The text of a resource."""
        return self.load_binary(package, resource).decode(encoding, errors)

    def load_pickle(self, package: str, resource: str, map_location: Any = None) -> Any:
        """The object of a pickle: tensors, containers and compiled modules; any object with `allow_code`.

        PackageCodeError where code would have to run.
        """
        data = self.load_binary(package, resource)
        storages = self._storages
        if map_location is not None:
            storages = _PackageStorages(_Renamed(self.zip_reader), map_location, None)  # type: ignore[arg-type]

        def persistent_load(pid: Any) -> Any:
            if isinstance(pid, tuple) and pid and pid[0] == "reduce_package":
                return self._reduced(pid, map_location)
            return storages.persistent_load(pid)

        if not self.allow_code:
            return _Safe(data, persistent_load).load()
        return _Trusting(io.BytesIO(data), persistent_load, self).load()

    def _reduced(self, pid: tuple[Any, ...], map_location: Any) -> Any:
        if len(pid) != 4 or not isinstance(pid[3], tuple):
            raise pickle.UnpicklingError("an object of the package is described in an unknown way")
        function, args = pid[2:]
        if function is _marker:
            number = args[0] if args else None
            if not isinstance(number, (str, int)) or not str(number).isdigit():
                raise pickle.UnpicklingError("a compiled module of a package has a number")
            return reader.module_of(_Compiled(self.zip_reader, str(number)), self.filename, map_location)
        if not self.allow_code:
            raise PackageCodeError("an object of the package is made by its own code: open it with allow_code=True")
        return function(self, *args)

    # ***** code *****

    def import_module(self, name: str, package: Any = None) -> Any:
        """A module of the package; PackageCodeError without `allow_code`."""
        if name in self.modules:
            return self.modules[name]
        if name in self.extern_modules or any(name.startswith(f"{e}.") for e in self.extern_modules):
            if not self._module_allowed(name):
                raise ImportError(f"package {self.filename!r} needs the external module {name!r}, which is not allowed")
            found = importlib.import_module(_renamed(name))
            parent, _, short = name.rpartition(".")
            if parent in self._above_extern:
                setattr(self.import_module(parent), short, found)
            return found
        path = self._source_path(name)
        if path is None and not self._is_folder(name):
            raise ModuleNotFoundError(
                f"No module named {name!r} in the package {self.filename!r}; external modules are {', '.join(self.extern_modules) or 'none'}"
            )
        if not self.allow_code:
            raise PackageCodeError(
                f"module {name} of {self.filename!r} is code: open the package with PackageImporter(..., allow_code=True) to run it, if you trust it"
            )
        return self._run_module(name, path)

    def _source_path(self, name: str) -> str | None:
        place = name.replace(".", "/")
        for path in (f"{place}/__init__.py", f"{place}.py"):
            if path in self.zip_reader:
                return path
        return None

    def _is_folder(self, name: str) -> bool:
        return name in self._above_extern or any(
            n.startswith(name.replace(".", "/") + "/") for n in self.zip_reader.names() if not n.startswith(".data")
        )

    def _run_module(self, name: str, path: str | None) -> Any:
        parent, _, short = name.rpartition(".")
        if parent and parent not in self.modules:
            self.import_module(parent)
        made = types.ModuleType(f"{self._root}.{name}")
        filename = f"{self._root}.{path or name}"
        made.__file__ = filename
        made.__dict__["__torch_package__"] = True
        is_package = path is None or path.endswith("__init__.py")
        made.__package__ = made.__name__ if is_package else made.__name__.rpartition(".")[0]
        if is_package:
            made.__path__ = []
        made.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._importing(name, is_package)}
        self.modules[name] = made
        if path is not None:
            text = self.zip_reader.read(path).decode("utf-8")
            linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
            try:
                exec(compile(text, filename, "exec", dont_inherit=True), made.__dict__)  # noqa: S102 - with the user's consent
            except BaseException:
                del self.modules[name]
                raise
        if parent:
            setattr(self.modules[parent], short, made)
        return made

    def _importing(self, importer_name: str, is_package: bool) -> Callable[..., Any]:
        """The `import` statement inside a module of the package."""

        def import_(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
            if level:
                parts = importer_name.split(".") if is_package else importer_name.split(".")[:-1]
                parts = parts[: len(parts) - (level - 1)]
                name = ".".join([*parts, name] if name else parts)
            found = self._import_any(name)
            if not fromlist:
                return self._import_any(name.partition(".")[0]) if "." in name else found
            for each in fromlist:
                if each not in ("*", "") and not hasattr(found, each):
                    self._import_any(f"{name}.{each}")
            return found

        return import_

    def _import_any(self, name: str) -> Any:
        if name == "torch_package_importer":
            return self
        if name in self.modules:
            return self.modules[name]
        if name in self.extern_modules or self._source_path(name) is not None or self._is_folder(name):
            return self.import_module(name)
        if not self._module_allowed(name):
            raise ImportError(f"package {self.filename!r} needs the external module {name!r}, which is not allowed")
        return importlib.import_module(_renamed(name))

    def get_source(self, module_name: str) -> str:
        """The text of a module."""
        path = self._source_path(module_name)
        if path is None:
            raise ModuleNotFoundError(f"No module named {module_name!r} in the package")
        return self.zip_reader.read(path).decode("utf-8")

    def get_resource_reader(self, fullname: str) -> Any:
        """Resources of a package, as `importlib.resources` asks for them."""
        return _Resources(self, fullname) if self._is_folder(fullname) else None

    # ***** facts *****

    def id(self) -> str:
        """A name that tells this importer's modules from others."""
        return self._root

    def python_version(self) -> str | None:
        """The version of Python that wrote the package; None where it does not say."""
        found = self._lines(".data/python_version")
        return found[0] if found else None

    def file_structure(self, *, include: Any = "**", exclude: Any = ()) -> Directory:
        """The files of the package as a tree."""
        group = GlobGroup(include, exclude=exclude, separator="/")
        made = Directory(self.filename, True)
        for name in self.zip_reader.names():
            if group.matches(name):
                made._add(name)
        return made

    def whichmodule(self, obj: Any, name: str) -> str:
        """The name of the module that holds an object, without the mark of the package."""
        return super().whichmodule(obj, name).removeprefix(f"{self._root}.")


class _Resources:
    def __init__(self, importer: PackageImporter, name: str) -> None:
        self.importer, self.name = importer, name

    def open_resource(self, resource: str) -> Any:
        return io.BytesIO(self.importer.load_binary(self.name, resource))

    def contents(self) -> Any:
        head = self.name.replace(".", "/") + "/"
        names = {n[len(head) :].partition("/")[0] for n in self.importer.zip_reader.names() if n.startswith(head)}
        return iter(sorted(names))

    def is_resource(self, name: str) -> bool:
        return f"{self.name.replace('.', '/')}/{name}" in self.importer.zip_reader

    def resource_path(self, name: str) -> str:
        raise FileNotFoundError(name)


def _zipped(folder: str) -> io.BytesIO:
    """A package whose files lie in a folder, as one file."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for place, _, files in os.walk(folder):
            for name in sorted(files):
                path = os.path.join(place, name)
                archive.write(path, os.path.join("package", os.path.relpath(path, folder)))
    made.seek(0)
    return made


def _renamed(name: str) -> str:
    head, dot, rest = name.partition(".")
    return f"rushlight{dot}{rest}" if head == "torch" else name


class _Trusting(pickle.Unpickler):
    """Reads a pickle of a package with its own classes."""

    def __init__(self, file: Any, load: Callable[[Any], Any], importer: PackageImporter) -> None:
        super().__init__(file)
        self._load, self._importer = load, importer

    def persistent_load(self, pid: Any) -> Any:
        return self._load(pid)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch.jit._script", "unpackage_script_module"):
            return _marker
        if self._importer._source_path(module) is not None:
            found = self._importer.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
            return found
        if module.partition(".")[0] == "torch":
            try:
                return find_torch_global(module, name)
            except (AttributeError, ImportError) as error:
                raise pickle.UnpicklingError(f"the package needs {module}.{name}, which rushlight lacks") from error
        return super().find_class(module, name)
