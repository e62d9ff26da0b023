"""The formats that PyTorch had before 1.6: pickles and storages one behind the other in a stream, and, earlier still,
in a tar archive.

A stream holds a magic number, a version, facts about the machine, the object with references to its storages, the
storages' keys, and for every key the number of elements and the elements.
"""

from __future__ import annotations

import difflib
import inspect
import io
import pickle
import pickletools
import struct
import sys
import tarfile
import warnings
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight.serialization import memory
from rushlight.serialization.locations import SourceChangeWarning, is_meta, restorer
from rushlight.serialization.names import StorageType, torch_global
from rushlight.serialization.options import STATE
from rushlight.serialization.rebuild import CHECKS, rebuild_tensor
from rushlight.serialization.unpickler import SafeUnpickler
from rushlight.storage import TypedStorage, UntypedStorage

__all__ = ["read", "read_tar", "write"]

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001
_MACHINE = {
    "protocol_version": VERSION,
    "little_endian": sys.byteorder == "little",
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}
_COUNT = struct.Struct("<q")
_CHUNK = 1 << 24


# ***** writing *****


def write(out: Any, obj: Any, pickler_class: Any, pickle_module: Any, protocol: int) -> None:
    """Write an object as a stream."""

    class LegacyPickler(pickler_class):
        def __init__(self, file: Any) -> None:
            super().__init__(file, protocol)
            self.elements: dict[str, int] = {}
            self._written: set[type] = set()

        def persistent_id(self, obj: Any) -> Any:
            if isinstance(obj, type) and obj not in self._written and _is_module(obj):
                self._written.add(obj)
                return ("module", obj, *_source(obj))
            found = super().persistent_id(obj)
            if found is None:
                return None
            self.elements.setdefault(found[2], found[4])
            return (*found, None)

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, rushlight.Tensor) and obj.is_nested and obj.layout is rushlight.strided:
                raise RuntimeError(
                    "a nested tensor of strided layout cannot be saved in the legacy format, which has the numbers of its sizes behind the objects that "
                    "need them; save it in the zip format"
                )
            return super().reducer_override(obj)

    buffer = io.BytesIO()
    for head in (MAGIC, VERSION, _MACHINE):
        pickle_module.dump(head, buffer, protocol=protocol)
    pickler = LegacyPickler(buffer)
    pickler.dump(obj)
    keys = sorted(pickler.storages)
    pickle_module.dump(keys, buffer, protocol=protocol)
    out.write(buffer.getbuffer())
    for key in keys:
        out.write(_COUNT.pack(pickler.elements[key]))
        out.write(memory.bytes_of(pickler.storages[key].cpu()))


def _is_module(cls: type) -> bool:
    return issubclass(cls, rushlight.nn.Module)


def _source(cls: type) -> tuple[str | None, str | None]:
    """File and text of a class of the user's; (None, None) for the library's own, whose source is another matter in
    PyTorch.
    """
    if torch_global(cls) is not None:
        return None, None
    try:
        return inspect.getsourcefile(cls), inspect.getsource(cls)
    except (OSError, TypeError):
        warnings.warn(
            f"Couldn't retrieve source code for container of type {cls.__name__}. It won't be checked for correctness upon loading.",
            stacklevel=8,
        )
        return None, None


def _check_source(cls: Any, file: Any, text: Any) -> None:
    """Warn where a class of the user's is no longer what it was."""
    if not file or not text or torch_global(cls) is not None:
        return
    now = _source(cls)[1]
    if now is None or now == text:
        return
    advice = "you can retrieve the original source code by accessing the object's source attribute or set `torch.nn.Module.dump_patches = True`"
    if getattr(cls, "dump_patches", False):
        patch = "\n".join(difflib.unified_diff(now.split("\n"), text.split("\n"), file, file, lineterm=""))
        try:
            with open(f"{cls.__name__}.patch", "x") as out:
                out.write(patch)
            advice = f"Saved a reverse patch to {cls.__name__}.patch. Run `patch -p0 < {cls.__name__}.patch` to revert your changes."
        except OSError as error:
            advice = f"A patch could not be written ({error})."
    warnings.warn(
        f"source code of class '{cls.__module__}.{cls.__qualname__}' has changed. {advice}",
        SourceChangeWarning,
        stacklevel=2,
    )


# ***** reading *****


