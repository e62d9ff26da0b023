"""Buffers of engines: addresses, counts, and the names of dtypes; and the arithmetic around a reduction.

Half types are reduced as float32: MPI has no sums of them that every implementation provides, and one rounding at the
end is closer to the truth than one after every step.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight._base.lazy import numpy as np

__all__ = [
    "BITWISE",
    "HALF",
    "INTEGERS",
    "REDUCTIONS",
    "Buffer",
    "Reduction",
    "array_at",
    "copy_bytes",
    "narrow",
    "scale",
    "widen",
]

HALF = ("float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
BITWISE = ("band", "bor", "bxor")
REDUCTIONS = ("sum", "avg", "prod", "min", "max", *BITWISE, "premul_sum")

_REAL_PARTS = {"complex32": ("float16", 2), "complex64": ("float32", 4), "complex128": ("float64", 8)}

copy_bytes = ctypes.memmove  # (to, from, number of bytes)


class Buffer(NamedTuple):
    """`count` elements of a dtype, one behind the other."""

    address: int
    count: int  # type: ignore[assignment]  # (tuples have a method of this name)
    dtype: str
    itemsize: int

    @property
    def nbytes(self) -> int:
        return self.count * self.itemsize

    def pieces(self, rows: Sequence[int]) -> list[Buffer]:
        """Consecutive pieces, by their numbers of rows."""
        total = sum(rows)
        row, address, found = self.count // total if total else 0, self.address, []
        for n in rows:
            found.append(self._replace(address=address, count=n * row))
            address += n * row * self.itemsize
        return found

    def real_parts(self) -> Buffer:
        """Complex numbers as pairs, as reductions take them."""
        if self.dtype not in _REAL_PARTS:
            return self
        name, itemsize = _REAL_PARTS[self.dtype]
        return Buffer(self.address, 2 * self.count, name, itemsize)


class Reduction(NamedTuple):
    """One of REDUCTIONS; `factor` is that of `premul_sum`."""

    name: str
    factor: float | None = None


def array_at(buffer: Buffer) -> Any:
    """A flat array over a buffer; bfloat16 as uint16."""
    dtype = "uint16" if buffer.dtype == "bfloat16" else buffer.dtype
    if not buffer.count:
        return np.empty(0, dtype)
    memory = (ctypes.c_char * buffer.nbytes).from_address(buffer.address)
    return np.ndarray((buffer.count,), dtype, memory)


def widen(buffer: Buffer) -> Any:
    """The elements of a half type as a new float32 array."""
    found = array_at(buffer)
    if buffer.dtype == "float16":
        return found.astype(np.float32)
    return (found.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(wide: Any, buffer: Buffer) -> None:
    """Round float32 elements to the nearest of a half type, into a buffer."""
    target = array_at(buffer)
    if buffer.dtype == "float16":
        with np.errstate(over="ignore"):
            target[:] = wide
        return
    bits = wide.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    target[:] = np.where(np.isnan(wide), quiet, rounded)


def scale(values: Any, factor: float | None, divisor: int) -> None:
    """Multiply by a factor or divide by a number of processes, in place; integers are divided towards zero."""
    if factor is not None:
        values *= values.dtype.type(factor)
    elif values.dtype.kind == "b":
        pass
    elif values.dtype.kind in "iu":
        values[:] = np.sign(values) * (np.abs(values) // divisor)
    else:
        values /= values.dtype.type(divisor)
