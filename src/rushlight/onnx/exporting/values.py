"""Parts of an ONNX graph under construction: values, nodes, graphs; and the numbers of ONNX's element types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight.onnx.errors import OnnxExporterError

__all__ = [
    "Graph",
    "Node",
    "OnnxTensor",
    "Value",
    "dims_text",
    "element_type",
    "import_onnx",
    "numpy_dtype",
    "shape_of",
]

np: Any = LazyModule("numpy")

# TensorProto.DataType by dtype.
_ELEMENT_TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11, "uint32": 12,
    "uint64": 13, "complex64": 14, "complex128": 15, "bfloat16": 16, "float8_e4m3fn": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20,
}  # fmt: skip


def import_onnx() -> Any:
    """The package `onnx`; ImportError that names the extra where it is not installed."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError("torch.onnx needs the package onnx: pip install 'rushlight[onnx]'") from error
    return onnx


def element_type(dtype: rushlight.dtype) -> int:
    """ONNX's number of an element type; OnnxExporterError for a dtype that ONNX has not."""
    number = _ELEMENT_TYPES.get(str(dtype).rpartition(".")[2])
    if number is None:
        raise OnnxExporterError(f"ONNX has no element type for {dtype}: convert the tensor before it is exported")
    return number


def numpy_dtype(dtype: rushlight.dtype) -> Any:
    """NumPy's dtype; that of the package ml_dtypes for floats which NumPy has not."""
    name = str(dtype).rpartition(".")[2]
    if name.startswith(("bfloat16", "float8")):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def dims_text(size: Any) -> int | str:
    """A size as ONNX has it: a number, or the formula of a symbolic size."""
    return size if type(size) is int else str(size)


def shape_of(tensor: Any) -> tuple[int | str, ...]:
    """The sizes of a tensor, formulas in the place of symbolic ones."""
    return tuple([dims_text(size) for size in tensor.shape])


class OnnxTensor:
    """A constant of the graph: a tensor of the module, or an array."""

    __slots__ = ("array", "tensor")

    def __init__(self, tensor: Any = None, array: Any = None) -> None:
        self.tensor, self.array = tensor, array

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return int(self.array.nbytes if self.tensor is None else self.tensor.numel() * self.tensor.dtype.itemsize)

    def numpy(self) -> Any:
        """The elements as an array."""
        if self.array is not None:
            return self.array
        tensor = self.tensor.detach().cpu()
        wanted = numpy_dtype(tensor.dtype)
        if str(tensor.dtype).rpartition(".")[2] == wanted.name and wanted.kind not in "V":
            return np.ascontiguousarray(tensor.numpy()).reshape(tuple(tensor.shape))
        bits = {1: rushlight.uint8, 2: rushlight.int16}[tensor.dtype.itemsize]
        return tensor.contiguous().view(bits).numpy().view(wanted)


class Value:
    """An edge of the graph: a dtype, sizes where they are known, and the elements of small constants.

    `number` marks what a program has as a Python number: a vector of one element here.
    """

    __slots__ = ("const", "dtype", "index", "name", "number", "parts", "producer", "shape")

    def __init__(
        self, name: str, dtype: Any, shape: tuple[int | str, ...] | None = None, const: Any = None, number: bool = False
    ) -> None:
        self.name, self.dtype, self.shape, self.const, self.number = name, dtype, shape, const, number
        self.producer: Node | None = None
        self.index = 0
        self.parts: Any = None  # what a vector of sizes was put together from

    @property
    def ndim(self) -> int:
        """Number of dims; OnnxExporterError where they are not known."""
        if self.shape is None:
            raise OnnxExporterError(f"the number of dims of {self.name} is not known")
        return len(self.shape)

    def __repr__(self) -> str:
        return f"%{self.name}: {self.dtype}{list(self.shape) if self.shape is not None else ''}"


@dataclass(eq=False)
class Node:
    """A call of an ONNX operator; attributes are Python values, arrays, and graphs."""

    op: str
    domain: str
    inputs: list[Value | None]
    outputs: list[Value]
    attrs: dict[str, Any]
    source: Any = None  # the node of the exported program
    name: str = ""


@dataclass(eq=False)
class Graph:
    """Nodes in order, and what goes in and out."""

    nodes: list[Node] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    constants: dict[Value, OnnxTensor] = field(default_factory=dict)

    def used(self) -> set[Value]:
        """Values that nodes of this graph and of graphs in it read, and its results."""
        found: set[Value] = set(self.outputs)
        for node in self.nodes:
            found.update(v for v in node.inputs if v is not None)
            for attr in node.attrs.values():
                if isinstance(attr, Graph):
                    found |= attr.used()
        return found


def only(values: Sequence[Value] | Value) -> Value:
    """The single result of a call."""
    return values if isinstance(values, Value) else values[0]