class _Rest:
    """The rest of a file; no length that the file claims makes us read more than there is."""

    def __init__(self, file: Any) -> None:
        self._file = file
        start = file.tell()
        try:
            self.end = file.seek(0, 2)
        except (OSError, ValueError):
            # Compressed streams do not know their end.
            self._file = io.BytesIO(file.read())
            start, self.end = 0, len(self._file.getbuffer())
        self._file.seek(start)

    def left(self) -> int:
        return int(self.end - self._file.tell())

    def tell(self) -> int:
        return int(self._file.tell())

    def read(self, n: int = -1) -> bytes:
        left = self.left()
        return bytes(self._file.read(left if n is None or n < 0 else min(n, left)))

    def readline(self) -> bytes:
        return bytes(self._file.readline())

    def fill(self, target: memoryview) -> None:
        """Read the bytes of a storage."""
        at = 0
        while at < len(target):
            if hasattr(self._file, "readinto"):
                count = self._file.readinto(target[at : at + _CHUNK])
            else:
                chunk = self._file.read(min(_CHUNK, len(target) - at))
                count = len(chunk)
                target[at : at + count] = chunk
            if not count:
                raise RuntimeError(
                    f"unexpected EOF, expected {len(target) - at} more bytes. The file might be corrupted."
                )
            at += count

    def pickle(self) -> bytes:
        """The bytes of the pickle that comes next."""
        start = self._file.tell()
        stream: Any = self
        try:
            for _ in pickletools.genops(stream):
                pass
        except (ValueError, KeyError, IndexError, OverflowError, struct.error) as error:
            if start == self.end:
                raise EOFError("Ran out of input: the file ends where a pickle should begin") from None
            what = (
                "not a checkpoint: it begins with neither a zip archive nor a pickle"
                if start == 0
                else f"damaged pickle at byte {start}"
            )
            raise pickle.UnpicklingError(f"{what} (invalid load key, {error!s:.200})") from None
        length = self._file.tell() - start
        self._file.seek(start)
        return bytes(self._file.read(length))


class _Reader:
    """Makes the storages of a stream, which are filled when the object is there."""

    def __init__(self, file: _Rest, map_location: Any) -> None:
        self._file = file
        self._restore = (lambda storage, location: storage) if is_meta(map_location) else restorer(map_location)
        self._autograd_meta = is_meta(map_location)
        self._asked = 0
        # By key: the storage in ordinary memory, where it went, and its dtype.
        self.storages: dict[Any, tuple[UntypedStorage, UntypedStorage, Any]] = {}
        self._views: dict[Any, TypedStorage] = {}

    def persistent_load(self, pid: Any) -> Any:
        """A storage, or the class of a module beside its source."""
        if not isinstance(pid, tuple) or not pid:
            raise pickle.UnpicklingError(f"persistent_load id must be tuple, but got {type(pid)}")
        kind = _text(pid[0])
        if kind == "module" and len(pid) == 4:
            _check_source(*pid[1:])
            return pid[1]
        if kind != "storage" or len(pid) != 6:
            raise pickle.UnpicklingError(f"Only persistent_load of storage is allowed, but got {type(pid[0])}")
        _, storage_type, key, location, count, view = pid
        dtype = _dtype_of(storage_type)
        if type(count) is not int or count < 0 or not isinstance(key, (str, int, bytes)):
            raise pickle.UnpicklingError("corrupt reference to a storage")
        if key not in self.storages:
            self.storages[key] = self._new(dtype, count, _text(location))
        placed = self.storages[key][1]
        if view is None:
            return memory.typed(placed, dtype)
        return self._view(placed, dtype, view)

    def _new(self, dtype: Any, count: int, location: str) -> tuple[UntypedStorage, UntypedStorage, Any]:
        nbytes = count * dtype.itemsize
        self._asked += nbytes
        if self._asked > self._file.end:
            raise RuntimeError(
                f"corrupt file: its storages should have more than {self._asked} bytes, the file has {self._file.end}"
            )
        raw = memory.wipe(nbytes) if STATE.skip_data else memory.allocate(nbytes)
        return (
            raw,
            UntypedStorage(nbytes, device="meta") if self._autograd_meta else self._restore(raw, location),
            dtype,
        )

    def _view(self, storage: UntypedStorage, dtype: Any, view: Any) -> TypedStorage:
        if not isinstance(view, tuple) or len(view) != 3 or not all(type(n) is int and n >= 0 for n in view[1:]):
            raise pickle.UnpicklingError("corrupt reference to a part of a storage")
        key, offset, size = view
        if key not in self._views:
            start, stop = offset * dtype.itemsize, (offset + size) * dtype.itemsize
            if stop > storage.nbytes():
                raise RuntimeError("corrupt file: a part of a storage lies outside of it")
            self._views[key] = memory.typed(storage[start:stop], dtype)
        return self._views[key]

    def fill(self, keys: Any, little: bool) -> None:
        """Read the storages' bytes, which come in the order of the keys."""
        if not isinstance(keys, list):
            raise RuntimeError("corrupt file: the keys of its storages are no list")
        for key in keys:
            if not isinstance(key, (str, int, bytes)) or key not in self.storages:
                raise RuntimeError(
                    f"corrupt file: storage key {str(key)[:100]!r} not found among the storages of the object"
                )
            raw, placed, dtype = self.storages[key]
            head = self._file.read(_COUNT.size)
            if len(head) != _COUNT.size:
                raise RuntimeError("unexpected EOF, expected the size of a storage. The file might be corrupted.")
            (count,) = _COUNT.unpack(head)
            if count * dtype.itemsize != raw.nbytes():
                raise RuntimeError(
                    f"corrupt file: a storage of {count} elements where {raw.nbytes() // dtype.itemsize} were announced"
                )
            self._file.fill(memory.bytes_of(raw))
            memory.in_native_order(raw, "little" if little else "big", dtype)
            if placed is not raw and placed.device.type == "cpu" and placed.data_ptr() != raw.data_ptr():
                placed.copy_(raw)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("ascii")
    if not isinstance(value, str):
        raise pickle.UnpicklingError(f"expected a text in a reference to a storage, got {type(value)}")
    return value


