"""Storages as users see them: `UntypedStorage`, bytes that tensors look at, and the older form that knows a dtype."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn
from weakref import WeakValueDictionary

from rushlight._backends.registry import backend_of
from rushlight._base.errors import warn_once
from rushlight._base.lazy import LazyModule
from rushlight._base.trace_marks import ADDRESS, breaks_trace
from rushlight._engine.core.creation import tensor
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.integers import integer
from rushlight._engine.core.memory import (
    bytes_at,
    check_resizable,
    copy_storage,
    device_of,
    fresh_storage,
    has_memory,
    is_pinned,
    is_resizable,
    own,
    pinned,
    write_bytes,
)
from rushlight._engine.core.tensor import Tensor, from_owner, make
from rushlight._types.device import CPU, Device, as_device
from rushlight._types.dtype import BY_NAME, UINT8, DType
from rushlight._types.promotion import default_dtype
from rushlight._types.spec import Spec

shared: Any = LazyModule("rushlight._engine.sharing.shared")
mapped: Any = LazyModule("rushlight._engine.sharing.mapped")

__all__ = ["TYPED_STORAGES", "TypedStorage", "UntypedStorage", "storage_tensor", "storage_type"]

# The methods that cast a storage, and the dtypes they cast to.
_CASTS = {
    "double": "float64", "float": "float32", "half": "float16", "long": "int64", "int": "int32", "short": "int16", "char": "int8", "byte": "uint8",
    "bool": "bool", "bfloat16": "bfloat16", "complex_double": "complex128", "complex_float": "complex64", "float8_e5m2": "float8_e5m2",
    "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2fnuz": "float8_e5m2fnuz", "float8_e4m3fnuz": "float8_e4m3fnuz",
}  # fmt: skip


# Integer dtypes as which quantized storages are read.
_INTEGERS = {"quint8": "uint8", "qint8": "int8", "qint32": "int32", "quint4x2": "uint8", "quint2x4": "uint8"}


def _byte_count(size: Any) -> int:
    """A number of bytes; ValueError for one of more than 63 bits, RuntimeError for a negative one."""
    found = integer(size)
    if found < 0:
        raise RuntimeError(f"a storage cannot have {found} bytes")
    return found


def _bytes_of(numbers: Any) -> bytes:
    """The last byte of each number; RuntimeError for anything but a sequence of ints."""
    who = "torch.UntypedStorage()"
    if not hasattr(numbers, "__len__"):
        raise RuntimeError(f"{who}: Expected a sequence type, but got {type(numbers).__name__}")
    for v in numbers:
        if not hasattr(v, "__index__"):
            raise RuntimeError(
                f"{who}: tried to construct a storage from a sequence ({type(numbers).__name__}), but one of the items "
                f"was of type {type(v).__name__} instead of int"
            )
    return bytes([integer(v) & 0xFF for v in numbers])


class _MetaBytes:
    """The memory of a storage on the meta device: a size alone."""

    __slots__ = ("device", "nbytes", "ptr", "version")

    def __init__(self, nbytes: int, device: Device) -> None:
        self.nbytes, self.ptr, self.version, self.device = nbytes, 0, 0, device


class StorageBase:
    """Members that both forms share: nothing is pinned or sparse."""

    __slots__ = ()

    is_hpu = is_sparse = False

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is of a GPU."""
        return bool(self.device.type == "cuda")  # type: ignore[attr-defined]

    def resizable(self) -> bool:
        """Whether the memory may move to where there is room; not where it is somebody else's, as an array's is."""
        return is_resizable(self.untyped()._native)  # type: ignore[attr-defined]

    def is_pinned(self, device: Any = "cuda") -> bool:
        """Whether the memory is pinned for an accelerator."""
        return is_pinned(self.untyped()._native)  # type: ignore[attr-defined]

    def pin_memory(self, device: Any = "cuda") -> Any:
        """A copy in pinned memory, or itself where it is; RuntimeError without an accelerator."""
        if self.is_pinned():
            return self
        spec = Spec.of(UINT8, self.device, (self.nbytes(),))  # type: ignore[attr-defined]
        native = self.untyped()._native  # type: ignore[attr-defined]
        made = UntypedStorage(native=pinned(make(native, spec, native.ptr))._storage)
        return made if isinstance(self, UntypedStorage) else _typed(made, self.dtype)  # type: ignore[attr-defined]

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Any:
        """A copy on a GPU, by default the current one; MissingDeviceError where there is none."""
        return self.to(device=Device("cuda") if device is None else device, non_blocking=non_blocking)  # type: ignore[attr-defined]

    def hpu(self, device: Any = None, non_blocking: bool = False) -> Any:
        """RuntimeError: rushlight computes on the CPU only."""
        raise RuntimeError("a storage cannot go to 'hpu': rushlight has no such device")


