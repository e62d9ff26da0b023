"""New tensors: filled, counted, triangular."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.values import Value, numpy_dtype

np: Any = LazyModule("numpy")


@translates("aten::full", "aten::new_full")
def full(call: Call, first: Any, second: Any, third: Any = None, *, dtype: Any = None) -> Value:
    sizes, number = (second, third) if call.name == "aten::new_full" else (first, second)
    return call.full(sizes, number, call.dtype, shape=call.shape)


@translates("aten::zeros", "aten::new_zeros", "aten::empty.memory_format", "aten::new_empty", "aten::empty_strided", "aten::new_empty_strided",
            "aten::empty_permuted")  # fmt: skip
def zeros(call: Call, first: Any, *rest: Any, dtype: Any = None) -> Value:
    return call.full(first if isinstance(first, list) else rest[0], 0, call.dtype, shape=call.shape)


@translates("aten::ones", "aten::new_ones")
def ones(call: Call, first: Any, *rest: Any, dtype: Any = None) -> Value:
    return call.full(first if isinstance(first, list) else rest[0], 1, call.dtype, shape=call.shape)


def _like(call: Call, x: Value, number: Any) -> Value:
    if all(type(s) is int for s in call.shape or ()):
        return call.full(list(call.shape or ()), number, call.dtype, shape=call.shape)
    return call.full(call.shape_vector(x), number, call.dtype, shape=call.shape)


@translates("aten::zeros_like", "aten::empty_like")
def zeros_like(call: Call, x: Value, *, dtype: Any = None) -> Value:
    return _like(call, x, 0)


@translates("aten::ones_like")
def ones_like(call: Call, x: Value, *, dtype: Any = None) -> Value:
    return _like(call, x, 1)


@translates("aten::full_like")
def full_like(call: Call, x: Value, number: Any, *, dtype: Any = None) -> Value:
    return _like(call, x, number)


@translates("aten::fill.Scalar", "aten::fill.Tensor")
def fill(call: Call, x: Value, number: Any) -> Value:
    return _like(call, x, number)


@translates("aten::copy")
def copy(call: Call, x: Value, source: Value, *_: Any) -> Value:
    source = call.cast(source, call.dtype)
    if source.shape == x.shape:
        return source
    return call.expand(source, call.shape_vector(x), shape=call.shape)


@translates("aten::arange", "aten::arange.start", "aten::arange.start_step")
def arange(call: Call, first: Any, second: Any = None, step: Any = 1, *, dtype: Any = None) -> Value:
    start, end = (0, first) if second is None else (first, second)
    known = not any(isinstance(v, Value) for v in (start, end, step))
    if known and call.shape and type(call.shape[0]) is int and call.shape[0] <= 4096:
        count = np.arange(call.shape[0])
        whole = all(isinstance(v, int) for v in (start, end, step))
        values = start + count * step if whole else start + count.astype(np.float64) * step
        return call.array(np.asarray(values).astype(numpy_dtype(call.dtype)), call.dtype)
    compute = call.dtype
    if call.dtype not in (rushlight.float32, rushlight.float64, rushlight.int16, rushlight.int32, rushlight.int64):
        compute = rushlight.float32 if call.dtype.is_floating_point else rushlight.int64
    made = call.op("Range", *[call.scalar(v, compute) for v in (start, end, step)], shape=call.shape)
    return call.cast(made, call.dtype)


@translates("aten::linspace")
def linspace(call: Call, start: Any, end: Any, steps: Any, *, dtype: Any = None) -> Value:
    if isinstance(steps, int) and not isinstance(start, Value) and not isinstance(end, Value):
        return call.array(np.linspace(start, end, steps).astype(numpy_dtype(call.dtype)), call.dtype)
    count = call.scalar(steps, rushlight.int64)
    places = call.cast(
        call.op("Range", call.const(0, rushlight.int64), count, call.const(1, rushlight.int64), shape=call.shape),
        call.dtype,
    )
    first, last = call.scalar(start, call.dtype), call.scalar(end, call.dtype)
    gaps = call.op(
        "Max", call.op("Sub", call.cast(count, call.dtype), call.const(1, call.dtype)), call.const(1, call.dtype)
    )
    return call.out("Add", first, call.op("Mul", places, call.op("Div", call.op("Sub", last, first), gaps)))


@translates("aten::eye", "aten::eye.m")
def eye(call: Call, n: Any, m: Any = None, *, dtype: Any = None) -> Value:
    if not all(type(s) is int for s in call.shape or ()):
        rows, columns = [
            call.op(
                "Range", call.const(0, rushlight.int64), call.scalar(s, rushlight.int64), call.const(1, rushlight.int64)
            )
            for s in (n, n if m is None else m)
        ]
        return call.cast(call.op("Equal", call.unsqueeze(rows, [1]), columns, shape=call.shape), call.dtype)
    return call.array(np.eye(*call.shape).astype(numpy_dtype(call.dtype)), call.dtype)


@translates("aten::tril", "aten::triu")
def triangle(call: Call, x: Value, diagonal: Any = 0) -> Value:
    upper = int("triu" in call.name)
    offset = None if not isinstance(diagonal, Value) and diagonal == 0 else call.scalar(diagonal, rushlight.int64)
    if x.dtype == rushlight.bool:  # runtimes know Trilu of numbers
        return call.cast(call.op("Trilu", call.cast(x, rushlight.int64), offset, upper=upper, shape=x.shape), x.dtype)
    return call.out("Trilu", x, offset, upper=upper)


@translates("aten::tril_indices", "aten::triu_indices")
def triangle_indices(call: Call, rows: int, columns: int, offset: int = 0, *, dtype: Any = None) -> Value:
    made = (np.tril_indices if "tril" in call.name else np.triu_indices)(rows, offset, columns)
    return call.array(np.stack(made).astype(numpy_dtype(call.dtype)), call.dtype)


def _window(name: str, *terms: float) -> None:
    @translates(f"aten::{name}_window", f"aten::{name}_window.periodic")
    def translate(call: Call, length: int, periodic: bool = True, *_: Any, dtype: Any = None) -> Value:
        count = np.arange(length)
        angle = 2 * math.pi * count / max(length if periodic else length - 1, 1)
        made = sum(t * np.cos(i * angle) for i, t in enumerate(terms)) if length > 1 else np.ones(length)
        return call.array(np.asarray(made).astype(numpy_dtype(call.dtype)), call.dtype)


_window("hann", 0.5, -0.5)
_window("hamming", 0.54, -0.46)
_window("blackman", 0.42, -0.5, 0.08)


@translates("aten::one_hot")
def one_hot(call: Call, x: Value, classes: int = -1) -> Value:
    if classes == -1:
        raise call.refuse("num_classes=-1", "give the number of classes")
    values = call.array(_pair(), rushlight.int64)
    return call.out("OneHot", x, call.const(classes, rushlight.int64), values, axis=-1)


def _pair() -> Any:
    return np.array([0, 1], np.int64)