def _dtype_of(storage_type: Any) -> Any:
    if storage_type is UntypedStorage:
        return rushlight.uint8
    dtype = storage_type.dtype if isinstance(storage_type, StorageType) else None
    if dtype is None:
        raise pickle.UnpicklingError("corrupt reference to a storage: it has no type")
    return dtype


def _safe(data: bytes, persistent_load: Callable[[Any], Any], options: dict[str, Any]) -> Any:
    return SafeUnpickler(data, persistent_load, options.get("encoding", "utf-8")).load()


def _no_references(pid: Any) -> Any:
    raise pickle.UnpicklingError("unsupported persistent id encountered")


def read(file: Any, map_location: Any, unpickler: Any, options: dict[str, Any]) -> Any:
    """Read a stream.  `unpickler` is a class that trusts the file, or None to run no code."""
    rest = _Rest(file)
    reader = _Reader(rest, map_location)

    def load(persistent_load: Callable[[Any], Any] = _no_references) -> Any:
        data = rest.pickle() if unpickler is None else None
        if data is not None:
            return _safe(data, persistent_load, options)
        return unpickler(rest, persistent_load, options).load()

    if load() != MAGIC:
        raise RuntimeError("Invalid magic number; corrupt file?")
    version = load()
    if version != VERSION:
        raise RuntimeError(f"Invalid protocol version: {str(version)[:100]}")
    load()
    before, CHECKS.waiting = CHECKS.waiting, []
    try:
        result = load(reader.persistent_load)
        keys = load()
        if STATE.skip_data:
            return result
        reader.fill(keys, True)
        waiting, CHECKS.waiting = CHECKS.waiting, None
        for check in waiting:
            check()
    finally:
        CHECKS.waiting = before
    if rest._file is file:
        file.seek(rest.tell())
    return result


# ***** tar archives *****


def read_tar(file: Any, map_location: Any, unpickler: Any, options: dict[str, Any]) -> Any:
    """Read a tar archive of three members, `storages`, `tensors` and `pickle`.  `tarfile.TarError` where it is none."""
    with tarfile.open(fileobj=file, mode="r:", format=tarfile.PAX_FORMAT) as archive:
        if unpickler is None:
            raise RuntimeError(
                "Cannot use ``weights_only=True`` with files saved in the legacy .tar format. If you trust the source of the file, and only then, "
                "use `weights_only=False`, which can run any code that the file contains."
            )
        members = {name: _member(archive, name) for name in ("storages", "tensors", "pickle")}

    def load(name: str, persistent_load: Callable[[Any], Any] = _no_references) -> Any:
        return unpickler(members[name], persistent_load, options).load()

    objects = _tar_storages(members["storages"], lambda: load("storages"), restorer(map_location))
    for _ in range(load("tensors")):
        key, storage, _ = load("tensors")
        objects[key] = _tar_tensor(members["tensors"], objects[storage])

    def persistent_load(pid: Any) -> Any:
        if isinstance(pid, tuple):
            _check_source(*pid)
            return pid[0]
        return objects[int(pid)]

    return load("pickle", persistent_load)


def _member(archive: tarfile.TarFile, name: str) -> _Rest:
    found = archive.extractfile(name)
    if found is None:
        raise RuntimeError(f"the archive has no file {name!r}")
    return _Rest(io.BytesIO(found.read()))


def _tar_storages(file: _Rest, load: Callable[[], Any], restore: Callable[[Any, str], Any]) -> dict[Any, Any]:
    objects: dict[Any, Any] = {}
    for _ in range(load()):
        key, location, kind = load()
        dtype = _dtype_of(kind)
        (count,) = _COUNT.unpack(file.read(_COUNT.size))
        if not 0 <= count * dtype.itemsize <= file.left():
            raise RuntimeError(f"corrupt file: a storage of {count} elements, with {file.left()} bytes left")
        raw = memory.allocate(count * dtype.itemsize)
        file.fill(memory.bytes_of(raw))
        objects[key] = memory.typed(restore(memory.in_native_order(raw, "little", dtype), location), dtype)
    for key, root, offset, count in load():
        base, size = objects[root], objects[root].dtype.itemsize
        objects[key] = memory.typed(base.untyped()[offset * size : (offset + count) * size], base.dtype)
    return objects


def _tar_tensor(file: _Rest, storage: Any) -> Any:
    (dims,) = struct.unpack("<i4x", file.read(8))
    if not 0 <= dims <= 64:
        raise RuntimeError(f"corrupt file: a tensor of {dims} dims")
    size, stride = (struct.unpack(f"<{dims}q", file.read(8 * dims)) for _ in range(2))
    (offset,) = _COUNT.unpack(file.read(8))
    return rebuild_tensor(storage, offset, size, stride)
