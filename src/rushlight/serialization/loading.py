"""`load`: what `save` (ours or PyTorch's) wrote."""

from __future__ import annotations

import io
import mmap as _mmap
import os
import pickle
import sys
import tarfile
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

from rushlight import device as Device
from rushlight._interface.base import LazyModule, shorten, trace_marks
from rushlight.serialization import legacy, memory
from rushlight.serialization.allowed import always_allowed, user_globals
from rushlight.serialization.archive import ArchiveReader
from rushlight.serialization.locations import is_meta, restorer
from rushlight.serialization.names import STORAGE_TYPES, StorageType, find_torch_global
from rushlight.serialization.options import STATE, LoadEndianness, get_default_mmap_options
from rushlight.serialization.saving import check_dill
from rushlight.serialization.unpickler import SafeUnpickler, global_names
from rushlight.storage import UntypedStorage
from rushlight.utils.serialization import config

safetensors: Any = LazyModule("rushlight.serialization.safetensors")

__all__ = ["MAP_LOCATION", "get_unsafe_globals_in_checkpoint", "load"]

# What `map_location` may be, for annotations.
MAP_LOCATION: TypeAlias = Callable[[Any, str], Any] | Device | str | dict[str, str] | None

_TRUST = (
    "If you trust the source of the file, and only then, `weights_only=False` loads it with the full pickle machinery, "
    "which can result in arbitrary code execution."
)
_TRUE = ("1", "y", "yes", "true")
# Formats of archives that PyTorch 2.13 reads; 3 is the one that both write.
VERSIONS = range(1, 11)
_LONGEST_VERSION = 8


@trace_marks.changes_later_calls
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

    By default only tensors, containers, numbers and strings are read, and no code runs; other classes can be allowed
    with `add_safe_globals`. `weights_only=False` unpickles anything and runs whatever code the file holds: use it for
    files that you trust. `map_location` (a device, a dict, or a function of storage and location) chooses where tensors
    go. `mmap=True` maps the file instead of reading it: tensors share the file's pages and changing them does not
    change the file.

    A path that ends in `.safetensors` is read by `safetensors`.  With another `pickle_module` the file is trusted.

    Raises `pickle.UnpicklingError` for content that is not allowed, `RuntimeError` for damaged files.

    Example: `model.load_state_dict(torch.load("checkpoint.pt")["model"])`
    """
    try:
        safe = _is_safe(weights_only, pickle_module)
        if safe and pickle_module is not None:
            raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
        if safe and pickle_load_args:
            warnings.warn("pickle_load_args only works if `weights_only=False`.", stacklevel=2)
        check_dill(pickle_module)
        trusting = None if safe else _trusting(pickle if pickle_module is None else pickle_module)
        options = {"encoding": "utf-8", **pickle_load_args}
        mapped = config.load.mmap if mmap is None else mmap
        if isinstance(f, (str, os.PathLike)):
            path = os.fspath(f)
            if path.endswith(".safetensors"):
                return safetensors.load_for(path, map_location)
            with open(path, "rb") as file:
                return _load(file, path, map_location, trusting, path if mapped else None, options)
        if mapped:
            raise ValueError("f must be a file path in order to use the mmap argument")
        return _load(_seekable(f), "checkpoint", map_location, trusting, None, options)
    except BaseException as error:
        shorten(error)
        raise


def _is_safe(weights_only: bool | None, pickle_module: Any) -> bool:
    """Whether no code may run: as the caller says, else by what the environment says, else unless there is a pickle
    module.
    """
    forced, lifted = (
        os.environ.get(name, "0").lower() in _TRUE
        for name in ("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    )
    if forced and lifted:
        raise RuntimeError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should be set, but both were set."
        )
    if forced:
        return True
    if weights_only is not None:
        return bool(weights_only)
    if lifted:
        warnings.warn(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the `weights_only` argument was not explicitly passed to "
            "`torch.load`, forcing weights_only=False.",
            UserWarning,
            stacklevel=3,
        )
        return False
    return pickle_module is None


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The classes and functions that a file names and that are not allowed; nothing of the file is run."""
    file = open(f, "rb") if isinstance(f, (str, os.PathLike)) else f
    try:
        if not _starts_as_zip(file):
            raise ValueError("Expected input to be a checkpoint returned by torch.save")
        archive = ArchiveReader(file, str(f))
        if "constants.pkl" in archive:
            raise ValueError(
                "Expected input to be a checkpoint returned by torch.save but got a torchscript checkpoint"
            )
        names = global_names(archive.read("data.pkl"))
    finally:
        if file is not f:
            file.close()
    return sorted(names - set(always_allowed()) - set(user_globals()))


