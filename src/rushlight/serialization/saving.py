"""`save`: an object and its tensors into one file."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import stat
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import rushlight
from rushlight._engine.quantized import QScheme
from rushlight.serialization import memory, rebuild
from rushlight.serialization.archive import ArchiveWriter
from rushlight.serialization.names import STORAGE_TYPE_OF, UNTYPED, StorageType, torch_global
from rushlight.utils.hooks import warn_if_has_hooks

__all__ = ["save"]

DEFAULT_PROTOCOL = 2


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Write `obj` (tensors, modules, state dicts, containers of them) to `f`, a path or an object with `write`.

    Tensors that share storage share it again after loading. A file on disk is written beside its final place and moved
    there when it is complete and on the disk, so an interrupted save leaves the old file as it was. Raises `RuntimeError`
    if the directory does not exist, and `OSError` if the disk is full.

    Example: `torch.save({"model": model.state_dict(), "epoch": 3}, "checkpoint.pt")`
    """
    if pickle_module is not pickle:
        raise NotImplementedError("save with another pickle_module is not supported")
    if not _use_new_zipfile_serialization:
        raise NotImplementedError("the format of PyTorch before 1.6 is not written")
    if isinstance(f, (str, os.PathLike)):
        path = os.fspath(f)
        with _replacing(path) as out:
            _write(obj, out, os.path.splitext(os.path.basename(path))[0] or "archive", pickle_protocol)
    elif hasattr(f, "write"):
        _write(obj, f, "archive", pickle_protocol)
    else:
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'write' attribute")


def _write(obj: Any, out: Any, name: str, protocol: int) -> None:
    # Pickling first: an object that cannot be pickled must not leave half a file behind.
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, protocol)
    pickler.dump(obj)
    archive = ArchiveWriter(out, name)
    archive.record("data.pkl", buffer.getbuffer())
    archive.record("byteorder", sys.byteorder.encode())
    for key, storage in pickler.storages.items():
        archive.record(f"data/{key}", memory.memory_of(storage))
    archive.record("version", b"3\n")
    archive.record(".data/serialization_id", _identity(archive))
    archive.close()


def _identity(archive: ArchiveWriter) -> bytes:
    """Forty digits that tell two checkpoints apart: the names and the contents of the records."""
    digest = hashlib.sha256(repr(archive.digests).encode()).digest()
    return str(int.from_bytes(digest, "big"))[:40].rjust(40, "0").encode()


@contextmanager
def _replacing(path: Any) -> Iterator[Any]:
    """A new file that takes the place of `path` when the block ends without an error."""
    target = os.path.realpath(path)
    directory = os.path.dirname(target)
    if not os.path.isdir(directory):
        raise RuntimeError(f"Parent directory {os.path.dirname(os.fspath(path)) or '.'} does not exist.")
    if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
        # Pipes and devices cannot be replaced; they are written to.
        if os.path.isdir(target):
            raise IsADirectoryError(f"cannot save to {path!r}: it is a directory")
        with open(target, "wb") as out:
            yield out
        return
    handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(target)}.", suffix=".tmp", dir=directory)
    try:
        with open(handle, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, _mode_for(target))
        os.replace(temporary, target)
    except BaseException:
        # Also for Ctrl-C: the old file stays, the unfinished one goes.
        os.unlink(temporary)
        raise
    _sync_directory(directory)


