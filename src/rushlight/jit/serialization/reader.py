"""`torch.jit.load`: archives of compiled modules and functions."""

from __future__ import annotations

import io
import os
from pickle import UnpicklingError
from typing import Any

from rushlight.jit.arguments import ArgumentMismatch, converter
from rushlight.jit.frontend.errors import CompileError, FrontendError
from rushlight.jit.ir import types as T
from rushlight.jit.modules import RecursiveScriptModule, wrap_module
from rushlight.jit.runtime.objects import new_object
from rushlight.jit.serialization.packed import packed_object
from rushlight.jit.serialization.records import ModelArchive
from rushlight.jit.serialization.unit import ArchiveUnit
from rushlight.jit.serialization.unpickler import ModelUnpickler, RawObject
from rushlight.nn.parameter import Parameter
from rushlight.serialization.loading import _check_version, _Storages

__all__ = ["is_archive", "load", "module_of"]


def is_archive(archive: Any) -> bool:
    """Whether an archive holds compiled code."""
    return "constants.pkl" in archive


def load(
    f: Any, map_location: Any = None, extra_files: dict[str, Any] | None = None, restore_shapes: bool = False
) -> Any:
    """The module of a file (or of the path of one)."""
    if isinstance(f, (str, os.PathLike)):
        path = os.fspath(f)
        if not os.path.exists(path):
            raise ValueError(f"The provided filename {path} does not exist")
        if os.path.isdir(path):
            raise ValueError(f"The provided filename {path} is a directory")
        with open(path, "rb") as file:
            return _load(file, path, map_location, extra_files)
    if not hasattr(f, "seek"):
        f = io.BytesIO(f.read())
    return _load(f, "the file", map_location, extra_files)


def _load(file: Any, where: str, map_location: Any, extra_files: dict[str, Any] | None) -> Any:
    archive = ModelArchive(file, where)
    if "constants.pkl" not in archive:
        raise RuntimeError(f"{where}: this is no TorchScript archive: it has no record 'constants.pkl'")
    _check_version(archive, where)
    try:
        return module_of(archive, where, map_location, extra_files)
    except (UnpicklingError, CompileError, RuntimeError, NotImplementedError):
        raise
    except FrontendError as error:
        raise RuntimeError(f"{where}: the archive's code is damaged: {error}") from None
    except RecursionError:
        raise RuntimeError(f"{where}: the archive is nested too deeply") from None
    except (
        TypeError,
        ValueError,
        KeyError,
        IndexError,
        AttributeError,
        AssertionError,
        OverflowError,
        MemoryError,
        EOFError,
        OSError,
    ) as error:
        raise RuntimeError(f"{where}: the archive is damaged ({type(error).__name__}: {error})") from error


def module_of(archive: Any, where: str, map_location: Any = None, extra_files: dict[str, Any] | None = None) -> Any:
    """The module of an archive that is open."""
    version = int(archive.read("version" if "version" in archive else ".data/version"))
    # The file may be closed before a method is first called.
    texts = {n: archive.read(n) for n in archive.names() if n.startswith("code/") and n.endswith(".py")}
    unit = ArchiveUnit(texts.get, where, version)
    device = None if map_location is None else map_location
    storages = _Storages(archive, device, None)
    constants = ModelUnpickler(
        archive.read("constants.pkl"), _constant_storages(archive, storages, device), unit.find
    ).load()
    if not isinstance(constants, tuple):
        raise RuntimeError(f"{where}: the constants are no tuple; the file is damaged")
    unit.constants.extend(_converted(constants, {}))
    raw = ModelUnpickler(archive.read("data.pkl"), storages.persistent_load, unit.find).load()
    if not isinstance(raw, RawObject) or not raw.kind.is_module:
        raise RuntimeError(f"{where}: the archive does not hold a module")
    for name in extra_files or {}:
        assert extra_files is not None
        if f"extra/{name}" in archive:
            extra_files[name] = _text(archive.read(f"extra/{name}"))
    return _made(raw, {})


def _text(data: bytes) -> Any:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


