"""`PackageExporter`: writes models together with the code that they need, in PyTorch's format."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import io
import os
import pickletools
import platform
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from rushlight._interface.base import LazyModule
from rushlight._interface.files import crc32
from rushlight.package.errors import EmptyMatchError, PackagingError
from rushlight.package.importers import Importer, OrderedImporter, sys_importer
from rushlight.package.patterns import GlobGroup
from rushlight.serialization import memory
from rushlight.serialization.archive import ArchiveWriter
from rushlight.serialization.saving import _Pickler

writer: Any = LazyModule("rushlight.jit.serialization.writer")
modules: Any = LazyModule("rushlight.jit.modules")

__all__ = ["PackageExporter"]

# Those two reach far: patterns decide
_ALWAYS_EXTERN = sys.stdlib_module_names - {"sys", "io"} | {"torch", "rushlight"}


class _Rule:
    """Action for modules whose names match."""

    def __init__(self, action: str, group: GlobGroup, allow_empty: bool) -> None:
        self.action, self.group, self.allow_empty = action, group, allow_empty
        self.used = False


class _PackagePickler(_Pickler):
    """Writes pickles whose storages are records of the package."""

    def __init__(self, out: Any, exporter: PackageExporter, protocol: int) -> None:
        super().__init__(out, protocol)
        self._exporter = exporter

    def key_of(self, storage: Any, dtype: Any) -> Any:
        """The number of a storage's record."""
        identity = memory.identity(storage)
        found = self._exporter._storages.get(identity)
        if found is None:
            found = self._exporter._storages[identity] = (len(self._exporter._storages), storage)
            self._exporter._write(f".data/{found[0]}.storage", memory.bytes_of(storage.cpu()))
        return found[0]

    def persistent_id(self, obj: Any) -> Any:
        """Storages and compiled modules stay outside of the pickle."""
        if type(obj).__module__.partition(".")[2] == "jit.modules" and isinstance(obj, modules.RecursiveScriptModule):
            raise NotImplementedError(
                "rushlight writes no compiled modules into pickles of packages: save them with torch.jit.save, and the file with save_binary"
            )
        return super().persistent_id(obj)


