"""Numbers of tensors: their sizes, and elements that become Python numbers."""

from __future__ import annotations

from typing import Any

from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.values import Value


@translates("aten::sym_size.int", "aten::size.int")
def sym_size(call: Call, x: Value, dim: int) -> Any:
    return call.dim(x, dim)


@translates("aten::sym_numel", "aten::numel")
def sym_numel(call: Call, x: Value) -> Any:
    if all(type(s) is int for s in x.shape or ("",)):
        return call.product(call.dims(x))
    made = call.op("Size", x, shape=())
    return call.number("Reshape", made, call.ints([1]))


@translates("aten::sym_stride.int")
def sym_stride(call: Call, x: Value, dim: int) -> Any:
    """Strides of a contiguous tensor: values of ONNX have no others."""
    return call.product(call.dims(x)[dim % x.ndim + 1 :])


@translates("aten::sym_storage_offset")
def sym_storage_offset(call: Call, x: Value) -> int:
    return 0


@translates("aten::_local_scalar_dense", "aten::item")
def item(call: Call, x: Value) -> Value:
    """The element of a tensor with one element, as a number."""
    return call.number("Reshape", x, call.ints([1]))


@translates("aten::scalar_tensor", "aten::tensor.int", "aten::tensor.float", "aten::tensor.bool")
def scalar_tensor(call: Call, number: Any, *, dtype: Any = None) -> Value:
    return call.scalar(number, call.dtype)


@translates("aten::sym_constrain_range", "aten::sym_constrain_range_for_size", "aten::_assert_scalar", "aten::_assert_async.msg", "aten::_assert_async",
            "aten::_assert_tensor_metadata")  # fmt: skip
def checked(call: Call, *_: Any, min: Any = None, max: Any = None, dtype: Any = None) -> None:
    """Conditions on a run are not exported."""
