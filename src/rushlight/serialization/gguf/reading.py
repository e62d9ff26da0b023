"""Reading GGUF files, which are mapped: nothing of a tensor is read before it is used.

Counts, lengths, offsets and sizes are checked against the file before anything is allocated or read, so that a file cannot ask for
much more memory than it has bytes.  What is wrong with one is a `GGUFError`.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from struct import Struct, error
from typing import Any, NamedTuple

from rushlight.serialization import memory
from rushlight.serialization.gguf.block_types import ALIGNMENT, LIST, MAGIC, NUMBERS, TEXT, BlockType, block_type_of
from rushlight.serialization.gguf.packed import PackedWeight
from rushlight.storage import UntypedStorage

__all__ = ["GGUFError", "GGUFFile", "TensorInfo", "load_file", "open_file"]

_VERSIONS = (2, 3)
_MOST_DIMS, _MOST_NESTED = 8, 4
_MOST_NUMBERS = 1 << 54  # so that strides fit into 64 bits where a dim is empty

_LEAST = {**{code: form.size for code, form in NUMBERS.items()}, TEXT: 8, LIST: 12}  # bytes of a value at least


class GGUFError(ValueError):
    """A file is not in the GGUF format, or damaged."""


class TensorInfo(NamedTuple):
    """Where a tensor lies: its name, its shape as PyTorch has it (the last dim is contiguous), its type, its first byte."""

    name: str
    shape: tuple[int, ...]
    kind: BlockType
    start: int

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor in the file."""
        return math.prod(self.shape) // self.kind.numbers * self.kind.nbytes