def _starts_as_zip(file: Any) -> bool:
    start = file.tell()
    found = file.read(4)
    file.seek(start)
    return bool(found == b"PK\x03\x04")


def _seekable(f: Any) -> Any:
    try:
        f.seek(f.tell())
    except (io.UnsupportedOperation, AttributeError) as error:
        if not any(word in str(error) for word in ("seek", "tell")):
            raise
        raise type(error)(
            f"{error}. You can only torch.load from a file that is seekable. "
            "Please pre-load the data into a buffer like io.BytesIO and try to load from it instead."
        ) from None
    return f


def _load(file: Any, where: str, map_location: Any, trusting: Any, mapped: str | None, options: dict[str, Any]) -> Any:
    if _starts_as_zip(file):
        # An archive that begins in the middle of a stream: what comes before is none of its business.
        archive = ArchiveReader(file if file.tell() == 0 else io.BytesIO(file.read()), where)
        load, source = _load_archive, archive
    elif mapped is not None:
        raise RuntimeError(
            f"mmap can only be used with files saved with `torch.save({where}, _use_new_zipfile_serialization=True), "
            "please torch.save your checkpoint with this option in order to use mmap."
        )
    else:
        load, source = _load_legacy, file
    try:
        return load(source, where, map_location, trusting, mapped, options)
    except pickle.UnpicklingError as error:
        raise error if trusting is not None else pickle.UnpicklingError(_refusal(str(error), where)) from None


def _refusal(message: str, where: str) -> str:
    """Error message for a file that cannot be loaded safely."""
    if "was not an allowed global by default" in message:
        advice = (
            f"This file can still be loaded, in one of two ways.\n\t(1) {_TRUST}\n\t(2) With `weights_only=True`, by allowing what the following "
            "error names."
        )
    else:
        advice = _TRUST
    return f"Weights only load failed. {advice}\n\n{where}: WeightsUnpickler error: {message}"


def _load_archive(
    archive: ArchiveReader, where: str, map_location: Any, trusting: Any, mapped: str | None, options: dict[str, Any]
) -> Any:
    if "constants.pkl" in archive:
        if trusting is None:
            raise RuntimeError(
                f"{where}: Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``."
            )
        raise NotImplementedError(f"{where}: rushlight has no TorchScript, and this is a TorchScript archive")
    if "data.pkl" not in archive:
        raise RuntimeError(f"{where}: there is no record 'data.pkl'; this zip file is not a checkpoint")
    _check_version(archive, where)
    overall = None
    if mapped is not None:
        overall = UntypedStorage.from_file(
            mapped, get_default_mmap_options() == getattr(_mmap, "MAP_SHARED", None), os.path.getsize(mapped)
        )
    storages = _Storages(archive, map_location, overall)
    data = archive.read("data.pkl")
    if trusting is None:
        return SafeUnpickler(data, storages.persistent_load, options["encoding"]).load()
    return trusting(io.BytesIO(data), storages.persistent_load, options).load()


def _check_version(archive: ArchiveReader, where: str) -> None:
    """RuntimeError for an archive of a format that is not known here, rather than a guess at what it holds."""
    name = "version" if "version" in archive else ".data/version"
    found = archive.read(name) if archive.locate(name)[1] <= _LONGEST_VERSION else b""
    if not found.strip().isdigit():
        raise RuntimeError(f"{where}: record {name!r} is no version but {found!r}; the file is damaged")
    if int(found) not in VERSIONS:
        raise RuntimeError(
            f"{where}: Attempted to read a PyTorch file with version {int(found)}, but the supported versions for reading are {VERSIONS[0]} to {VERSIONS[-1]}. "
            + ("A newer PyTorch wrote it." if int(found) > VERSIONS[-1] else "It is too old.")
        )


