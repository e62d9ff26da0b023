"""Memory of the reference interpreter: NumPy arrays at addresses, and every access checked.

>>> import numpy as np
>>> from rushlight._codegen.blocks.memory import BlockMemory
>>> from rushlight._types.dtype import FLOAT32
>>> memory, x = BlockMemory(), np.arange(4, dtype=np.float32)
>>> address = memory.add(x)
>>> memory.load(np.array([address + 8, address]), FLOAT32)
array([2., 0.], dtype=float32)
>>> memory.store(np.array([address + 4]), np.array([9.0], np.float32), FLOAT32)
>>> x
array([0., 9., 2., 3.], dtype=float32)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight._base.lazy import numpy as np
from rushlight._prims.numbers import holder, rounded
from rushlight._types.dtype import BFLOAT16, COMPLEX32, FLOAT8, DType
from rushlight._types.float8 import encode, values

__all__ = ["BlockFault", "BlockMemory", "bits_of", "numbers_of"]

_FIRST, _GAP = 1 << 44, 1 << 16  # pretended addresses begin where no process has memory


class BlockFault(RuntimeError):
    """An access outside of all buffers, or a failed assertion of a kernel."""


class _Buffer(NamedTuple):
    address: int
    data: Any  # bytes


class BlockMemory:
    """Buffers at addresses.  What lies between them is nobody's."""

    def __init__(self) -> None:
        self.buffers: list[_Buffer] = []
        self.next = _FIRST

    def add(self, array: Any, address: int | None = None) -> int:
        """Put a contiguous array (dtypes that NumPy lacks: their bits) at an address; by default at a pretended one,
        a multiple of 4096.  The kernel writes to the array itself.
        """
        if not array.flags.c_contiguous:
            raise ValueError("memory of a kernel is a contiguous array")
        data = array.reshape(-1).view(np.uint8)
        if address is None:
            address = self.next
            self.next += (data.size + _GAP + 4095) // 4096 * 4096
        self.buffers.append(_Buffer(address, data))
        return address

    def load(self, addresses: Any, dtype: DType) -> Any:
        """Elements at addresses (an array of integers), in the array type that holds the dtype."""
        size = dtype.itemsize
        raw = np.empty((addresses.size, size), np.uint8)
        for lanes, buffer, at in self._split(addresses.reshape(-1), size):
            raw[lanes] = buffer.data[at[:, None] + np.arange(size)]
        return numbers_of(raw.reshape(-1), dtype).reshape(addresses.shape)

    def store(self, addresses: Any, array: Any, dtype: DType) -> None:
        """Write elements; of two at one address the later stays."""
        size = dtype.itemsize
        raw = bits_of(array.reshape(-1), dtype).view(np.uint8).reshape(-1, size)
        for lanes, buffer, at in self._split(addresses.reshape(-1), size):
            buffer.data[at[:, None] + np.arange(size)] = raw[lanes]

    def _split(self, addresses: Any, size: int) -> Any:
        """For each buffer that is met: which lanes meet it, and at which bytes."""
        left = np.ones(addresses.shape, bool)
        for buffer in self.buffers:
            at = addresses - buffer.address
            inside = left & (at >= 0) & (at <= buffer.data.size - size)
            if inside.any():
                yield np.nonzero(inside)[0], buffer, at[inside]
                left &= ~inside
        if left.any():
            raise BlockFault(self._outside(int(addresses[left][0]), size))

    def _outside(self, address: int, size: int) -> str:
        nearest = min(
            self.buffers, key=lambda b: max(b.address - address, address - b.address - b.data.size), default=None
        )
        if nearest is None:
            return f"{size} bytes at {address:#x}, and there is no memory at all"
        return (
            f"{size} bytes at {address:#x}; the nearest memory has {nearest.data.size} bytes and begins "
            f"{address - nearest.address} bytes before"
        )


def numbers_of(raw: Any, dtype: DType) -> Any:
    """Bytes as elements, in the array type that holds the dtype."""
    if dtype.kind == "b":
        return raw != 0
    if dtype is BFLOAT16:
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype in FLOAT8:
        return np.array(values(dtype.name), np.float32)[raw]
    if dtype is COMPLEX32:
        return raw.view(np.float16).astype(np.float32).view(np.complex64)
    return raw.view(holder(dtype))


def bits_of(array: Any, dtype: DType) -> Any:
    """Elements as they lie in memory: an array of the dtype, or of integers with its bits."""
    array = np.ascontiguousarray(array)
    if dtype.kind == "b":
        return array.astype(np.uint8)
    if dtype is BFLOAT16:
        single = rounded(array, dtype).astype(np.float32)
        return np.where(np.isnan(single), 0x7FC0, single.view(np.uint32) >> 16).astype(np.uint16)
    if dtype in FLOAT8:
        return np.array([encode(dtype.name, v) for v in array.ravel().tolist()], np.uint8).reshape(array.shape)
    if dtype is COMPLEX32:
        parts = np.stack([array.real, array.imag], -1).astype(np.float16)
        return parts.view(np.uint32)[..., 0]
    return array.astype(holder(dtype), copy=False)