class UntypedStorage(StorageBase):
    """A block of bytes that tensors look at.

    `UntypedStorage(n)` makes one of n bytes, `UntypedStorage([1, 2])` one with these bytes; a tensor's own is
    `tensor.untyped_storage()`.

        >>> import rushlight as torch
        >>> torch.ones(2, dtype=torch.int16).untyped_storage().tolist()
        [1, 0, 1, 0]
    """

    __slots__ = ("__dict__", "__weakref__", "_native")

    is_sparse_csr = False

    def __init__(self, size: Any = 0, *, device: Any = None, native: Any = None) -> None:
        if native is None:
            place = CPU if device is None else as_device(device)
            numbers = None if hasattr(size, "__index__") else _bytes_of(size)
            nbytes = _byte_count(size) if numbers is None else len(numbers)
            native = fresh_storage(nbytes, place)
            if native is None:
                if numbers is not None:
                    raise RuntimeError(f"torch.UntypedStorage(): a storage on {place} takes a size and no bytes")
                native = _MetaBytes(nbytes, place)
            elif numbers:
                write_bytes(native, 0, numbers)
        self._look_at(native)

    def _look_at(self, native: Any) -> None:
        """Show this memory from now on, as the object that its tensors give."""
        self._native = native
        _SHOWN[id(native)] = self

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first bytes of a file, mapped; with `shared` writes reach the file, which is made and enlarged where need
        be.
        """
        return cls(native=mapped.map_file(filename, shared, nbytes))

    @classmethod
    def from_buffer(
        cls, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0, dtype: DType = UINT8
    ) -> UntypedStorage:
        """A copy of numbers in a buffer, which may have the other byte order."""
        if byte_order not in (None, "native", "little", "big"):
            raise ValueError(f"invalid byte_order '{byte_order}' (expected 'big' or 'little')")
        raw = memoryview(buffer).cast("B")[offset:]
        if dtype.itemsize > 1 and byte_order is None:
            raise TypeError("function missing required argument 'byte_order' (pos 2)")
        size = len(raw) // dtype.itemsize if count < 0 else count
        if size * dtype.itemsize > len(raw) or count < 0 and len(raw) % dtype.itemsize:
            raise ValueError(
                f"buffer has {len(raw)} bytes after offset {offset}, which are not {size} elements of {dtype.itemsize} bytes"
            )
        made = cls(size * dtype.itemsize)
        made._write(0, raw[: size * dtype.itemsize])
        if byte_order == "big":
            made.byteswap(dtype)
        return made

    @property
    def device(self) -> Device:
        """The device whose memory it is; on `meta` a storage has a size and no bytes."""
        return self._native.device if type(self._native) is _MetaBytes else device_of(self._native)

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    def nbytes(self) -> int:
        """Size in bytes."""
        return int(self._native.nbytes)

    size = nbytes

    def __len__(self) -> int:
        return self.nbytes()

    def data_ptr(self) -> int:
        """Address of the first byte."""
        return int(self._native.ptr)

    @property
    def filename(self) -> str | None:
        """The name under which a file was mapped so that writes reach it; None for other memory."""
        owner = getattr(self._native, "owner", None)
        return owner.filename if isinstance(owner, mapped.MappedFile) else None

    @property
    def _cdata(self) -> int:
        return id(self._native)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def element_size(self) -> int:
        """1: the elements are bytes."""
        return 1

    def get_device(self) -> int:
        """The index of the device; -1 where it has none, as the CPU."""
        index = self.device.index
        return -1 if index is None else index

    def _bytes(self) -> memoryview:
        """The bytes: those of the host's memory themselves, of another device's a copy."""
        if type(self._native) is _MetaBytes:
            raise NotImplementedError("Not available for 'meta' device type")
        return bytes_at(self._native, self._native.ptr, self.nbytes()) if self.nbytes() else memoryview(bytearray())

    def _write(self, start: int, data: Any) -> None:
        """Put bytes from `start` on."""
        if type(self._native) is _MetaBytes:
            raise NotImplementedError("Not available for 'meta' device type")
        write_bytes(self._native, start, data)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(self.nbytes())
            if step != 1:
                raise RuntimeError(f"Trying to slice with a step of {step}, but only a step of 1 is supported")
            count = max(stop - start, 0)
            return UntypedStorage(native=from_owner(self._native.ptr + start, count, self._native))
        if not hasattr(index, "__index__"):
            raise TypeError(f"can't index a torch.UntypedStorage with {type(index).__name__}")
        if not -self.nbytes() <= integer(index) < self.nbytes():
            raise IndexError(f"index {index} out of range for storage of size {self.nbytes()}")
        return self._bytes()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if not hasattr(value, "__index__"):
            raise RuntimeError(f"can only set storage content with a int types, but got {type(value).__name__} instead")
        if isinstance(index, slice) and index.step not in (None, 1):
            raise RuntimeError(f"Trying to slice with a step of {index.step}, but only a step of 1 is supported")
        held = self._bytes()
        for place in range(self.nbytes())[index] if isinstance(index, slice) else (index,):
            held[place] = integer(value) & 0xFF
        self._put(held)

    def _put(self, held: memoryview) -> None:
        """Write back what `_bytes` gave, where that was a copy."""
        if not backend_of(self.device).host_readable:
            self._write(0, held)
        self._native.version += 1

    def __iter__(self) -> Iterator[int]:
        return iter(self._bytes().tolist())

    def tolist(self) -> list[int]:
        """The bytes as ints."""
        return self._bytes().tolist()

    def clone(self) -> UntypedStorage:
        """A copy."""
        if type(self._native) is _MetaBytes:
            raise NotImplementedError("Not available for 'meta' device type")
        return type(self)(native=copy_storage(self._native))

    def new(self) -> UntypedStorage:
        """An empty storage."""
        return UntypedStorage(0)

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[Any, Any]) -> UntypedStorage:
        copied = memo.get(("storage", self._cdata))
        if copied is None:
            copied = memo["storage", self._cdata] = self.clone()._native
        return shown(copied)

    def __reduce__(self) -> tuple[Any, ...]:
        return _untyped_of, (bytes(self._bytes()),)

    def copy_(self, source: UntypedStorage, non_blocking: bool = False) -> UntypedStorage:
        """Take over another storage's bytes."""
        if source.nbytes() != self.nbytes():
            raise RuntimeError(
                f"size does not match, self was {self.nbytes()} bytes but src was {source.nbytes()} bytes"
            )
        self._write(0, source._bytes())
        self._native.version += 1
        return self

    def fill_(self, value: int) -> UntypedStorage:
        """Set every byte."""
        self[:] = value
        return self

    def resize_(self, nbytes: int) -> None:
        """Another size; what is kept of the bytes stays, new ones are undefined, and the tensors over this storage see
        them.
        """
        nbytes = _byte_count(nbytes)
        if nbytes == self.nbytes():
            return
        check_resizable(self._native)
        kept, device = min(nbytes, self.nbytes()), self.device
        fresh = UntypedStorage(nbytes, device=device)
        if kept:
            backend_of(device).copy(fresh._native.ptr, self._native.ptr, kept, device)
        self._look_at(shared.relocate(self._native, fresh._native))

    def byteswap(self, dtype: DType) -> None:
        """Reverse the bytes of every element of a dtype in place (of both parts of a complex one)."""
        size = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
        held = self._bytes()
        whole = len(held) - len(held) % size
        swapped = bytearray(held)
        for k in range(size):
            swapped[k:whole:size] = held[size - 1 - k : whole : size]
        held[:] = swapped
        self._put(held)

    def cpu(self) -> UntypedStorage:
        """Itself, or a copy in the host's memory."""
        return self.to(device=CPU)

    def to(self, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
        """On a device: itself, or a copy there (on `meta` of its size alone)."""
        wanted = as_device(device)
        if wanted is self.device:
            return self
        made = UntypedStorage(self.nbytes(), device=wanted)
        if type(made._native) is not _MetaBytes:
            if type(self._native) is _MetaBytes:
                raise NotImplementedError("Cannot copy out of meta tensor; no data!")
            made._write(0, self._bytes())
        return made

    def mps(self) -> UntypedStorage:
        """RuntimeError: rushlight computes on the CPU only."""
        raise RuntimeError("torch.UntypedStorage(): Storage device not recognized: mps")

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The class's name, or the bytes as a storage of that type."""
        return "torch.storage.UntypedStorage" if dtype is None else _typed(self, dtype)

    def is_shared(self) -> bool:
        """Whether other processes can see the memory; that of an accelerator counts as shared, as in PyTorch."""
        backend = backend_of(self.device)
        return bool(shared.is_shared(self._native)) if backend.host_readable else not backend.shapes_only

    def share_memory_(self) -> UntypedStorage:
        """Move the bytes to memory that processes share; every tensor over this storage moves along."""
        if backend_of(self.device).host_readable:
            self._look_at(shared.share(self._native))
        return self

    def __repr__(self) -> str:
        return f"{_lines(self)}[torch.storage.UntypedStorage(device={self.device}) of size {self.nbytes()}]"


# The object that shows each storage, while anybody has it: whoever asks again gets the same one.
_SHOWN: WeakValueDictionary[int, UntypedStorage] = WeakValueDictionary()


def shown(native: Any) -> UntypedStorage:
    """The object for a tensor's memory; tensors that share it with versions of their own have the same."""
    while type(owner := native.owner) is type(native) and (owner.ptr, owner.nbytes) == (native.ptr, native.nbytes):
        native = owner
    found = _SHOWN.get(id(native))
    return found if found is not None and found._native is native else UntypedStorage(native=native)


def _lines(storage: Any) -> str:
    """The elements for `repr`, one a line."""
    if type(storage.untyped()._native) is _MetaBytes:
        return "...\n"
    return " " + "\n ".join(map(str, storage.tolist())) + "\n"


def _untyped_of(data: bytes) -> UntypedStorage:
    made = UntypedStorage(len(data))
    if data:
        made._write(0, data)
    return made


class _StorageMeta(type):
    """Of `torch.FloatStorage` and its kin: an instance is a storage with this dtype, whatever made it."""

    dtype: DType | None

    def __instancecheck__(cls, instance: Any) -> bool:
        wanted = cls.__dict__.get("dtype")
        if isinstance(wanted, DType):
            return type.__instancecheck__(TypedStorage, instance) and instance.dtype is wanted
        return type.__instancecheck__(cls, instance)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        wanted = cls.__dict__.get("dtype")
        if isinstance(wanted, DType):  # a storage of a type is a typed storage with its dtype
            for name in ("dtype", "device"):
                if name in kwargs:
                    _refuse(f"{cls}.__new__", f"Keyword argument '{name}' cannot be specified", RuntimeError)
            return TypedStorage(*args, dtype=wanted, **kwargs)
        return super().__call__(*args, **kwargs)


_FORMS = (
    "no arguments", "(int size, *, device=None, dtype=None)", "(Sequence data, *, device=None, dtype=None)",
    "(*, UntypedStorage wrap_storage, dtype=None)",
)  # fmt: skip


def _refuse(who: str, reason: str, error: type[Exception]) -> NoReturn:
    """Raise for a typed storage that cannot be made of these arguments."""
    forms = "".join(f"\n * {form}" for form in _FORMS)
    raise error(f"{who} received an invalid combination of arguments. Expected one of:{forms}\n{reason}")


class TypedStorage(StorageBase, metaclass=_StorageMeta):
    """A storage seen as elements of one dtype (PyTorch's older form).

    `TypedStorage(3, dtype=torch.int32)` has three undefined elements, `TypedStorage([1, 2])` these numbers in the
    default dtype; `torch.IntStorage` and its kin are the same with a dtype of their own.

        >>> import rushlight as torch
        >>> torch.IntStorage([1, 2]).tolist()
        [1, 2]
    """

    __slots__ = ("_untyped_storage", "dtype")

    def __init__(
        self,
        *args: Any,
        wrap_storage: UntypedStorage | None = None,
        dtype: DType | None = None,
        device: Any = None,
        _internal: bool = False,
    ) -> None:
        who = "TypedStorage.__init__"
        if len(args) > (wrap_storage is None):
            _refuse(who, "Too many positional arguments", RuntimeError)
        self.dtype: DType = dtype or default_dtype()
        if wrap_storage is not None:
            if dtype is None:
                _refuse(who, "Argument 'dtype' must be specified", RuntimeError)
            if not isinstance(wrap_storage, UntypedStorage):
                _refuse(who, f"Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage)}", TypeError)
            self._untyped_storage = wrap_storage
        elif args and not hasattr(args[0], "__index__"):
            if isinstance(args[0], str) or not hasattr(args[0], "__len__"):
                _refuse(who, f"Argument type not recognized: {type(args[0])}", TypeError)
            self._untyped_storage = untyped_storage(tensor(list(args[0]), dtype=self.dtype))
        else:
            self._untyped_storage = UntypedStorage(self.dtype.itemsize * (args[0] if args else 0), device=device)

    @classmethod
    def from_buffer(
        cls,
        buffer: Any,
        byte_order: str | None = None,
        count: int = -1,
        offset: int = 0,
        dtype: DType | None = None,
        device: Any = None,
    ) -> TypedStorage:
        """A copy of the numbers in a buffer; see `UntypedStorage.from_buffer`."""
        kind = cls.__dict__.get("dtype")
        kind = kind if isinstance(kind, DType) else dtype or default_dtype()
        return TypedStorage(
            wrap_storage=UntypedStorage.from_buffer(buffer, byte_order, count, offset, kind), dtype=kind
        )

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> TypedStorage:
        """The first elements of a file, mapped; see `UntypedStorage.from_file`."""
        kind = cls.__dict__.get("dtype")
        if not isinstance(kind, DType):
            raise RuntimeError("from_file can only be called on derived classes")
        return TypedStorage(wrap_storage=UntypedStorage.from_file(filename, shared, size * kind.itemsize), dtype=kind)

    def untyped(self) -> UntypedStorage:
        """The bytes."""
        return self._untyped_storage

    @property
    def _dtype(self) -> DType:
        return self.dtype

    @property
    def device(self) -> Device:
        """The device of the bytes."""
        return self._untyped_storage.device

    @property
    def filename(self) -> str | None:
        """See `UntypedStorage.filename`."""
        return self._untyped_storage.filename

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    def data_ptr(self) -> int:
        """Address of the first element."""
        return self._untyped_storage.data_ptr()

    def nbytes(self) -> int:
        """Size in bytes."""
        return self._untyped_storage.nbytes()

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def get_device(self) -> int:
        """The index of the device; -1 where it has none, as the CPU."""
        index = self.device.index
        return -1 if index is None else index

    def size(self) -> int:
        """Number of elements."""
        return self.nbytes() // self.dtype.itemsize

    __len__ = size

    def _tensor(self) -> Tensor:
        return storage_tensor(self._untyped_storage, BY_NAME[_INTEGERS.get(self.dtype.name, self.dtype.name)])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(index, int):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} out of range for storage of size {len(self)}")
        return self._tensor()[index].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(index, (int, slice)):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        self._tensor()[index] = value

    def tolist(self) -> list[Any]:
        """The elements."""
        return self._tensor().tolist()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def fill_(self, value: Any) -> TypedStorage:
        """Set every element."""
        self._tensor().fill_(value)
        return self

    def copy_(self, source: TypedStorage, non_blocking: bool = False) -> TypedStorage:
        """Take over another storage's bytes."""
        self._untyped_storage.copy_(source.untyped(), non_blocking)
        return self

    def clone(self) -> TypedStorage:
        """A copy."""
        return TypedStorage(wrap_storage=self._untyped_storage.clone(), dtype=self.dtype)

    __copy__ = clone

    def __deepcopy__(self, memo: dict[Any, Any]) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped_storage.__deepcopy__(memo), dtype=self.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return _wrapped, (self._untyped_storage, self.dtype)

    def resize_(self, size: int) -> None:
        """Another number of elements; see `UntypedStorage.resize_`."""
        self._untyped_storage.resize_(size * self.dtype.itemsize)

    def cpu(self) -> TypedStorage:
        """The same memory."""
        return TypedStorage(wrap_storage=self._untyped_storage.cpu(), dtype=self.dtype)

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        """On a device, of which there is one: the same memory."""
        return TypedStorage(wrap_storage=self._untyped_storage.to(device=device), dtype=self.dtype)

    def pickle_storage_type(self) -> str:
        """The name under which files know this type."""
        return _NAMES[self.dtype]

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The type's name (`torch.FloatStorage`), or the bytes as a storage of that type."""
        return f"torch.{_NAMES[self.dtype]}" if dtype is None else _typed(self._untyped_storage, dtype)

    def is_shared(self) -> bool:
        """Whether other processes can see the memory."""
        return self._untyped_storage.is_shared()

    def share_memory_(self) -> TypedStorage:
        """Move the elements to memory that processes share."""
        self._untyped_storage.share_memory_()
        return self

    def __eq__(self, other: object) -> bool:
        return type.__instancecheck__(TypedStorage, other) and self._untyped_storage is other._untyped_storage  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        kind = f"dtype={self.dtype!r}, device={self.device}"
        return f"{_lines(self)}[torch.storage.TypedStorage({kind}) of size {self.size()}]"