class _Reader:
    """Takes values from the head of a file, and never more than it has."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, form: Struct) -> Any:
        try:
            (value,) = form.unpack_from(self.data, self.at)
        except error:
            raise GGUFError(f"the file ends at byte {len(self.data)}, within its head") from None
        self.at += form.size
        return value

    def u32(self) -> int:
        return int(self.take(NUMBERS[4]))

    def u64(self) -> int:
        return int(self.take(NUMBERS[10]))

    def text(self) -> str:
        size = self.u64()
        if size > self.left():
            raise GGUFError(f"a text of {size} bytes at byte {self.at}, where the file has {self.left()} left")
        raw = bytes(self.data[self.at : self.at + size])
        self.at += size
        try:
            return raw.decode()
        except UnicodeDecodeError as why:
            raise GGUFError(f"a text at byte {self.at - size} is not UTF-8: {why}") from None

    def value(self, code: int, depth: int = 0) -> Any:
        if code in NUMBERS:
            return self.take(NUMBERS[code])
        if code == TEXT:
            return self.text()
        if code != LIST or depth == _MOST_NESTED:
            what = f"of type {code}, which the format has not" if code != LIST else f"nested over {_MOST_NESTED} deep"
            raise GGUFError(f"a value {what}, at byte {self.at}")
        inner, count = self.u32(), self.u64()
        if count * _LEAST.get(inner, 1) > self.left():
            raise GGUFError(f"a list of {count} values at byte {self.at}, where the file has {self.left()} bytes left")
        if inner in NUMBERS:
            form = Struct(f"<{count}{NUMBERS[inner].format[1:]}")
            values = list(form.unpack_from(self.data, self.at))
            self.at += form.size
            return values
        return [self.value(inner, depth + 1) for _ in range(count)]


def _head(reader: _Reader, size: int) -> tuple[int, dict[str, Any], dict[str, TensorInfo]]:
    """The version, the metadata, and where tensors lie."""
    if bytes(reader.data[:4]) != MAGIC:
        raise GGUFError("not a GGUF file: it begins with other bytes")
    reader.at = 4
    version = reader.u32()
    if version not in _VERSIONS:
        turned = int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS
        why = "a big-endian file" if turned else f"version {version}"
        raise GGUFError(f"{why}; versions 2 and 3, little-endian, are read")
    count, values = reader.u64(), reader.u64()
    if count * 24 + values * 13 > reader.left():
        raise GGUFError(f"{count} tensors and {values} values are announced, more than {size} bytes can hold")
    metadata: dict[str, Any] = {}
    for _ in range(values):
        name = reader.text()
        if name in metadata:
            raise GGUFError(f"two values are named {name!r}")
        metadata[name] = reader.value(reader.u32())
    infos = [_info(reader) for _ in range(count)]
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise GGUFError(f"general.alignment is {alignment!r}, no power of two")
    first = -(-reader.at // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for info in infos:
        if info.name in tensors:
            raise GGUFError(f"two tensors are named {info.name!r}")
        if info.start % alignment or first + info.start + info.nbytes > size:
            raise GGUFError(
                f"tensor {info.name!r} ({info.kind.name}{list(info.shape)}) at byte {first + info.start} does not "
                f"lie in a file of {size} bytes, at a multiple of {alignment}"
            )
        tensors[info.name] = info._replace(start=first + info.start)
    return version, metadata, tensors


def _info(reader: _Reader) -> TensorInfo:
    name, dims = reader.text(), reader.u32()
    if dims > _MOST_DIMS:
        raise GGUFError(f"tensor {name!r} has {dims} dims")
    shape = tuple(reader.u64() for _ in range(dims))[::-1]
    code, start = reader.u32(), reader.u64()
    kind = block_type_of(code)
    if kind is None:
        raise GGUFError(f"tensor {name!r} is of type {code}, which is not known here")
    if math.prod(max(size, 1) for size in shape) >= _MOST_NUMBERS or (
        kind.numbers > 1 and (not shape or shape[-1] % kind.numbers)
    ):
        raise GGUFError(f"tensor {name!r} of type {kind.name} has the shape {list(shape)}")
    return TensorInfo(name, shape, kind, start)


class GGUFFile:
    """A GGUF file, opened to read some of its tensors; closed by the end of a `with` block.

    `metadata` holds its values by name.  GGUFError for a damaged file, OSError where it cannot be read.
    """

    def __init__(self, path: Any) -> None:
        size = os.path.getsize(path)
        if size < 24:
            raise GGUFError(f"{path}: a GGUF file has at least 24 bytes, this one has {size}")
        self._bytes = UntypedStorage.from_file(os.fspath(path), False, size)
        try:
            reader = _Reader(memory.bytes_of(self._bytes))
            self.version, self.metadata, self.tensors = _head(reader, size)
        except GGUFError as why:
            raise GGUFError(f"{path}: {why}") from None

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.tensors = {}

    def keys(self) -> list[str]:
        """The names of the tensors, in the order of the file."""
        return list(self.tensors)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def _over(self, info: TensorInfo, dtype: Any, shape: tuple[int, ...]) -> Any:
        storage = self._bytes[info.start : info.start + info.nbytes]
        if info.start % dtype.itemsize:
            storage = storage.clone()
        flat = memory.tensor_over(memory.native(storage), dtype, 0, (math.prod(shape),), (1,))
        return flat.view(shape)

    def get_packed(self, name: str) -> Any:
        """The tensor of this name as it lies in the file: a `PackedWeight`, or a tensor where the type is a dtype."""
        info = self.tensors.get(name)
        if info is None:
            raise KeyError(f"there is no tensor named {name!r}")
        kind = info.kind
        if kind.dtype is not None:
            return self._over(info, kind.dtype, info.shape)
        blocks = (*info.shape[:-1], info.shape[-1] // kind.numbers, kind.nbytes)
        return PackedWeight(self._over(info, memory.BY_NAME["uint8"], blocks), kind.name)

    def get_tensor(self, name: str) -> Any:
        """The tensor of this name; packed numbers are decoded to float32."""
        found = self.get_packed(name)
        return found.dequantize() if isinstance(found, PackedWeight) else found


def open_file(path: Any) -> GGUFFile:
    """Open a GGUF file: see `GGUFFile`."""
    return GGUFFile(path)


def load_file(path: Any, *, packed: bool = False) -> dict[str, Any]:
    """All tensors of a file by name, over the mapped file.  `packed`: as `PackedWeight`, else decoded to float32."""
    with open_file(path) as file:
        return {name: file.get_packed(name) if packed else file.get_tensor(name) for name in file}
