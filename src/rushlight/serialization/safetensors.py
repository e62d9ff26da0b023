"""Files in the safetensors format: tensors and nothing else, which are mapped and run no code.  They need the extra
`safetensors`.

What `safetensors.torch` offers, for rushlight's tensors; under `python -m rushlight` that module itself works too.  The
library writes the files and checks them; tensors that are read are views of the mapped file, and changing them does not
change it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule, trace_marks
from rushlight.serialization import memory
from rushlight.serialization.replacing import replacing_path
from rushlight.storage import UntypedStorage

library: Any = LazyModule("safetensors", extra="safetensors")

__all__ = ["load", "load_file", "safe_open", "save", "save_file"]

# The format's names of dtypes.
_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32", "I64": "int64", "U64": "uint64",
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu",
    "F4": "float4_e2m1fn_x2",
}  # fmt: skip
_PACKED = "F4"  # two numbers in a byte: the format counts the numbers, a tensor the bytes


# ***** writing *****


def save_file(tensors: dict[str, Any], filename: Any, metadata: dict[str, str] | None = None) -> None:
    """Write tensors by name, and texts beside them.

    Every tensor must be dense, contiguous and have memory of its own: ValueError and RuntimeError say which are not.
    The file appears whole or not at all.
    """
    specs = _specs(tensors)
    with replacing_path(filename) as temporary:
        library.serialize_file(specs, temporary, metadata=metadata)


@trace_marks.changes_later_calls
def save(tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    """The bytes that `save_file` would write."""
    return bytes(library.serialize(_specs(tensors), metadata=metadata))


def _specs(tensors: Any) -> dict[str, Any]:
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    _check_memory(tensors)
    found = {}
    for name, x in tensors.items():
        if not x.is_contiguous():
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. Call `.contiguous()` on it before saving."
            )
        if x.dtype.name not in _DTYPES.values():
            raise ValueError(f"the safetensors format has no {x.dtype}, the dtype of {name!r}")
        found[name] = library.TensorSpec(
            dtype=x.dtype.name, shape=tuple(x.shape), data_ptr=x.data_ptr(), data_len=x.nbytes
        )
    return found


def _check_memory(tensors: dict[str, Any]) -> None:
    owners: dict[int, list[tuple[int, int, str]]] = {}
    for name, x in tensors.items():
        if not isinstance(x, rushlight.Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(x)}")
        if x.layout is not rushlight.strided or x.is_nested or x.is_quantized:
            raise ValueError(
                f"You are trying to save a sparse, nested or quantized tensor: `{name}` which the format does not have."
            )
        if x.is_meta:
            raise RuntimeError(f"{name!r} is on the meta device and has no bytes to save")
        if x.is_conj() or x.is_neg():
            raise ValueError(f"{name!r} is a conjugated or negated view; save `resolve_conj().resolve_neg()` of it")
        if x.numel():
            owners.setdefault(memory.identity(memory.storage_of(x)), []).append(
                (x.data_ptr(), x.data_ptr() + x.nbytes, name)
            )
    for regions in owners.values():
        regions.sort()
        for (_, end, first), (start, _, second) in pairwise(regions):
            if start < end:
                raise RuntimeError(
                    "Some tensors share memory, this will lead to duplicate memory on disk and potential differences when loading them "
                    f"again: [{{{first!r}, {second!r}}}]. Save one of them, or copies."
                )


# ***** reading *****


class safe_open:
    """A file of tensors, opened to read some of them.

    `keys`, `metadata`, `get_tensor(name)`, `get_slice(name)`, which is indexed like a tensor.  It is closed by the end
    of a `with` block.  `library.SafetensorError` for a damaged file.
    """

    def __init__(self, filename: Any, framework: str = "pt", device: Any = "cpu") -> None:
        if framework not in ("pt", "torch", "pytorch"):
            raise ValueError(f"rushlight opens safetensors files for framework 'pt', found {framework!r}")
        self._device = rushlight.device(device) if not isinstance(device, int) else rushlight.device("cuda", device)
        if self._device.type not in ("cpu", "meta"):
            raise RuntimeError(f"rushlight computes on the CPU: tensors cannot be loaded to {self._device}")
        self._file = library.safe_open(os.fspath(filename), framework="numpy")
        size = os.path.getsize(filename)
        with open(filename, "rb") as file:
            self._start = 8 + int.from_bytes(file.read(8), "little")
        self._bytes = UntypedStorage.from_file(filename, False, size)
        self._places: dict[str, tuple[int, Any, tuple[int, ...]]] = {}
        place = self._start
        # The library has checked that tensors lie one behind the other, without gaps.
        for name in self._file.offset_keys():
            dtype, shape = _form(self._file.get_slice(name))
            self._places[name] = (place, dtype, shape)
            place += dtype.itemsize * _count(shape)
        if place != size:
            raise library.SafetensorError(
                f"{filename}: the file changed while it was opened: {place} bytes announced, {size} found"
            )

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *exc: object) -> None:
        self._places = {}
        self._file.__exit__(*exc)

    def keys(self) -> list[str]:
        """The names of the tensors."""
        return sorted(self._places)

    def offset_keys(self) -> list[str]:
        """The names of the tensors in the order of the file."""
        return list(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def metadata(self) -> dict[str, str] | None:
        """The texts beside the tensors; None where there are none."""
        return self._file.metadata()

    def get_tensor(self, name: str) -> Any:
        """The tensor of this name."""
        if name not in self._places:
            raise library.SafetensorError(f"File does not contain tensor {name}")
        place, dtype, shape = self._places[name]
        count = _count(shape)
        if self._device.type == "meta":
            return rushlight.empty(shape, dtype=dtype, device="meta")
        storage = self._bytes[place : place + count * dtype.itemsize]
        if place % dtype.itemsize:
            storage = storage.clone()
        return memory.tensor_over(memory.native(storage), dtype, 0, (count,), (1,)).view(shape)

    def get_slice(self, name: str) -> _Slice:
        """The tensor of this name, to be indexed."""
        return _Slice(self.get_tensor(name), self._file.get_slice(name).get_dtype())


class _Slice:
    """A tensor in a file: its shape, its dtype's name in the format, and its elements by index."""

    def __init__(self, tensor: Any, dtype: str) -> None:
        self._tensor, self._dtype = tensor, dtype

    def get_shape(self) -> list[int]:
        """Sizes."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """The format's name of the dtype."""
        return self._dtype

    def __getitem__(self, index: Any) -> Any:
        return self._tensor[index]