def _wrapped(storage: UntypedStorage, dtype: DType) -> TypedStorage:
    return TypedStorage(wrap_storage=storage, dtype=dtype)


def _typed(storage: UntypedStorage, wanted: Any) -> TypedStorage:
    """Bytes as a storage of a type, which is a class, its name, or a dtype."""
    if isinstance(wanted, str):
        wanted = TYPED_STORAGES.get(wanted.removeprefix("torch."))
    dtype = wanted if isinstance(wanted, DType) else getattr(wanted, "dtype", None)
    if not isinstance(dtype, DType):
        raise RuntimeError(f"{wanted!r} is no type of storage")
    return TypedStorage(wrap_storage=storage, dtype=dtype)


def _cast(name: str, dtype: DType) -> None:
    def cast(self: Any) -> TypedStorage:
        found = self._tensor() if isinstance(self, TypedStorage) else storage_tensor(self, UINT8)
        return TypedStorage(
            wrap_storage=untyped_storage(found.to(dtype).clone() if found.dtype is dtype else found.to(dtype)),
            dtype=dtype,
        )

    cast.__name__, cast.__doc__ = name, f"A copy whose elements are cast to {dtype.name}."
    setattr(TypedStorage, name, cast)
    setattr(UntypedStorage, name, cast)


for _name, _dtype in _CASTS.items():
    _cast(_name, BY_NAME[_dtype])

