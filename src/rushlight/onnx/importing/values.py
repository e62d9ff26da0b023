"""Values that flow through a graph, and their forms in files and in NumPy.

| ONNX | here |
| --- | --- |
| tensor | `Tensor` |
| tensor of 2- or 4-bit elements | `Narrow`: a tensor of int8, uint8 or float32, and the name of the element type |
| small tensor of integers or floats that is known without computing (sizes, constants) | `Host`: Python numbers |
| tensor of strings | NumPy array of objects |
| sequence | list |
| optional without a value, omitted input | None |
| map | dict |
"""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight._interface.base import LazyModule, numpy
from rushlight.onnx.importing.errors import InvalidModelError, UnsupportedOperatorError

onnx: Any = LazyModule("onnx", extra="onnx")
ml_dtypes: Any = LazyModule("ml_dtypes", extra="onnx")

__all__ = [
    "NARROW",
    "Host",
    "Narrow",
    "dtype_of",
    "element_type",
    "from_numpy",
    "from_proto",
    "map_tensors",
    "tensor",
    "to_numpy",
]

# Element types by their number in TensorProto.DataType: name in ONNX, dtype here.
_TYPES = {
    1: ("FLOAT", "float32"), 2: ("UINT8", "uint8"), 3: ("INT8", "int8"), 4: ("UINT16", "uint16"), 5: ("INT16", "int16"), 6: ("INT32", "int32"),
    7: ("INT64", "int64"), 9: ("BOOL", "bool"), 10: ("FLOAT16", "float16"), 11: ("DOUBLE", "float64"), 12: ("UINT32", "uint32"), 13: ("UINT64", "uint64"),
    14: ("COMPLEX64", "complex64"), 15: ("COMPLEX128", "complex128"), 16: ("BFLOAT16", "bfloat16"), 17: ("FLOAT8E4M3FN", "float8_e4m3fn"),
    18: ("FLOAT8E4M3FNUZ", "float8_e4m3fnuz"), 19: ("FLOAT8E5M2", "float8_e5m2"), 20: ("FLOAT8E5M2FNUZ", "float8_e5m2fnuz"),
    24: ("FLOAT8E8M0", "float8_e8m0fnu"),
}  # fmt: skip
DTYPES = {number: getattr(torch, dtype) for number, (_, dtype) in _TYPES.items()}
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
STRING = 8
# Types of less than a byte: number -> (name in ml_dtypes, dtype that holds the elements).
NARROW = {
    21: ("uint4", torch.uint8), 22: ("int4", torch.int8), 23: ("float4_e2m1fn", torch.float32), 25: ("uint2", torch.uint8), 26: ("int2", torch.int8),
}  # fmt: skip
# Elements that NumPy knows through ml_dtypes alone pass as unsigned integers of the same width.
_AS_BITS = {
    "bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e4m3fnuz": "uint8", "float8_e5m2": "uint8", "float8_e5m2fnuz": "uint8", "float8_e8m0fnu": "uint8",
}  # fmt: skip
# Tensors of up to this many elements are kept as Python numbers beside.
_HOST_ELEMENTS = 1024


class Narrow:
    """A tensor of elements of less than a byte, one element in each of `data`."""

    def __init__(self, data: Any, number: int) -> None:
        self.data, self.number = data, number

    @property
    def shape(self) -> Any:
        return self.data.shape


class Host:
    """A tensor with at most one dim whose elements are Python numbers: shapes and what is computed from them."""

    __slots__ = ("_tensor", "dtype", "items", "scalar")

    def __init__(self, items: list[Any], scalar: bool = False, dtype: Any = torch.int64, made: Any = None) -> None:
        self.items, self.scalar, self.dtype, self._tensor = items, scalar, dtype, made

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.scalar else (len(self.items),)

    def plain(self) -> Any:
        """A number, or a list of numbers."""
        return self.items[0] if self.scalar else self.items

    def tensor(self) -> Any:
        """The tensor; constants were made with theirs."""
        return torch.tensor(self.plain(), dtype=self.dtype) if self._tensor is None else self._tensor


def tensor(value: Any) -> Any:
    """A value as an operator over tensors takes it."""
    return value.tensor() if isinstance(value, Host) else value


def map_tensors(function: Any, value: Any) -> Any:
    """`function` of every tensor in a value."""
    if isinstance(value, list):
        return [map_tensors(function, item) for item in value]
    return function(value) if isinstance(value, (torch.Tensor, Host)) else value


def dtype_of(number: int) -> Any:
    """The dtype for an element type of ONNX that has one of its own here."""
    if number not in DTYPES:
        raise UnsupportedOperatorError(f"element type {number} is not supported here")
    return DTYPES[number]


