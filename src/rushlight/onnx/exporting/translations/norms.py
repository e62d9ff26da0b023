"""Normalisations, softmax, dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.translations.reductions import moments
from rushlight.onnx.exporting.values import Value


@translates("aten::softmax.int", "aten::_softmax", "aten::special_softmax", "aten::_safe_softmax")
def softmax(call: Call, x: Value, dim: int, *_: Any, dtype: Any = None) -> Value:
    return _soft(call, "Softmax", x, dim)


@translates("aten::log_softmax.int", "aten::_log_softmax", "aten::special_log_softmax")
def log_softmax(call: Call, x: Value, dim: int, *_: Any, dtype: Any = None) -> Value:
    return _soft(call, "LogSoftmax", x, dim)


def _soft(call: Call, kind: str, x: Value, dim: int) -> Value:
    x = call.cast(x, call.dtype)
    if not x.ndim:
        return call.reshape(call.op(kind, call.reshape(x, [1]), axis=0), [])
    return call.out(kind, x, axis=dim)


@translates("aten::softmin")
def softmin(call: Call, x: Value, dim: int, *_: Any) -> Value:
    return _soft(call, "Softmax", call.op("Neg", x, shape=x.shape), dim)


@translates("aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout")
def dropout(call: Call, x: Value, p: float, train: bool) -> Value:
    if not train or p == 0:
        return x
    if call.name != "aten::dropout":
        raise call.refuse("train=True", "call model.eval() first")
    return call.ops(
        "Dropout", x, call.const(p, rushlight.float32), call.const(True, rushlight.bool), results=[(x.dtype, x.shape)]
    )[0]


@translates("aten::native_dropout")
def native_dropout(call: Call, x: Value, p: float, train: bool | None) -> list[Value]:
    return call.ops(
        "Dropout", x, call.const(p, rushlight.float32), call.const(bool(train), rushlight.bool),
        results=[(x.dtype, x.shape), (rushlight.bool, x.shape)],
    )  # fmt: skip


# ***** batch *****


def _channels(call: Call, x: Value, value: Value | None, start: float, dtype: Any) -> Value:
    return call.full([call.dim(x, 1)], start, dtype, shape=((x.shape or ())[1],)) if value is None else value


def _normalized(
    call: Call, x: Value, center: Value, spread: Value, parts: tuple[Value | None, Value | None], eps: float
) -> Value:
    """(x - mean) / sqrt(variance + eps) * weight + bias, over channels."""
    axes = list(range(1, x.ndim - 1))

    def wide(v: Value) -> Value:
        return call.unsqueeze(call.cast(v, x.dtype), axes)

    made = call.op("Sub", x, wide(center))
    made = call.op("Div", made, call.op("Sqrt", call.op("Add", wide(spread), call.const(eps, x.dtype))))
    weight, bias = parts
    made = made if weight is None else call.op("Mul", made, wide(weight))
    made = made if bias is None else call.op("Add", made, wide(bias))
    made.shape = x.shape
    return made


def _batch_norm(
    call: Call, x: Value, weight: Value | None, bias: Value | None, center: Value, spread: Value, eps: float
) -> Value:
    if any(v.dtype != x.dtype for v in (center, spread)) and x.dtype != rushlight.float32:
        return _normalized(call, x, center, spread, (weight, bias), eps)
    weight, bias = _channels(call, x, weight, 1, x.dtype), _channels(call, x, bias, 0, x.dtype)
    return call.op("BatchNormalization", x, weight, bias, center, spread, epsilon=float(eps), shape=x.shape)


def _batch_moments(call: Call, x: Value) -> tuple[Value, Value]:
    axes = [d for d in range(x.ndim) if d != 1]
    spread, center = moments(call, x, axes, 0, False)
    return center, spread


def _later(call: Call, x: Value, old: Value, new: Value, momentum: float, unbiased: bool) -> Value:
    """Running statistics after a batch."""
    if unbiased:
        count = call.product([call.dim(x, d) for d in range(x.ndim) if d != 1])
        n = call.scalar(count, new.dtype)
        new = call.op("Mul", new, call.op("Div", n, call.op("Sub", n, call.const(1, new.dtype))), shape=new.shape)
    keep = call.op("Mul", old, call.const(1 - momentum, old.dtype), shape=old.shape)
    return call.op(
        "Add", keep, call.op("Mul", call.cast(new, old.dtype), call.const(momentum, old.dtype)), shape=old.shape
    )


@translates("aten::batch_norm")
def batch_norm(call: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value | None, var: Value | None, training: bool,
               momentum: float, eps: float, *_: Any) -> Value:  # fmt: skip
    if training or mean is None or var is None:
        return _normalized(call, x, *_batch_moments(call, x), (weight, bias), eps)
    return _batch_norm(call, x, weight, bias, mean, var, eps)


@translates("aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::_native_batch_norm_legit")
def native_batch_norm(call: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value | None, var: Value | None, training: bool,
                      momentum: float, eps: float) -> list[Value]:  # fmt: skip
    if training or mean is None or var is None:
        return _trained(call, x, (weight, bias), eps)
    made = _batch_norm(call, x, weight, bias, mean, var, eps)
    empty = call.full([0], 0, rushlight.float32)
    return [made, empty, empty]


def _trained(call: Call, x: Value, parts: tuple[Value | None, Value | None], eps: float) -> list[Value]:
    center, spread = _batch_moments(call, x)
    rate = call.op(
        "Reciprocal", call.op("Sqrt", call.op("Add", spread, call.const(eps, spread.dtype))), shape=spread.shape
    )
    return [_normalized(call, x, center, spread, parts, eps), center, rate]


@translates("aten::_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    call: Call, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float, eps: float
) -> list[Value]:
    return _trained(call, x, (weight, bias), eps)


@translates("aten::_native_batch_norm_legit_no_training")
def batch_norm_no_training(call: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, momentum: float,
                           eps: float) -> list[Value]:  # fmt: skip
    return native_batch_norm(call, x, weight, bias, mean, var, False, momentum, eps)


@translates("aten::_native_batch_norm_legit_functional", "aten::_batch_norm_with_update_functional")
def batch_norm_functional(
    call: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, *rest: Any
) -> list[Value]:
    if isinstance(rest[0], bool):
        training, momentum, eps = rest
    else:
        training, (momentum, eps) = True, rest
    if not training:
        return [*native_batch_norm(call, x, weight, bias, mean, var, False, momentum, eps), mean, var]
    center, spread = _batch_moments(call, x)
    made = _trained(call, x, (weight, bias), eps)
    updated = [_later(call, x, mean, center, momentum, False), _later(call, x, var, spread, momentum, True)]
    if "with_update" in call.name:
        made.append(call.full([0], 0, rushlight.uint8))
    return [*made, *updated]


@translates("aten::instance_norm")
def instance_norm(call: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value | None, var: Value | None, use_input: bool,
                  momentum: float, eps: float, *_: Any) -> Value:  # fmt: skip
    if not use_input and mean is not None and var is not None:
        return _batch_norm(call, x, weight, bias, mean, var, eps)
    weight, bias = _channels(call, x, weight, 1, x.dtype), _channels(call, x, bias, 0, x.dtype)
    return call.op("InstanceNormalization", x, weight, bias, epsilon=float(eps), shape=x.shape)


# ***** layers and groups *****


@translates("aten::layer_norm")
def layer_norm(call: Call, x: Value, normalized: Sequence[Any], weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5,
               *_: Any) -> Value:  # fmt: skip
    return _layers(call, x, normalized, weight, bias, eps)[0]


@translates("aten::native_layer_norm")
def native_layer_norm(
    call: Call, x: Value, normalized: Sequence[Any], weight: Value | None, bias: Value | None, eps: float
) -> list[Value]:
    return _layers(call, x, normalized, weight, bias, eps)


def _layers(
    call: Call, x: Value, normalized: Sequence[Any], weight: Value | None, bias: Value | None, eps: float
) -> list[Value]:
    weight = call.full(normalized, 1, x.dtype) if weight is None else weight
    axis = -len(normalized)
    results = [(x.dtype, call.shape), *([(dtype, shape) for dtype, shape in call.results[1:3]])]
    return call.ops("LayerNormalization", x, weight, bias, results=results, axis=axis, epsilon=float(eps))


@translates("aten::rms_norm", "aten::_fused_rms_norm")
def rms_norm(
    call: Call, x: Value, normalized: Sequence[Any], weight: Value | None = None, eps: float | None = None
) -> Any:
    eps = rushlight.finfo(x.dtype).eps if eps is None else eps
    if call.opset >= 23 and "fused" not in call.name:
        weight = call.full(normalized, 1, x.dtype) if weight is None else weight
        return call.out("RMSNormalization", x, weight, axis=-len(normalized), epsilon=float(eps))
    wide = call.cast(x, rushlight.float32) if x.dtype in (rushlight.float16, rushlight.bfloat16) else x
    axes = list(range(-len(normalized), 0))
    mean = call.reduce("ReduceMean", call.op("Mul", wide, wide, shape=x.shape), axes, True)
    rate = call.op("Reciprocal", call.op("Sqrt", call.op("Add", mean, call.const(eps, wide.dtype))), shape=mean.shape)
    made = call.op("Mul", wide, rate, shape=x.shape)
    made = made if weight is None else call.op("Mul", made, call.cast(weight, wide.dtype), shape=x.shape)
    made = call.cast(made, call.dtype)
    return [made, rate] if len(call.results) > 1 else made


@translates("aten::group_norm")
def group_norm(
    call: Call,
    x: Value,
    groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Value:
    return _grouped(call, x, groups, weight, bias, eps)


@translates("aten::native_group_norm")
def native_group_norm(
    call: Call, x: Value, weight: Value | None, bias: Value | None, n: Any, c: Any, area: Any, groups: int, eps: float
) -> list[Value]:
    made = _grouped(call, x, groups, weight, bias, eps)
    flat = call.reshape(x, [n, groups, -1], shape=("n", groups, "r"))
    spread, center = moments(call, flat, [2], 0, False)
    rate = call.op("Reciprocal", call.op("Sqrt", call.op("Add", spread, call.const(eps, x.dtype))))
    return [
        made,
        call.reshape(center, [n, groups], shape=call.results[1][1]),
        call.reshape(rate, [n, groups], shape=call.results[2][1]),
    ]


def _grouped(call: Call, x: Value, groups: int, weight: Value | None, bias: Value | None, eps: float) -> Value:
    """GroupNormalization has weights for channels from opset 21; before, instances are normalised in its place."""
    if call.opset >= 21:
        weight, bias = _channels(call, x, weight, 1, x.dtype), _channels(call, x, bias, 0, x.dtype)
        return call.op("GroupNormalization", x, weight, bias, num_groups=groups, epsilon=float(eps), shape=x.shape)
    flat = call.reshape(x, [call.dim(x, 0), groups, -1], shape=("n", groups, "r"))
    one, zero = call.full([groups], 1, x.dtype), call.full([groups], 0, x.dtype)
    made = call.op("InstanceNormalization", flat, one, zero, epsilon=float(eps))
    made = call.reshape(made, call.shape_vector(x), shape=x.shape)
    axes = list(range(1, x.ndim - 1))
    made = made if weight is None else call.op("Mul", made, call.unsqueeze(weight, axes), shape=x.shape)
    return made if bias is None else call.op("Add", made, call.unsqueeze(bias, axes), shape=x.shape)


@translates("aten::local_response_norm")
def local_response_norm(
    call: Call, x: Value, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Value:
    return call.out("LRN", x, size=size, alpha=float(alpha), beta=float(beta), bias=float(k))