_TYPES = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex128", "complex64", "quint8", "qint8",
    "qint32", "quint4x2", "quint2x4",
)  # fmt: skip
LegacyStorage = _StorageMeta("_LegacyStorage", (TypedStorage,), {
    "__module__": "torch.storage", "__slots__": (), "__doc__": "What the classes of one dtype have in common.",
})  # fmt: skip
TYPED_STORAGES: dict[str, Any] = {
    f"{BY_NAME[name].scalar}Storage": _StorageMeta(f"{BY_NAME[name].scalar}Storage", (LegacyStorage,), {
        "dtype": BY_NAME[name], "__module__": "torch", "__slots__": (), "__doc__": f"A storage of {name} elements; see `TypedStorage`.",
    })
    for name in _TYPES
}  # fmt: skip
_NAMES = {cls.__dict__["dtype"]: word for word, cls in TYPED_STORAGES.items()}


for _name in (
    "data_ptr",
    "element_size",
    "is_shared",
    "nbytes",
    "pickle_storage_type",
    "resize_",
    "share_memory_",
    "size",
):
    setattr(TypedStorage, f"_{_name}", getattr(TypedStorage, _name))  # as libraries call them, without a warning


def storage_type(dtype: DType) -> Any:
    """The class of storages with this dtype; None for the dtypes that have none."""
    return TYPED_STORAGES.get(_NAMES.get(dtype, ""))