class PackageExporter:
    """Writes a package; a context that closes it.

    Which modules come along is said by patterns: `intern` (their source is written), `extern` (they must be there when
    the package is read), `mock` (a module of stand-ins is written), `deny`.  PackagingError names the modules for which
    no pattern says anything.
    """

    def __init__(self, f: Any, importer: Any = sys_importer, debug: bool = False) -> None:
        self._target, self._buffer = f, io.BytesIO()
        name = (
            re.sub(r"\.[^.]*$", "", os.path.basename(os.fspath(f))) if isinstance(f, (str, os.PathLike)) else "archive"
        )
        self._archive = ArchiveWriter(self._buffer, name or "archive")
        importers = [importer] if isinstance(importer, Importer) else list(importer)
        self.importer = importers[0] if len(importers) == 1 else OrderedImporter(*importers)
        self._rules: list[_Rule] = []
        self._written: set[str] = set()
        self._storages: dict[int, tuple[int, Any]] = {}
        self._sources: dict[str, tuple[str, bool]] = {}
        self._needed: dict[str, set[str]] = {}
        self._found: dict[str, str] = {}
        self._hooks: dict[str, list[Callable[[PackageExporter, str], None]]] = {"intern": [], "extern": [], "mock": []}
        self._closed = False
        self._unique = 0
        self.debug = debug

    # ***** patterns *****

    def intern(self, include: Any, *, exclude: Any = (), allow_empty: bool = True) -> None:
        """Write the source of modules whose names match."""
        self._rules.append(_Rule("intern", GlobGroup(include, exclude=exclude), allow_empty))

    def extern(self, include: Any, *, exclude: Any = (), allow_empty: bool = True) -> None:
        """Leave modules whose names match to the place where the package is read."""
        self._rules.append(_Rule("extern", GlobGroup(include, exclude=exclude), allow_empty))

    def mock(self, include: Any, *, exclude: Any = (), allow_empty: bool = True) -> None:
        """Write modules whose attributes raise NotImplementedError when they are called."""
        self._rules.append(_Rule("mock", GlobGroup(include, exclude=exclude), allow_empty))

    def deny(self, include: Any, *, exclude: Any = ()) -> None:
        """Refuse to write a package that needs modules whose names match."""
        self._rules.append(_Rule("deny", GlobGroup(include, exclude=exclude), True))

    def register_extern_hook(self, hook: Any) -> Any:
        """Call `hook(exporter, module)` for each module that is left out; the handle removes it."""
        return self._hook("extern", hook)

    def register_intern_hook(self, hook: Any) -> Any:
        """Call `hook(exporter, module)` for each module that is written; the handle removes it."""
        return self._hook("intern", hook)

    def register_mock_hook(self, hook: Any) -> Any:
        """Call `hook(exporter, module)` for each module that is mocked; the handle removes it."""
        return self._hook("mock", hook)

    def _hook(self, action: str, hook: Any) -> Any:
        self._hooks[action].append(hook)
        return _Handle(self._hooks[action], hook)

    # ***** what is written *****

    def save_text(self, package: str, resource: str, text: str) -> None:
        """Write a text."""
        self.save_binary(package, resource, text.encode("utf-8"))

    def save_binary(self, package: str, resource: str, binary: bytes) -> None:
        """Write bytes."""
        self._write(f"{package.replace('.', '/')}/{resource}" if package else resource, binary)

    def save_pickle(
        self, package: str, resource: str, obj: Any, dependencies: bool = True, pickle_protocol: int = 3
    ) -> None:
        """Write an object; with `dependencies` the modules of its classes come along as the patterns say."""
        out = io.BytesIO()
        _PackagePickler(out, self, pickle_protocol).dump(obj)
        data = out.getvalue()
        if dependencies:
            for module in _pickled_modules(data):
                self.add_dependency(module)
                self._needed.setdefault(f"<{package}.{resource}>", set()).add(module)
        self.save_binary(package, resource, data)

    def save_module(self, module_name: str, dependencies: bool = True) -> None:
        """Write the source of a module."""
        source = _source_of(self.importer.import_module(module_name))
        self.save_source_string(module_name, source, _is_package(module_name), dependencies)

    def save_source_file(self, module_name: str, file_or_directory: str, dependencies: bool = True) -> None:
        """Write a file, or all files of a folder, as a module."""
        if os.path.isfile(file_or_directory):
            with open(file_or_directory, encoding="utf-8") as file:
                self.save_source_string(module_name, file.read(), False, dependencies)
            return
        for folder, _, files in os.walk(file_or_directory):
            place = os.path.relpath(folder, file_or_directory)
            prefix = module_name if place == "." else f"{module_name}.{place.replace(os.sep, '.')}"
            for name in sorted(files):
                path = os.path.join(folder, name)
                if name.endswith(".py"):
                    with open(path, encoding="utf-8") as file:
                        text = file.read()
                    own = prefix if name == "__init__.py" else f"{prefix}.{name[:-3]}"
                    self.save_source_string(own, text, name == "__init__.py", dependencies)
                else:
                    with open(path, "rb") as binary:
                        self.save_binary(prefix, name, binary.read())

    def save_source_string(
        self, module_name: str, src: str, is_package: bool = False, dependencies: bool = True
    ) -> None:
        """Write a text as a module."""
        self._sources[module_name] = (src, is_package)
        self._found[module_name] = "intern"
        if dependencies:
            for needed in _imported(src, module_name, is_package):
                self.add_dependency(needed)
                self._needed.setdefault(module_name, set()).add(needed)

    def add_dependency(self, module_name: str, dependencies: bool = True) -> None:
        """Note that a module is needed: what happens with it is said by the patterns."""
        if module_name in self._found:
            return
        action = self._action(module_name)
        self._found[module_name] = action
        for hook in self._hooks.get(action, ()):
            hook(self, module_name)
        if action == "intern":
            self.save_module(module_name, dependencies)

    def _action(self, name: str) -> str:
        if name == "torch_package_importer":  # the importer of the package stands for it
            return "given"
        if name.partition(".")[0] in _ALWAYS_EXTERN:
            return "extern"
        for rule in self._rules:
            if rule.group.matches(name):
                rule.used = True
                return rule.action
        return "unknown"

    def get_unique_id(self) -> str:
        """A number that this package has not used."""
        self._unique += 1
        return str(self._unique - 1)

    # ***** facts *****

    def _of(self, action: str) -> list[str]:
        return sorted(n for n, a in self._found.items() if a == action)

    def interned_modules(self) -> list[str]:
        """The modules whose source is written."""
        return self._of("intern")

    def externed_modules(self) -> list[str]:
        """The modules that must be there when the package is read."""
        return self._of("extern")

    def mocked_modules(self) -> list[str]:
        """The modules that are stand-ins."""
        return self._of("mock")

    def denied_modules(self) -> list[str]:
        """The modules that were denied and are needed."""
        return self._of("deny")

    def get_rdeps(self, module_name: str) -> list[str]:
        """Modules that need a module."""
        if module_name not in self._found:
            return []
        return sorted(n for n, needed in self._needed.items() if module_name in needed)

    def dependency_graph_string(self) -> str:
        """Who needs whom, in the language of Graphviz."""
        edges = "\n".join(f'"{a}" -> "{b}";' for a in sorted(self._needed) for b in sorted(self._needed[a]))
        return f"digraph G {{\nrankdir = LR;\nnode [shape=box];\n{edges}\n}}\n"

    def all_paths(self, src: str, dst: str) -> str:
        """The ways from one module to another, in the language of Graphviz."""
        kept = self._reach(src, self._needed) & self._reach(dst, self._reversed())
        edges = "\n".join(
            f'"{a}" -> "{b}";' for a in sorted(self._needed) for b in sorted(self._needed[a]) if a in kept and b in kept
        )
        return f"digraph G {{\nrankdir = LR;\nnode [shape=box];\n{edges}\n}}\n"

    def _reversed(self) -> dict[str, set[str]]:
        made: dict[str, set[str]] = {}
        for name, needed in self._needed.items():
            for each in needed:
                made.setdefault(each, set()).add(name)
        return made

    def _reach(self, start: str, edges: dict[str, set[str]]) -> set[str]:
        seen, waiting = {start}, [start]
        while waiting:
            for each in edges.get(waiting.pop(), ()):
                if each not in seen:
                    seen.add(each)
                    waiting.append(each)
        return seen

    # ***** closing *****

    def __enter__(self) -> PackageExporter:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            self._closed = True
            return
        self.close()

    def close(self) -> None:
        """Check what is needed, and write the file."""
        if self._closed:
            return
        self._closed = True
        self._check()
        for name, (text, is_package) in self._sources.items():
            place = name.replace(".", "/")
            self._write(f"{place}/__init__.py" if is_package else f"{place}.py", text.encode("utf-8"))
        for name in self.mocked_modules():
            self._write(f"{name.replace('.', '/')}.py", _MOCK.encode("utf-8"))
        self._write(".data/extern_modules", "".join(f"{_spoken(n)}\n" for n in self.externed_modules()).encode())
        self._write(".data/python_version", platform.python_version().encode())
        self._write(".data/version", b"6\n")
        self._write("byteorder", sys.byteorder.encode())
        total = crc32(repr(self._archive.digests).encode())
        self._write(".data/serialization_id", f"{total:040d}".encode())
        self._archive.close()
        self._deliver()

    def _deliver(self) -> None:
        if isinstance(self._target, (str, os.PathLike)):
            with writer.replacing(self._target) as out:
                out.write(self._buffer.getbuffer())
        else:
            self._target.write(self._buffer.getvalue())

    def _check(self) -> None:
        for rule in self._rules:
            if not rule.used and not rule.allow_empty:
                raise EmptyMatchError(
                    f"Exporter did not match any modules to {rule.group}, which was marked as allow_empty=False"
                )
        wrong = {n: a for n, a in self._found.items() if a in ("unknown", "deny")}
        if wrong:
            lines = [
                f"  {n}: {'denied by a pattern' if a == 'deny' else 'no pattern of intern, extern or mock matches'}; needed by {', '.join(self.get_rdeps(n)) or 'the program'}"
                for n, a in sorted(wrong.items())
            ]
            raise PackagingError("the package cannot be written:\n" + "\n".join(lines))

    def _write(self, name: str, data: Any) -> None:
        if name in self._written:
            raise RuntimeError(f"the package has a record {name!r} already")
        self._written.add(name)
        self._archive.record(name, data)


