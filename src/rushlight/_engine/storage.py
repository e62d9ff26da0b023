"""Storages as users see them: `tensor.untyped_storage()` and the older typed form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rushlight._base.lazy import LazyModule
from rushlight._engine.memory import MEMORY
from rushlight._engine.tensor import Tensor, make
from rushlight._types.device import CPU, Device
from rushlight._types.dtype import DType
from rushlight._types.spec import Spec

ctypes: Any = LazyModule("ctypes")

__all__ = ["TypedStorage", "UntypedStorage", "storage_tensor"]


class UntypedStorage:
    """A block of bytes that tensors look at.

    `UntypedStorage(n)` makes one of n bytes; a tensor's own is `tensor.untyped_storage()`.
    """

    __slots__ = ("__weakref__", "_native")

    def __init__(self, size: int = 0, *, device: Any = None, native: Any = None) -> None:
        self._native = MEMORY.alloc(size) if native is None else native

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first bytes of a file, mapped; with `shared` writes reach the file, which is made and enlarged where need be."""
        from rushlight._engine.mapped import map_file

        return cls(native=map_file(filename, shared, nbytes))

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
    def device(self) -> Device:
        return CPU

    @property
    def _cdata(self) -> int:
        return int(self._native.ptr)

    def element_size(self) -> int:
        """1: the elements are bytes."""
        return 1

    def _bytes(self) -> memoryview:
        if not self.nbytes():
            return memoryview(bytearray())
        return memoryview((ctypes.c_ubyte * self.nbytes()).from_address(self._native.ptr)).cast("B")

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return list(self._bytes()[index])
        return self._bytes()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            span = range(self.nbytes())[index]
            for place in span:
                self._bytes()[place] = value
        else:
            self._bytes()[index] = value
        self._native.version += 1

    def __iter__(self) -> Iterator[int]:
        return iter(self._bytes().tolist())

    def tolist(self) -> list[int]:
        """The bytes as ints."""
        return self._bytes().tolist()

    def clone(self) -> UntypedStorage:
        """A copy."""
        made = UntypedStorage(self.nbytes())
        made._bytes()[:] = self._bytes()
        return made

    def copy_(self, source: UntypedStorage, non_blocking: bool = False) -> UntypedStorage:
        """Take over another storage's bytes."""
        if source.nbytes() != self.nbytes():
            raise RuntimeError(f"cannot copy a storage of {source.nbytes()} bytes into one of {self.nbytes()}")
        self._bytes()[:] = source._bytes()
        self._native.version += 1
        return self

    def fill_(self, value: int) -> UntypedStorage:
        """Set every byte."""
        self[:] = value
        return self

    def resize_(self, nbytes: int) -> None:
        """Raises: the memory of living tensors does not move."""
        if nbytes != self.nbytes():
            raise NotImplementedError("rushlight has no 'UntypedStorage.resize_' to another size yet; use Tensor.resize_")

    def cpu(self) -> UntypedStorage:
        """Itself."""
        return self

    def is_shared(self) -> bool:
        """False: other processes do not see it."""
        return False

    def is_pinned(self, device: Any = None) -> bool:
        """False."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self.data_ptr() == other.data_ptr() and self.nbytes() == other.nbytes()

    def __hash__(self) -> int:
        return hash(self._native.ptr)

    def __repr__(self) -> str:
        return "".join(f" {b}\n" for b in self.tolist()) + f"[torch.storage.UntypedStorage(device=cpu) of size {self.nbytes()}]"


class TypedStorage:
    """A storage seen as elements of one dtype (PyTorch's older form)."""

    __slots__ = ("_untyped", "dtype")

    def __init__(self, *, wrap_storage: UntypedStorage, dtype: DType) -> None:
        self._untyped, self.dtype = wrap_storage, dtype

    def untyped(self) -> UntypedStorage:
        """The bytes."""
        return self._untyped

    def data_ptr(self) -> int:
        """Address of the first element."""
        return self._untyped.data_ptr()

    def nbytes(self) -> int:
        """Size in bytes."""
        return self._untyped.nbytes()

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def size(self) -> int:
        """Number of elements."""
        return self.nbytes() // self.dtype.itemsize

    __len__ = size

    def _tensor(self) -> Tensor:
        return storage_tensor(self._untyped, self.dtype)

    def __getitem__(self, index: Any) -> Any:
        found = self._tensor()[index]  # type: ignore[index]
        return found.item() if not isinstance(index, slice) else TypedStorage(wrap_storage=found.untyped_storage(), dtype=self.dtype)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._tensor()[index] = value  # type: ignore[index]

    def tolist(self) -> list[Any]:
        """The elements."""
        return self._tensor().tolist()  # type: ignore[attr-defined, no-any-return]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    @property
    def device(self) -> Device:
        return CPU

    def __repr__(self) -> str:
        return "".join(f" {v}\n" for v in self.tolist()) + f"[torch.storage.TypedStorage(dtype={self.dtype!r}, device=cpu) of size {self.size()}]"


def storage_tensor(storage: UntypedStorage, dtype: DType) -> Tensor:
    """A one-dimensional tensor over all of a storage."""
    return make(storage._native, Spec.of(dtype, CPU, (storage.nbytes() // dtype.itemsize,)), storage._native.ptr)


def untyped_storage(x: Tensor) -> UntypedStorage:
    """The storage of a tensor."""
    if x._storage is None:
        raise NotImplementedError("rushlight has no storage for meta tensors")
    return UntypedStorage(native=x._storage)


Tensor.untyped_storage = untyped_storage  # type: ignore[attr-defined]
Tensor.storage = lambda self: TypedStorage(wrap_storage=untyped_storage(self), dtype=self.dtype)  # type: ignore[attr-defined]
