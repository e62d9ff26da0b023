"""Single elements of the host's memory as Python numbers: a native function for each common dtype, `struct` for the
rarer ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from rushlight._base.lazy import require
from rushlight._native import load, native
from rushlight._types.dtype import DType
from rushlight._types.float8 import FORMATS, values

__all__ = ["reader_of"]

_READ_TYPES = {
    "bool": "u8", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint16": "u16", "uint32": "u32",
    "uint64": "u64", "float32": "f32", "float64": "f64",
}  # fmt: skip
_CODES = {"float16": "e", "complex64": "2f", "complex128": "2d", "uint64": "Q", "bfloat16": "H", "complex32": "2e"}
_CODES |= dict.fromkeys(FORMATS, "B")


@cache
def reader_of(dtype: DType) -> Callable[[int], Any]:
    """A function from an address to a Python number; NotImplementedError for dtypes whose elements are no numbers."""
    if dtype.name == "bool":
        raw = _native_reader(dtype)
        return lambda p: raw(p) != 0
    if dtype.name in _READ_TYPES and dtype.name != "uint64":
        return _native_reader(dtype)
    return _struct_reader(dtype)


def _native_reader(dtype: DType) -> Any:
    language = require("rushlight._native")
    element, f64, i64 = getattr(language, _READ_TYPES[dtype.name]), language.f64, language.i64
    wide = f64 if dtype.is_floating_point else i64
    returns = "f64" if dtype.is_floating_point else "i64"

    @native(f"{returns}(ptr)", name=f"read_{dtype.name}")
    def read(p):
        return wide(load(element, p, 0))

    return require("rushlight._backends.cpu.runtime.stubs").bind(read)


def _struct_reader(dtype: DType) -> Callable[[int], Any]:
    """float8, float16, bfloat16, complex and uint64."""
    ctypes, struct = require("ctypes"), require("struct")
    code = _CODES.get(dtype.name, "")
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