def _mode_for(target: str) -> int:
    """The permissions of the file that is replaced, or those that a new file gets."""
    try:
        return stat.S_IMODE(os.stat(target).st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _sync_directory(directory: str) -> None:
    """Put the new name on the disk as well, where the system can do that."""
    if os.name != "posix":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _StorageRef:
    """A storage on its way into the file, with the dtype that the file will give it."""

    __slots__ = ("kind", "storage")

    def __init__(self, storage: Any, kind: Any) -> None:
        self.storage = storage
        self.kind = kind


# The Python pickler, because the one in C insists on importing every name that it writes.
_PythonPickler: Any = pickle._Pickler  # type: ignore[attr-defined]


class _Pickler(_PythonPickler):  # type: ignore[misc]
    """Writes tensors as calls of PyTorch's functions."""

    def __init__(self, out: Any, protocol: int) -> None:
        super().__init__(out, protocol)
        self.storages: dict[str, Any] = {}
        self._keys: dict[int, tuple[str, Any]] = {}

    def persistent_id(self, obj: Any) -> Any:
        """Storages stay outside of the pickle, in records of their own."""
        if type(obj) is not _StorageRef:
            return None
        identity = memory.identity(obj.storage)
        key, kind = self._keys.setdefault(identity, (str(len(self._keys)), obj.kind))
        if kind is not obj.kind and obj.storage.nbytes:
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data as different types")
        # Held until the file is written: the memory must stay, and so must its address.
        self.storages.setdefault(key, obj.storage)
        numel = memory.memory_of(obj.storage).nbytes // obj.kind.dtype.itemsize
        return ("storage", obj.kind, key, "cpu", numel)

    def reducer_override(self, obj: Any) -> Any:
        """How our own objects are written; everything else is pickled as usual."""
        if isinstance(obj, rushlight.Tensor):
            return self._reduce_tensor(obj)
        if isinstance(obj, rushlight.Size):
            return rushlight.Size, (tuple(obj),)
        if isinstance(obj, rushlight.device):
            return rushlight.device, (obj.type,) if obj.index is None else (obj.type, obj.index)
        if isinstance(obj, rushlight.layout):
            return rebuild.get_layout, (repr(obj),)
        if isinstance(obj, (memory.DType, StorageType, QScheme)):
            return str(obj)  # a text means: a global of this name, see save_global
        return NotImplemented

    def _reduce_tensor(self, tensor: Any) -> Any:
        warn_if_has_hooks(tensor)
        cls = type(tensor)
        if tensor.is_nested:
            raise NotImplementedError("save: rushlight has no format for nested tensors in files yet; save their values and offsets")
        if tensor.layout is not rushlight.strided:
            return _sparse_recipe(tensor)
        if tensor.is_quantized:
            return _quantized_recipe(tensor)
        if cls is rushlight.nn.Parameter:
            state = dict(tensor.__dict__)
            args: tuple[Any, ...] = (tensor.data, tensor.requires_grad, OrderedDict())
            return (rebuild.rebuild_parameter_with_state, (*args, state)) if state else (rebuild.rebuild_parameter, args)
        if cls is not rushlight.Tensor and cls.__reduce_ex__ is not rushlight.Tensor.__reduce_ex__:
            return NotImplemented
        function, args = _tensor_recipe(tensor)
        state = dict(tensor.__dict__)
        if cls is rushlight.Tensor and not state:
            return function, args
        return rebuild.rebuild_from_type_v2, (function, cls, args, state)

    def save_global(self, obj: Any, name: Any = None) -> None:
        """Write a class, function or dtype by its name; ours under the name that PyTorch has for it."""
        found = torch_global(obj)
        if found is None:
            super().save_global(obj, name)
            return
        module, name = found
        self.write(pickle.GLOBAL + module.encode() + b"\n" + name.encode() + b"\n")
        self.memoize(obj)

    dispatch = dict(_PythonPickler.dispatch)
    dispatch[type(save)] = save_global


def _quantized_recipe(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    """The function that makes a quantized tensor from its integers, and what it needs."""
    kind, ints, held = STORAGE_TYPE_OF.get(tensor.dtype), tensor._ints, tensor._quantizer
    if kind is None:
        raise NotImplementedError(f"rushlight saves no tensors of {tensor.dtype}: the file packs several integers into a byte")
    scales = (held.scheme, held.scale, held.zero_point) if held.axis is None else (held.scheme, held.scale, held.zero_point, held.axis)
    place = (memory.place_of(ints), tuple(ints.shape), tuple(ints.stride()))
    return rebuild.rebuild_qtensor, (_StorageRef(memory.storage_of(ints), kind), *place, scales, False, OrderedDict())


def _sparse_recipe(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    """The function that makes a sparse tensor from its parts, and the parts."""
    if getattr(tensor, "_is_param", False):
        return rebuild.rebuild_parameter, (tensor.data, tensor.requires_grad, OrderedDict())
    size = rushlight.Size(tensor.shape)
    if tensor.is_sparse:
        data: tuple[Any, ...] = (tensor._indices(), tensor._values(), size, tensor.is_coalesced())
        return rebuild.rebuild_sparse_tensor, (tensor.layout, data)
    rows = tensor.layout.name in ("sparse_csr", "sparse_bsr")
    indices = (tensor.crow_indices(), tensor.col_indices()) if rows else (tensor.ccol_indices(), tensor.row_indices())
    return rebuild.rebuild_sparse_tensor, (tensor.layout, (*indices, tensor.detach().values(), size))


def _tensor_recipe(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    """The function that makes the tensor again, and its arguments."""
    dtype, size, stride = tensor.dtype, tuple(tensor.size()), tuple(tensor.stride())
    if tensor.is_meta:
        return rebuild.rebuild_meta_tensor_no_storage, (dtype, size, stride, tensor.requires_grad)
    storage, place = memory.storage_of(tensor), memory.place_of(tensor)
    rest: tuple[Any, ...] = (place, size, stride, tensor.requires_grad, OrderedDict())
    kind = STORAGE_TYPE_OF.get(dtype)
    if kind is None:
        # Younger dtypes have no storage type of their own.
        return rebuild.rebuild_tensor_v3, (_StorageRef(storage, UNTYPED), *rest, dtype)
    return rebuild.rebuild_tensor_v2, (_StorageRef(storage, kind), *rest)
