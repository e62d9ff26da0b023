"""A tensor's elements as Python numbers, read from its memory: what `tolist` and the printer need, without NumPy."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import unpack
from typing import Any

from rushlight._engine.core.memory import bytes_at
from rushlight._types.float8 import FORMATS, values
from rushlight._types.layout import extent, numel
from rushlight._types.spec import check_memory

__all__ = ["Elements", "elements_of"]

# How memory is looked at; the half types as their bits, the complex ones as pairs.
_UNITS = {
    "bool": "?", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "int8": "b", "int16": "h", "int32": "i", "int64": "q",
    "float16": "H", "bfloat16": "H", "float32": "f", "float64": "d", "complex64": "f", "complex128": "d",
    "complex32": "H",
}  # fmt: skip
_UNITS |= dict.fromkeys(FORMATS, "B")


class Elements:
    """The elements at these strides, counted from `start`, of memory seen as units of the dtype.

    Like an array it can be indexed along its first dim, by a number or by a slice without a step.  `sign` is -1 where
    the memory holds the conjugates, or the negatives of real numbers.
    """

    __slots__ = ("dtype_name", "shape", "_memory", "_sign", "_start", "_strides")

    def __init__(
        self,
        memory: memoryview,
        dtype_name: str,
        shape: Sequence[int],
        strides: Sequence[int],
        start: int = 0,
        sign: int = 1,
    ) -> None:
        self._sign = sign
        self._memory, self.dtype_name, self._start = memory, dtype_name, start
        self.shape, self._strides = tuple(shape), tuple(strides)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return numel(self.shape)

    def __getitem__(self, at: int | slice) -> Elements:
        if isinstance(at, slice):
            first, stop, _ = at.indices(self.shape[0])
            shape, strides = (max(stop - first, 0), *self.shape[1:]), self._strides
        else:
            first, shape, strides = range(self.shape[0])[at], self.shape[1:], self._strides[1:]
        return Elements(
            self._memory, self.dtype_name, shape, strides, self._start + first * self._strides[0], self._sign
        )

    def __iter__(self) -> Any:
        return (self[i] for i in range(self.shape[0]))

    def tolist(self) -> Any:
        """Nested lists of numbers; a number where there are no dims."""
        if not self.shape:
            return self._row(self._start, 1, 1)[0]
        return self._nested(self._start, 0) if self.size else _empty(self.shape)

    def _nested(self, start: int, dim: int) -> list[Any]:
        n, stride = self.shape[dim], self._strides[dim]
        if dim == len(self.shape) - 1:
            return self._row(start, n, stride)
        return [self._nested(start + i * stride, dim + 1) for i in range(n)]

    def _row(self, start: int, n: int, stride: int) -> list[Any]:
        if stride == 0:
            return self._row(start, 1, 1) * n
        if self._sign < 0 and not self.dtype_name.startswith("complex"):
            return [
                -v for v in Elements(self._memory, self.dtype_name, self.shape, self._strides)._row(start, n, stride)
            ]
        memory, name = self._memory, self.dtype_name
        if name.startswith("complex"):
            start, stride, end = 2 * start, 2 * stride, 2 * (start + (n - 1) * stride) + 2
            real, imag = memory[start : end - 1 : stride].tolist(), memory[start + 1 : end : stride].tolist()
            if name == "complex32":
                real, imag = (unpack(f"<{n}e", array("H", part).tobytes()) for part in (real, imag))
            return [complex(a, self._sign * b) for a, b in zip(real, imag, strict=True)]
        row = memory[start : start + (n - 1) * stride + 1 : stride]
        if name == "float16":
            return list(unpack(f"<{n}e", row.tobytes()))
        if name == "bfloat16":  # the upper half of a float32
            return list(unpack(f"<{n}f", array("I", [bits << 16 for bits in row.tolist()]).tobytes()))
        if name in FORMATS:
            return list(map(values(name).__getitem__, row.tolist()))
        return row.tolist()


def _empty(shape: Sequence[int]) -> list[Any]:
    """Nested lists for a shape with no elements."""
    return [] if len(shape) == 1 else [_empty(shape[1:]) for _ in range(shape[0])]


def elements_of(x: Any) -> Elements:
    """The elements of a tensor that has memory."""
    spec, storage = x._spec, x._storage
    name, shape, strides = spec.dtype.name, tuple(spec.shape), tuple(spec.strides)
    check_memory(spec)
    unit = _UNITS.get(name, "" if spec.numel else "B")
    if not unit:
        raise NotImplementedError(f"\"_local_scalar_dense_cpu\" not implemented for '{spec.dtype.scalar}'")
    if not spec.numel:
        return Elements(memoryview(b"").cast(unit), name, shape, strides)  # type: ignore[call-overload]
    nbytes = extent(shape, strides) * spec.dtype.itemsize
    memory = bytes_at(storage, x._ptr, nbytes).cast(unit)  # type: ignore[call-overload]
    return Elements(memory, name, shape, strides, sign=-1 if spec.conj else 1)
