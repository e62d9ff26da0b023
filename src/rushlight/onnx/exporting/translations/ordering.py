"""Sorting, the greatest elements, distinct elements."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.values import Value

INT64 = rushlight.int64
_SMALL = frozenset((rushlight.bool, rushlight.int8, rushlight.uint8, rushlight.int16))


def _ordered(call: Call, x: Value, count: Any, dim: int, largest: bool, ordered: bool = True) -> list[Value]:
    """TopK; of elements that runtimes do not order, as int64."""
    dtype = x.dtype
    if not x.ndim:
        return [x, call.const(0, INT64)]
    if dtype in _SMALL:
        x = call.cast(x, INT64)
    shape = call.results[0][1]
    found = call.ops(
        "TopK",
        x,
        call.vector(count),
        results=[(x.dtype, shape), (INT64, shape)],
        axis=dim,
        largest=int(largest),
        sorted=int(ordered),
    )
    return [call.cast(found[0], dtype), found[1]]


@translates("aten::topk")
def topk(call: Call, x: Value, k: Any, dim: int = -1, largest: bool = True, ordered: bool = True) -> list[Value]:
    return _ordered(call, x, k, dim, largest, ordered)


@translates("aten::sort")
def sort(call: Call, x: Value, dim: int = -1, descending: bool = False) -> list[Value]:
    return _ordered(call, x, call.dim(x, dim) if x.ndim else 1, dim, descending)


@translates("aten::sort.stable")
def sort_stable(
    call: Call, x: Value, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> list[Value]:
    return _ordered(call, x, call.dim(x, dim) if x.ndim else 1, dim, descending)


@translates("aten::argsort", "aten::argsort.stable")
def argsort(call: Call, x: Value, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Value:
    return _ordered(call, x, call.dim(x, dim) if x.ndim else 1, dim, descending)[1]


@translates("aten::msort")
def msort(call: Call, x: Value) -> Value:
    return _ordered(call, x, call.dim(x, 0) if x.ndim else 1, 0, False)[0]


@translates("aten::kthvalue")
def kthvalue(call: Call, x: Value, k: Any, dim: int = -1, keepdim: bool = False) -> list[Value]:
    if not x.ndim:
        return [x, call.const(0, INT64)]
    values, places = call.ops(
        "TopK", x, call.vector(k), results=[(x.dtype, x.shape), (INT64, x.shape)], axis=dim, largest=0, sorted=1
    )
    last = call.ints([-1]) if keepdim else call.const(-1, INT64)
    shape = call.results[0][1]
    return [call.op("Gather", t, last, axis=dim, shape=shape) for t in (values, places)]


@translates("aten::median", "aten::median.dim")
def median(call: Call, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    if dim is None:
        flat = call.reshape(x, [-1], shape=("n",))
        count = call.product(call.dims(x))
        if not isinstance(count, int):
            raise call.refuse("a median over symbolic sizes")
        values = call.ops(
            "TopK", flat, call.ints([count]), results=[(x.dtype, ("n",)), (INT64, ("n",))], axis=0, largest=0, sorted=1
        )[0]
        return call.op("Gather", values, call.const((count - 1) // 2, INT64), axis=0, shape=())
    size = call.dim(x, dim) if x.ndim else 1
    if not isinstance(size, int):
        raise call.refuse("a median over a symbolic size")
    return kthvalue(call, x, (size - 1) // 2 + 1, dim, keepdim)


def _unique(call: Call, x: Value, dim: int | None, ordered: bool) -> list[Value]:
    found = call.ops("Unique", x, results=[(x.dtype, None), *[(INT64, ("n",))] * 3], axis=dim, sorted=int(ordered))
    return [found[0], found[2], found[3]]


@translates("aten::_unique", "aten::_unique2", "aten::unique_dim")
def unique(call: Call, x: Value, *args: Any) -> list[Value]:
    dim = args[0] if call.name == "aten::unique_dim" else None
    values, inverse, counts = _unique(call, x, dim, True)
    values.shape = call.shape
    if dim is None:
        inverse = call.reshape(inverse, call.shape_vector(x), shape=x.shape)
    return [values, inverse, counts]
