"""Memory for tensors, and reading single elements: the engine's door to the CPU runtime."""

from __future__ import annotations

from typing import Any

from rushlight._base.lazy import LazyModule, require
from rushlight._engine.core import tensor as tensor_module
from rushlight._engine.core.tensor import Tensor, make
from rushlight._native import load, native
from rushlight._types.device import META
from rushlight._types.dtype import DType
from rushlight._types.float8 import FORMATS, values
from rushlight._types.spec import Spec, check_memory, check_sizes

lazy_clone: Any = LazyModule("rushlight._engine.core.lazy_clone")

__all__ = [
    "LAZY",
    "MEMORY",
    "check_resizable",
    "empty_spec",
    "from_address",
    "is_resizable",
    "lend",
    "own",
    "read_element",
    "root_of",
    "zeros_spec",
]


class _Memory:
    """The runtime's allocation functions, loaded by the first use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        storage = require("rushlight._host.storage")
        self.alloc, self.alloc_zeroed, self.from_owner = storage.alloc, storage.alloc_zeroed, storage.from_owner
        self.Storage = storage.Storage
        return self.__dict__[name]


MEMORY: Any = _Memory()
tensor_module._from_owner[0] = lambda *args: MEMORY.from_owner(*args)


def empty_spec(spec: Spec) -> Tensor:
    """A tensor of this (dense) spec over fresh memory."""
    if spec.device is META:
        return make(None, spec, 0)
    check_memory(spec)
    check_sizes(spec)
    storage = MEMORY.alloc(spec.nbytes)
    return make(storage, spec, storage.ptr)


def zeros_spec(spec: Spec) -> Tensor:
    """A tensor of zeros."""
    if spec.device is META:
        return make(None, spec, 0)
    check_memory(spec)
    check_sizes(spec)
    storage = MEMORY.alloc_zeroed(spec.nbytes)
    return make(storage, spec, storage.ptr)


def from_address(address: int, spec: Spec, nbytes: int, owner: Any) -> Tensor:
    """A tensor over memory that `owner` keeps alive."""
    storage = MEMORY.from_owner(address, nbytes, owner)
    return make(storage, spec, address)


LAZY: list[bool] = []  # not empty once there was a lazy clone: until then nobody needs to ask `own`


def own(x: Any) -> None:
    """Give a tensor that is about to be written memory that no lazy clone shares."""
    if x._storage is not None and x._storage.born < 0:
        lazy_clone.separate(x)


# ***** single elements *****

_READ_TYPES = {
    "bool": "u8", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint16": "u16", "uint32": "u32",
    "uint64": "u64", "float32": "f32", "float64": "f64",
}  # fmt: skip
_READERS: dict[DType, Any] = {}


def _native_reader(dtype: DType) -> Any:
    language = require("rushlight._native")
    element, f64, i64 = getattr(language, _READ_TYPES[dtype.name]), language.f64, language.i64
    wide = f64 if dtype.is_floating_point else i64
    returns = "f64" if dtype.is_floating_point else "i64"

    @native(f"{returns}(ptr)", name=f"read_{dtype.name}")
    def read(p):
        return wide(load(element, p, 0))

    return require("rushlight._host.stubs").bind(read)


def root_of(storage: Any) -> Any:
    """The storage whose memory this one shows: that of `x.data` is a window on that of `x`."""
    kind = type(storage)
    while type(storage.owner) is kind:
        storage = storage.owner
    return storage


def is_resizable(storage: Any) -> bool:
    """Whether a storage's memory may move: it is neither somebody else's (an array's, a file's) nor shown by an array."""
    if getattr(storage, "version", None) is None or not hasattr(storage, "owner"):  # of a tensor without memory
        return True
    root = root_of(storage)
    return root.owner is None and not root.lent and storage.nbytes == root.nbytes


def check_resizable(storage: Any) -> None:
    """RuntimeError where a storage's memory may not move, or is a part of another's."""
    if not is_resizable(storage):
        raise RuntimeError("Trying to resize storage that is not resizable")


def lend(storage: Any) -> None:
    """Remember that an array shows the memory of a storage."""
    root_of(storage).lent = 1


def read_element(x: Tensor) -> Any:
    """The first element as a Python number."""
    check_memory(x._spec)
    return reader_of(x._spec.dtype)(x._ptr)


def reader_of(dtype: DType) -> Any:
    """A function from an address to a Python number."""
    reader = _READERS.get(dtype)
    if reader is None:
        reader = _READERS[dtype] = _make_reader(dtype)
    return reader


def _make_reader(dtype: DType) -> Any:
    if dtype.name == "bool":
        raw = _native_reader(dtype)
        return lambda p: raw(p) != 0
    if dtype.name in _READ_TYPES and dtype.name != "uint64":
        return _native_reader(dtype)
    return _numpy_reader(dtype)


def _numpy_reader(dtype: DType) -> Any:
    """float8, float16, bfloat16, complex and uint64: rarer, through ctypes and struct."""
    ctypes = require("ctypes")
    struct = require("struct")

    codes = {"float16": "e", "complex64": "2f", "complex128": "2d", "uint64": "Q", "bfloat16": "H", "complex32": "2e"}
    codes |= dict.fromkeys(FORMATS, "B")
    code = codes.get(dtype.name, "")
    if not code:
        raise NotImplementedError(f"\"_local_scalar_dense_cpu\" not implemented for '{dtype.scalar}'")

    def read(p: int) -> Any:
        parts = struct.unpack(code, ctypes.string_at(p, dtype.itemsize))
        if dtype.name == "bfloat16":
            return struct.unpack("f", struct.pack("I", parts[0] << 16))[0]
        if dtype.name in FORMATS:
            return values(dtype.name)[parts[0]]
        return complex(*parts) if dtype.is_complex else parts[0]

    return read