def storage_tensor(storage: UntypedStorage, dtype: DType, shape: Sequence[int] | None = None) -> Tensor:
    """A one-dimensional tensor over all of a storage."""
    spec = Spec.of(dtype, storage.device, (storage.nbytes() // dtype.itemsize,) if shape is None else shape)
    return make(storage._native if has_memory(spec) else None, spec, storage._native.ptr)


@breaks_trace(ADDRESS)
def untyped_storage(x: Tensor) -> UntypedStorage:
    """The storage of a tensor."""
    if x._storage is None:
        last = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else -1
        return UntypedStorage((x.storage_offset() + last + 1) * x._spec.dtype.itemsize, device=x.device)
    if HOOKS.lazy_clones:
        own(x)  # whoever has the storage may write to it
    return shown(x._storage)


@breaks_trace(ADDRESS)
def storage(self: Tensor) -> TypedStorage:
    """The storage of a tensor, with its dtype."""
    warn_once(
        "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage class. This should only matter to you "
        "if you are using storages directly.  To access UntypedStorage directly, use tensor.untyped_storage() instead of tensor.storage()"
    )
    return typed_storage(self)


def typed_storage(self: Tensor) -> TypedStorage:
    """The storage of a tensor, with its dtype; nothing warns."""
    return TypedStorage(wrap_storage=untyped_storage(self), dtype=self.dtype)


Tensor.untyped_storage = untyped_storage  # type: ignore[attr-defined]
HOOKS.untyped_storage = untyped_storage
Tensor.storage = storage  # type: ignore[attr-defined]
Tensor._typed_storage = typed_storage  # type: ignore[attr-defined]