class _Prefixed(_Storages):
    """Storages of constants, which lie in a folder of their own."""

    def _read(self, dtype: Any, key: str, location: str, nbytes: int) -> Any:
        archive, self._archive = self._archive, _Folder(self._archive)  # type: ignore[assignment]
        try:
            return super()._read(dtype, key, location, nbytes)
        finally:
            self._archive = archive


class _Folder:
    """An archive whose records `data/...` are those of `constants/...`."""

    def __init__(self, archive: Any) -> None:
        self._archive = archive

    def locate(self, name: str) -> Any:
        return self._archive.locate(self._renamed(name))

    def read_into(self, name: str, target: Any) -> None:
        self._archive.read_into(self._renamed(name), target)

    def _renamed(self, name: str) -> str:
        return f"constants/{name.removeprefix('data/')}"


def _constant_storages(archive: Any, storages: Any, device: Any) -> Any:
    return _Prefixed(archive, device, None).persistent_load


def _made(raw: RawObject, memo: dict[int, Any]) -> Any:
    """The module, or the object, of what a pickle described."""
    if raw.made is not None:
        return raw.made
    kind = raw.kind
    if kind.name in T.PACKED:
        raw.made = packed_object(kind.name, _converted(raw.state, memo))
        return raw.made
    if not kind.is_module:
        return _object(raw, memo)
    state: Any = raw.state
    if not isinstance(state, dict):
        state = {} if state is None else {"state": state}
    module = wrap_module(kind, RecursiveScriptModule)
    raw.made = module
    setter = kind.find_method("__setstate__")
    if setter is not None:
        held = raw.state
        _fill(module, kind, {}, memo)
        setter.run(module, _converted(held, memo))
    else:
        _fill(module, kind, state, memo)
    return module


def _fill(module: Any, kind: T.ClassType, state: dict[str, Any], memo: dict[int, Any]) -> None:
    for name, held in kind.attributes.items():
        if name not in state and kind.find_method("__setstate__") is None:
            if held.name == "Optional" or held == T.NONE:
                state = {**state, name: None}
            else:
                raise RuntimeError(f"the archive has no value for the attribute {name} of {kind.name}")
        value = _converted(state.get(name), memo)
        if name not in state:  # `__setstate__` gives it one
            module.__dict__.setdefault(name, None)
        elif name in kind.parameters:
            module._parameters[name] = _parameter(value)
        elif name in kind.buffers:
            module._buffers[name] = value
        elif getattr(held, "is_module", False):
            module._modules[name] = value
        else:
            module.__dict__[name] = _typed(value, held)


def _parameter(value: Any) -> Any:
    if value is None or isinstance(value, Parameter):
        return value
    return Parameter(value, requires_grad=value.requires_grad)


def _typed(value: Any, kind: T.Type) -> Any:
    if isinstance(kind, (T.ClassType, T.InterfaceType)):
        return value
    try:
        return converter(kind)(value)
    except ArgumentMismatch:
        raise RuntimeError(
            f"a value of the archive is not of type {kind.annotation} but {type(value).__name__}"
        ) from None


def _converted(value: Any, memo: dict[int, Any]) -> Any:
    """A value of a pickle with the modules and objects that it describes."""
    if isinstance(value, RawObject):
        return _made(value, memo)
    if type(value) is list:
        return [_converted(v, memo) for v in value]
    if type(value) is tuple:
        return tuple(_converted(v, memo) for v in value)
    if type(value) is dict:
        return {k: _converted(v, memo) for k, v in value.items()}
    return value


def _object(raw: RawObject, memo: dict[int, Any]) -> Any:
    made = raw.made = new_object(raw.kind)
    setter = raw.kind.find_method("__setstate__")
    if setter is not None:
        setter.run(made, _converted(raw.state, memo))
    elif isinstance(raw.state, dict):
        for name, kind in raw.kind.attributes.items():
            if name not in raw.state:
                raise RuntimeError(f"the archive has no value for the attribute {name} of {raw.kind.name}")
            made.__dict__[name] = _typed(_converted(raw.state[name], memo), kind)
    return made
