"""Draws: runtimes have generators of their own, so numbers differ from those of the program."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.values import Value, element_type


def _drawn(call: Call, kind: str, sizes: Any, dtype: Any, **attrs: Any) -> Value:
    """A tensor of draws; of symbolic sizes by way of a tensor that has them."""
    known = isinstance(sizes, list) and all(isinstance(s, int) for s in sizes)
    if known:
        return call.op(kind, shape_=list(sizes), dtype_=element_type(dtype), dtype=dtype, shape=call.shape, **attrs)
    like = call.full(sizes, 0, dtype, shape=call.shape)
    return call.op(f"{kind}Like", like, dtype=dtype, shape=call.shape, **attrs)


@translates("aten::rand", "aten::rand_like")
def rand(call: Call, given: Any, *, dtype: Any = None) -> Value:
    return _drawn(call, "RandomUniform", _sizes(call, given), call.dtype)


@translates("aten::randn", "aten::randn_like")
def randn(call: Call, given: Any, *, dtype: Any = None) -> Value:
    return _drawn(call, "RandomNormal", _sizes(call, given), call.dtype)


def _sizes(call: Call, given: Any) -> Any:
    return call.shape_vector(given) if isinstance(given, Value) else given


@translates("aten::randint", "aten::randint.low", "aten::randint_like", "aten::randint_like.low_dtype")
def randint(call: Call, *args: Any, dtype: Any = None) -> Value:
    like = isinstance(args[0], Value)
    given = args[0] if like else args[-1]
    bounds = args[1:] if like else args[:-1]
    low, high = (0, bounds[0]) if len(bounds) == 1 else bounds
    made = _drawn(call, "RandomUniform", _sizes(call, given), rushlight.float32)
    gap = call.scalar(high, rushlight.float32), call.scalar(low, rushlight.float32)
    scaled = call.op("Add", call.op("Mul", made, call.op("Sub", *gap)), gap[1], shape=call.shape)
    return call.cast(call.op("Floor", scaled, shape=call.shape), call.dtype)


@translates("aten::bernoulli", "aten::bernoulli.p")
def bernoulli(call: Call, x: Value, p: Any = None) -> Value:
    chances = x if p is None else call.full(call.dims(x), p, x.dtype, shape=x.shape)
    return call.op("Bernoulli", chances, shape=x.shape)


@translates("aten::multinomial")
def multinomial(call: Call, x: Value, count: int, replacement: bool = False) -> Value:
    if not replacement and count != 1:
        raise call.refuse("drawing several without replacement")
    rows = call.op("Log", call.unsqueeze(x, [0]) if x.ndim == 1 else x)
    made = call.op("Multinomial", rows, sample_size=count, dtype_=element_type(rushlight.int64), dtype=rushlight.int64)
    return call.squeeze(_ranked(made), [0]) if x.ndim == 1 else made


def _ranked(x: Value) -> Value:
    x.shape = (1, "n")
    return x


@translates("aten::normal_functional", "aten::normal.float_float")
def normal(call: Call, first: Any, second: Any = 0.0, third: Any = 1.0) -> Value:
    if isinstance(first, Value):
        return _drawn(
            call, "RandomNormal", call.shape_vector(first), call.dtype, mean=float(second), scale=float(third)
        )
    return _drawn(call, "RandomNormal", third, call.dtype, mean=float(first), scale=float(second))


@translates("aten::normal.Tensor_Tensor", "aten::normal.Tensor_float", "aten::normal.float_Tensor")
def normal_tensors(call: Call, mean: Any, std: Any) -> Value:
    like = mean if isinstance(mean, Value) else std
    draws = _drawn(call, "RandomNormal", call.shape_vector(like), call.dtype)
    return call.out("Add", call.scalar(mean, call.dtype), call.op("Mul", draws, call.scalar(std, call.dtype)))