def _load_legacy(
    file: Any, where: str, map_location: Any, trusting: Any, mapped: str | None, options: dict[str, Any]
) -> Any:
    start = file.tell()
    if start == 0 and isinstance(file, (io.BufferedReader, io.BufferedRandom, io.FileIO)):
        try:
            return legacy.read_tar(file, map_location, trusting, options)
        except tarfile.TarError:
            file.seek(start)
    return legacy.read(file, map_location, trusting, options)


class _Storages:
    """Makes the storages that a pickle refers to, each once."""

    def __init__(self, archive: ArchiveReader, map_location: Any, overall: UntypedStorage | None) -> None:
        self._archive = archive
        self._overall = overall
        self._restore = restorer(map_location)
        self._autograd_meta = is_meta(map_location)
        self._loaded: dict[str, UntypedStorage] = {}
        self._order = _byte_order(archive)

    def persistent_load(self, pid: Any) -> Any:
        """Make the storage for a persistent id ('storage', type, key, location, numel)."""
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] not in ("storage", b"storage"):
            raise pickle.UnpicklingError(f"Only persistent_load of storage is allowed, but got {type(pid)}")
        _, kind, key, location, numel = pid
        location = location.decode("ascii") if isinstance(location, bytes) else location
        dtype = (
            memory.BY_NAME["uint8"] if kind is UntypedStorage else kind.dtype if isinstance(kind, StorageType) else None
        )
        if dtype is None or not isinstance(key, str) or not isinstance(location, str):
            raise pickle.UnpicklingError("corrupt reference to a storage")
        if type(numel) is not int or numel < 0:
            raise pickle.UnpicklingError("a storage cannot have such a number of elements")
        if key not in self._loaded:
            self._loaded[key] = self._read(dtype, key, location, numel * dtype.itemsize)
        return memory.typed(self._loaded[key], dtype)

    def _read(self, dtype: Any, key: str, location: str, nbytes: int) -> UntypedStorage:
        name = f"data/{key}"
        start, size = self._archive.locate(name)
        if nbytes > size:
            raise RuntimeError(f"corrupt file: record {name!r} has {size} bytes, but the tensors need {nbytes}")
        if self._autograd_meta:
            return UntypedStorage(nbytes, device="meta")
        if STATE.skip_data:
            storage = memory.wipe(nbytes)
        elif self._overall is not None and start % dtype.itemsize == 0:
            storage = self._overall[start : start + nbytes]
        else:
            storage = memory.allocate(nbytes)
            self._archive.read_into(name, memory.bytes_of(storage))
        return self._restore(memory.in_native_order(storage, self._order, dtype), location)


def _byte_order(archive: ArchiveReader) -> str:
    """The byte order of the numbers in an archive, which says so, or else is supposed to have the default one."""
    if "byteorder" in archive:
        stated = archive.read("byteorder")
        if stated not in (b"little", b"big"):
            raise ValueError(f"Unknown endianness type: {stated[:100].decode('utf-8', 'replace')}")
        return stated.decode()
    supposed = config.load.endianness
    if supposed is None or supposed is LoadEndianness.LITTLE:
        return "little"
    return "big" if supposed is LoadEndianness.BIG else sys.byteorder


_CLASSES: dict[Any, Any] = {}


def _trusting(pickle_module: Any) -> Any:
    """An unpickler of a pickle module that does all that pickle can, with PyTorch's names meaning ours."""
    if pickle_module in _CLASSES:
        return _CLASSES[pickle_module]

    class Unpickler(pickle_module.Unpickler):
        def __init__(self, file: Any, persistent_load: Any, options: dict[str, Any]) -> None:
            super().__init__(file, **options)
            self._storage = persistent_load

        def persistent_load(self, pid: Any) -> Any:
            return self._storage(pid)

        def find_class(self, module: str, name: str) -> Any:
            if module in ("torch", "torch.cuda") and name in STORAGE_TYPES:
                return STORAGE_TYPES[name]
            if module == "torch" or module.startswith("torch."):
                try:
                    return find_torch_global("torch._tensor" if module == "torch.tensor" else module, name)
                except (AttributeError, ImportError) as error:
                    raise pickle.UnpicklingError(f"the file needs {module}.{name}, which rushlight lacks") from error
            return super().find_class(module, name)

    _CLASSES[pickle_module] = Unpickler
    return Unpickler
