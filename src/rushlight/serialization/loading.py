"""`load`: what `save` (ours or PyTorch's) wrote."""

from __future__ import annotations

import io
import mmap as _mmap
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight.serialization import memory
from rushlight.serialization.allowed import always_allowed, user_globals
from rushlight.serialization.archive import ArchiveReader
from rushlight.serialization.names import STORAGE_TYPES, StorageType, find_torch_global
from rushlight.serialization.rebuild import LoadedStorage
from rushlight.serialization.unpickler import SafeUnpickler, global_names

__all__ = ["get_unsafe_globals_in_checkpoint", "load"]

_ADVICE = (
    "Weights only load failed. If you trust the source of the file, and only then, `weights_only=False` loads it with "
    "the full pickle machinery, which can run any code that the file contains."
)


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read what `save` wrote to `f`, a path or a seekable binary file.

    By default only tensors, containers, numbers and strings are read, and no code runs; other classes can be allowed with
    `add_safe_globals`. `weights_only=False` unpickles anything and runs whatever code the file holds: use it for files that
    you trust. `map_location` (a device, a dict, or a function of storage and location) chooses where tensors go. `mmap=True`
    maps the file instead of reading it: tensors share the file's pages and changing them does not change the file.

    Raises `pickle.UnpicklingError` for content that is not allowed, `RuntimeError` for damaged files.

    Example: `model.load_state_dict(torch.load("checkpoint.pt")["model"])`
    """
    if pickle_module not in (None, pickle):
        raise NotImplementedError("load with another pickle_module is not supported")
    safe = True if weights_only is None else bool(weights_only)
    if os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0").lower() in ("1", "y", "yes", "true"):
        safe = True
    if safe and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    if safe and pickle_load_args:
        warnings.warn("pickle_load_args only works if `weights_only=False`.", stacklevel=2)
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return _load(file, os.fspath(f), map_location, safe, bool(mmap), pickle_load_args)
    if mmap:
        raise ValueError("f must be a file path in order to use the mmap argument")
    return _load(_seekable(f), "checkpoint", map_location, safe, False, pickle_load_args)


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The classes and functions that a file names and that are not allowed; nothing of the file is run."""
    file = open(f, "rb") if isinstance(f, (str, os.PathLike)) else f
    try:
        names = global_names(ArchiveReader(file, str(f)).read("data.pkl"))
    finally:
        if file is not f:
            file.close()
    return sorted(names - set(always_allowed()) - set(user_globals()))


def _seekable(f: Any) -> Any:
    if not all(hasattr(f, name) for name in ("read", "seek", "tell")):
        raise AttributeError(
            f"'{type(f).__name__}' object has no 'seek' or 'tell'. You can only torch.load from a file that is seekable. "
            "Please pre-load the data into a buffer like io.BytesIO and try to load from it instead."
        )
    start = f.tell()
    if start == 0:
        return f
    # An archive that begins in the middle of a stream: what comes before is none of its business.
    return io.BytesIO(f.read())


def _load(
    file: Any, where: str, map_location: Any, safe: bool, mapped: bool, pickle_load_args: dict[str, Any]
) -> Any:
    file.seek(0)
    start = file.read(4)
    if start != b"PK\x03\x04":
        raise _not_an_archive(start, where)
    archive = ArchiveReader(file, where)
    if "constants.pkl" in archive:
        raise NotImplementedError(f"{where}: TorchScript archives are not supported")
    if "data.pkl" not in archive:
        raise RuntimeError(f"{where}: there is no record 'data.pkl'; this zip file is not a checkpoint")
    overall = _mmap.mmap(file.fileno(), 0, access=_mmap.ACCESS_COPY) if mapped else None
    storages = _Storages(archive, map_location, overall)
    data = archive.read("data.pkl")
    if not safe:
        return _TrustingUnpickler(io.BytesIO(data), storages, pickle_load_args).load()
    try:
        return SafeUnpickler(data, storages.persistent_load).load()
    except pickle.UnpicklingError as error:
        raise pickle.UnpicklingError(f"{_ADVICE}\n{where}: {error}") from None


def _not_an_archive(start: bytes, where: str) -> Exception:
    if len(start) == 0:
        return EOFError(f"{where}: the file is empty")
    if start[:2] == b"\x80\x02":
        return RuntimeError(
            f"{where}: this looks like the format of PyTorch before 1.6, which is not read here. "
            "Real PyTorch can load the file and save it again."
        )
    return pickle.UnpicklingError(f"{where}: not a checkpoint: it begins with {start!r} instead of a zip header")