def element_type(value: Any) -> int:
    """The number in TensorProto.DataType of a value's elements."""
    if isinstance(value, Narrow):
        return value.number
    if isinstance(value, numpy.ndarray):
        return STRING
    return NUMBERS[value.dtype]


# ***** NumPy *****


def from_numpy(array: Any) -> Any:
    """A value for what callers give: arrays, tensors, numbers, lists of them, None."""
    if array is None or isinstance(array, (torch.Tensor, Narrow, Host, dict)):
        return array
    if isinstance(array, (list, tuple)):
        return [from_numpy(item) for item in array]
    if isinstance(array, str):
        return numpy.array(array, dtype=object)
    array = numpy.asarray(array)
    name = array.dtype.name
    if array.dtype.kind in "OUS" or name.startswith("StringDType"):
        return array.astype(object)
    for number, (narrow, holder) in NARROW.items():
        if name == narrow:
            return Narrow(torch.from_numpy(array.astype(str(holder).removeprefix("torch."))), number)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if name in _AS_BITS:
        bits = numpy.array(array, order="C").view(_AS_BITS[name])
        return torch.from_numpy(bits.reshape(array.shape)).view(getattr(torch, name))
    if not hasattr(torch, name):
        raise TypeError(f"arrays of {name} are not supported")
    return torch.from_numpy(numpy.array(array, order="C"))


def to_numpy(value: Any) -> Any:
    """Results for callers: arrays, lists of arrays, None."""
    if isinstance(value, (list, tuple)):
        return [to_numpy(item) for item in value]
    if isinstance(value, Narrow):
        return value.data.detach().numpy().astype(getattr(ml_dtypes, NARROW[value.number][0]))
    value = tensor(value)
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    name = str(value.dtype).removeprefix("torch.")
    if name in _AS_BITS:
        bits = value.contiguous().view(getattr(torch, _AS_BITS[name])).numpy()
        return bits.view(getattr(ml_dtypes, name))
    return value.resolve_conj().numpy() if value.is_complex() else value.numpy()


# ***** protobuf *****


def check_dims(proto: Any, what: str) -> int:
    """The number of elements that a TensorProto's dims say."""
    count = 1
    for size in proto.dims:
        if size < 0:
            raise InvalidModelError(f"{what} has a negative dim: {list(proto.dims)}")
        count *= size
    if count >= 2**48:
        raise InvalidModelError(f"{what} says that it has {count} elements")
    return count


_BITS = {
    3: 8,
    2: 8,
    9: 8,
    4: 16,
    5: 16,
    10: 16,
    16: 16,
    1: 32,
    6: 32,
    12: 32,
    7: 64,
    11: 64,
    13: 64,
    14: 64,
    15: 128,
    25: 2,
    26: 2,
}


def byte_count(number: int, elements: int) -> int:
    """How many bytes elements of a type take in a file."""
    bits = _BITS.get(number, 4 if number in (21, 22, 23) else 8)
    return (elements * bits + 7) // 8


def from_proto(proto: Any, what: str = "") -> Any:
    """The value of a TensorProto, whose data is checked against its type and dims first."""
    what = what or f"tensor {proto.name!r}"
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        raise InvalidModelError(f"the data of {what} lies in a file, which is not read from here")
    elements = check_dims(proto, what)
    if proto.data_type != STRING and proto.data_type not in DTYPES and proto.data_type not in NARROW:
        raise InvalidModelError(f"{what} has the unknown element type {proto.data_type}")
    if proto.HasField("raw_data") and len(proto.raw_data) != byte_count(proto.data_type, elements):
        raise InvalidModelError(f"{what} has {len(proto.raw_data)} bytes for dims {list(proto.dims)}")
    try:
        array = onnx.numpy_helper.to_array(proto)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InvalidModelError(f"{what} cannot be read: {error}") from error
    if proto.data_type == STRING:
        texts = [item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else item for item in array.ravel()]
        result = numpy.empty(len(texts), dtype=object)
        result[:] = texts
        return result.reshape(tuple(proto.dims))
    if array.size != elements:
        raise InvalidModelError(f"{what} has {array.size} elements for dims {list(proto.dims)}")
    return constant(from_numpy(array))


def constant(value: Any) -> Any:
    """A constant, as Python numbers beside the tensor where it is small."""
    small = isinstance(value, torch.Tensor) and value.ndim <= 1 and value.numel() <= _HOST_ELEMENTS
    if small and value.dtype in (torch.int64, torch.int32, torch.float32, torch.bool):
        plain = value.tolist()
        return Host(plain if value.ndim else [plain], not value.ndim, value.dtype, value)
    return value