class _Handle:
    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


_MOCK = '''"""A stand-in: the package was written without this module."""


class MockedObject:
    def __init__(self, name):
        self._name = name

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"{self._name} was mocked out when the package was written")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return MockedObject(f"{self._name}.{name}")


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return MockedObject(name)
'''


def _spoken(name: str) -> str:
    head, dot, rest = name.partition(".")
    return f"torch{dot}{rest}" if head == "rushlight" else name


def _source_of(module: Any) -> str:
    try:
        return inspect.getsource(module)
    except (OSError, TypeError):
        path = getattr(module, "__file__", None)
        if path is not None and os.path.isfile(path) and os.path.getsize(path) == 0:
            return ""
        raise PackagingError(f"the source of module {module.__name__} is not there") from None


def _is_package(name: str) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.submodule_search_locations is not None


def _pickled_modules(data: bytes) -> Iterable[str]:
    """The modules of the globals that a pickle names."""
    found: dict[str, None] = {}
    texts: list[str] = []
    for code, argument, _ in pickletools.genops(data):
        if code.name == "GLOBAL":
            found[str(argument).split(" ")[0]] = None
        elif "UNICODE" in code.name:
            texts.append(str(argument))
        elif code.name == "STACK_GLOBAL" and len(texts) > 1:
            found[texts[-2]] = None
    return found


def _imported(text: str, module: str, is_package: bool) -> Iterable[str]:
    """The modules that a source text imports."""
    found: dict[str, None] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.name] = None
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".") if is_package else module.split(".")[:-1]
                parts = parts[: len(parts) - (node.level - 1)]
                base = ".".join([*parts, base] if base else parts)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found[inner if _is_module(inner) else base] = None
    return found


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False