class _Storages:
    """Makes the storages that a pickle refers to, each once."""

    def __init__(self, archive: ArchiveReader, map_location: Any, overall: Any) -> None:
        self._archive = archive
        self._overall = overall
        self._restore = _restore_function(map_location)
        self._loaded: dict[str, LoadedStorage] = {}
        order = archive.read("byteorder") if "byteorder" in archive else b"little"
        if order not in (b"little", b"big"):
            raise ValueError(f"Unknown endianness type: {order!r}")
        self._swap = order.decode() != sys.byteorder

    def persistent_load(self, pid: Any) -> LoadedStorage:
        """Make the storage for a persistent id ('storage', type, key, location, numel)."""
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] not in ("storage", b"storage"):
            raise pickle.UnpicklingError(f"Only persistent_load of storage is allowed, but got {pid!r:.100}")
        _, kind, key, location, numel = pid
        if not (isinstance(kind, StorageType) and isinstance(key, str) and isinstance(location, str)):
            raise pickle.UnpicklingError(f"corrupt reference to a storage: {pid!r:.100}")
        if type(numel) is not int or numel < 0:
            raise pickle.UnpicklingError(f"a storage cannot have {numel!r:.100} elements")
        found = self._loaded.get(key)
        if found is None:
            found = self._loaded[key] = self._read(kind.dtype, key, location, numel * kind.dtype.itemsize)
        elif found.dtype is not kind.dtype:
            found = LoadedStorage(found.storage, kind.dtype, found.nbytes)
        return found

    def _read(self, dtype: Any, key: str, location: str, nbytes: int) -> LoadedStorage:
        name = f"data/{key}"
        start, size = self._archive.locate(name)
        if nbytes > size:
            raise RuntimeError(f"corrupt file: record {name!r} has {size} bytes, but the tensors need {nbytes}")
        if self._overall is not None:
            storage = memory.mapped(self._overall, start, nbytes)
        else:
            storage = memory.allocate(nbytes)
            self._archive.read_into(name, memory.memory_of(storage))
        if self._swap:
            _swap_bytes(memory.memory_of(storage), dtype)
        return LoadedStorage(self._restore(storage, location), dtype, nbytes)


def _swap_bytes(view: memoryview, dtype: Any) -> None:
    """Turn the bytes of every number around, in place."""
    width = dtype.itemsize // (2 if dtype.is_complex else 1)
    if width > 1:
        whole = bytes(view)
        for i in range(width):
            view[i::width] = whole[width - 1 - i :: width]


def _restore_function(map_location: Any) -> Callable[[Any, str], Any]:
    """What puts a storage where it belongs: returns the storage, or None for the meta device."""
    if map_location is None:
        return _restored
    if isinstance(map_location, dict):
        return lambda storage, location: _restored(storage, str(map_location.get(location, location)))
    if isinstance(map_location, (str, rushlight.device)):
        target = str(map_location)
        return lambda storage, location: _restored(storage, target)
    if not callable(map_location):
        raise TypeError(f"map_location must be a device, a string, a dict or a function, got {type(map_location).__name__}")

    def restore(storage: Any, location: str) -> Any:
        given = map_location(storage, location)
        return _restored(storage, location) if given is None else given

    return restore


def _restored(storage: Any, location: str) -> Any:
    kind = location.split(":")[0]
    if kind == "cpu":
        return storage
    if kind == "meta":
        return None
    raise RuntimeError(
        f"Attempting to deserialize object on a {kind} device, which is not available here. "
        "Use map_location='cpu' to load the tensors into ordinary memory."
    )


class _TrustingUnpickler(pickle.Unpickler):
    """Everything pickle can do, with PyTorch's names meaning ours. Only for files that the user vouches for."""

    def __init__(self, file: Any, storages: _Storages, options: dict[str, Any]) -> None:
        super().__init__(file, **{"encoding": "utf-8", **options})
        self._storages = storages

    def persistent_load(self, pid: Any) -> Any:
        """Make a storage."""
        return self._storages.persistent_load(pid)

    def find_class(self, module: str, name: str) -> Any:
        """Look a name up: ours for PyTorch's names, else by importing it."""
        if module == "torch" and name in STORAGE_TYPES:
            return STORAGE_TYPES[name]
        if module == "torch" or module.startswith("torch."):
            try:
                return find_torch_global(module, name)
            except (AttributeError, ImportError) as error:
                raise pickle.UnpicklingError(f"the file needs {module}.{name}, which rushlight lacks") from error
        return super().find_class(module, name)