def _form(part: Any) -> tuple[Any, tuple[int, ...]]:
    name, shape = part.get_dtype(), tuple(part.get_shape())
    if name not in _DTYPES:
        raise NotImplementedError(f"rushlight has no dtype for {name} of the safetensors format")
    if name == _PACKED:
        shape = (*shape[:-1], shape[-1] // 2)
    return memory.BY_NAME[_DTYPES[name]], shape


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def load_file(filename: Any, device: Any = "cpu") -> dict[str, Any]:
    """All tensors of a file by name, over the mapped file."""
    with safe_open(filename, device=device) as file:
        return {name: file.get_tensor(name) for name in file.offset_keys()}


@trace_marks.changes_later_calls
def load(data: bytes) -> dict[str, Any]:
    """The tensors in what `save` gave."""
    found = {}
    for name, part in library.deserialize(data):
        dtype, shape = _form(_Part(part))
        held = part["data"]
        storage = memory.allocate(len(held))
        if len(held):
            memory.bytes_of(storage)[:] = held
        found[name] = memory.tensor_over(memory.native(storage), dtype, 0, (_count(shape),), (1,)).view(shape)
    return found


class _Part:
    def __init__(self, part: dict[str, Any]) -> None:
        self.get_dtype, self.get_shape = lambda: part["dtype"], lambda: part["shape"]


def load_for(path: str, map_location: Any) -> dict[str, Any]:
    """Load a path that ends in `.safetensors`, for `rushlight.load`."""
    if map_location is not None and not isinstance(map_location, (str, bytes, rushlight.device)):
        raise RuntimeError(
            f"Loading safetensors file with {'dict' if isinstance(map_location, dict) else 'callable'} map_location is not supported. "
            "Use a device string or torch.device instead."
        )
    try:
        return load_file(path, "cpu" if map_location is None else str(map_location))
    except ImportError as error:
        raise RuntimeError(
            f"Attempting to load a safetensors file but safetensors is not installed. {error}"
        ) from error
