"""Losses."""

from __future__ import annotations

import rushlight
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.values import Value

_REDUCTIONS = ("none", "mean", "sum")


def _finished(call: Call, losses: Value, reduction: int) -> Value:
    kind = _REDUCTIONS[reduction]
    if kind == "none":
        losses.shape = call.shape
        return losses
    if losses.shape is None:
        losses.shape = ("n",)
    return call.reduce("ReduceMean" if kind == "mean" else "ReduceSum", losses, None)


@translates("aten::mse_loss")
def mse_loss(call: Call, x: Value, target: Value, reduction: int = 1) -> Value:
    gap = call.op("Sub", x, target, shape=x.shape)
    return _finished(call, call.op("Mul", gap, gap, shape=x.shape), reduction)


@translates("aten::l1_loss")
def l1_loss(call: Call, x: Value, target: Value, reduction: int = 1) -> Value:
    return _finished(call, call.op("Abs", call.op("Sub", x, target), shape=x.shape), reduction)


@translates("aten::smooth_l1_loss", "aten::huber_loss")
def smooth_l1_loss(call: Call, x: Value, target: Value, reduction: int = 1, beta: float = 1.0) -> Value:
    huber = "huber" in call.name
    size = call.op("Abs", call.op("Sub", x, target), shape=x.shape)
    half, edge = call.const(0.5, x.dtype), call.const(beta, x.dtype)
    square = call.op("Mul", half, call.op("Mul", size, size), shape=x.shape)
    line = call.op("Sub", size, call.const(0.5 * beta, x.dtype), shape=x.shape)
    if huber:
        line = call.op("Mul", edge, line, shape=x.shape)
    elif beta:
        square = call.op("Div", square, edge, shape=x.shape)
    made = call.op("Where", call.op("Less", size, edge), square, line, dtype=x.dtype, shape=x.shape)
    return _finished(call, made, reduction)


@translates("aten::binary_cross_entropy")
def binary_cross_entropy(call: Call, x: Value, target: Value, weight: Value | None = None, reduction: int = 1) -> Value:
    one, least = call.const(1.0, x.dtype), call.const(-100.0, x.dtype)
    first = call.op("Max", call.op("Log", x), least)
    second = call.op("Max", call.op("Log", call.op("Sub", one, x)), least)
    sums = call.op("Add", call.op("Mul", target, first), call.op("Mul", call.op("Sub", one, target), second))
    made = call.op("Neg", sums, shape=x.shape)
    return _finished(call, made if weight is None else call.op("Mul", made, weight, shape=x.shape), reduction)


@translates("aten::binary_cross_entropy_with_logits")
def bce_with_logits(
    call: Call,
    x: Value,
    target: Value,
    weight: Value | None = None,
    pos_weight: Value | None = None,
    reduction: int = 1,
) -> Value:
    """(1 - y) x + w (log(1 + e^-|x|) + max(-x, 0)), w = 1 + (pos_weight - 1) y."""
    one, zero = call.const(1.0, x.dtype), call.const(0.0, x.dtype)
    soft = call.op(
        "Add", call.op("Softplus", call.op("Neg", call.op("Abs", x))), call.op("Max", call.op("Neg", x), zero)
    )
    if pos_weight is not None:
        soft = call.op("Mul", soft, call.op("Add", one, call.op("Mul", call.op("Sub", pos_weight, one), target)))
    made = call.op("Add", call.op("Mul", call.op("Sub", one, target), x), soft, shape=x.shape)
    return _finished(call, made if weight is None else call.op("Mul", made, weight, shape=x.shape), reduction)


@translates("aten::kl_div")
def kl_div(call: Call, x: Value, target: Value, reduction: int = 1, *, log_target: bool = False) -> Value:
    if log_target:
        made = call.op("Mul", call.op("Exp", target), call.op("Sub", target, x), shape=x.shape)
    else:
        zero = call.const(0.0, x.dtype)
        plain = call.op(
            "Where", call.op("Equal", target, zero), zero, call.op("Mul", target, call.op("Log", target)), dtype=x.dtype
        )
        made = call.op("Sub", plain, call.op("Mul", target, x), shape=x.shape)
    return _finished(call, made, reduction)


@translates("aten::nll_loss", "aten::nll_loss_nd", "aten::nll_loss2d")
def nll_loss(
    call: Call, x: Value, target: Value, weight: Value | None = None, reduction: int = 1, ignore: int = -100
) -> Value:
    alone = x.ndim == 1
    if alone:
        x, target = call.unsqueeze(x, [0]), call.reshape(target, [1])
    made = call.op(
        "NegativeLogLikelihoodLoss",
        x,
        target,
        weight,
        reduction=_REDUCTIONS[reduction],
        ignore_index=ignore,
        dtype=x.dtype,
    )
    return call.reshape(made, []) if alone and reduction == 0 else made


@translates("aten::nll_loss_forward", "aten::nll_loss2d_forward")
def nll_loss_forward(
    call: Call, x: Value, target: Value, weight: Value | None, reduction: int, ignore: int
) -> list[Value]:
    made = nll_loss(call, x, target, weight, reduction, ignore)
    kept = call.op("Not", call.op("Equal", target, call.const(ignore, target.dtype)), shape=target.shape)
    counted = call.cast(kept, x.dtype)
    if weight is not None:
        safe = call.op("Where", kept, target, call.const(0, target.dtype), dtype=target.dtype)
        counted = call.op("Mul", call.op("Gather", weight, safe, axis=0), counted, shape=target.shape)
    total = call.reduce("ReduceSum", counted, None)
    return [made, total if reduction else call.const(0, x.dtype)]


@translates("aten::cross_entropy_loss")
def cross_entropy_loss(call: Call, x: Value, target: Value, weight: Value | None = None, reduction: int = 1, ignore: int = -100,
                       smoothing: float = 0.0) -> Value:  # fmt: skip
    if target.dtype.is_floating_point or smoothing:
        return _soft_targets(call, x, target, weight, reduction, smoothing)
    alone = x.ndim == 1
    if alone:
        x, target = call.unsqueeze(x, [0]), call.reshape(target, [1])
    made = call.op(
        "SoftmaxCrossEntropyLoss",
        x,
        call.cast(target, rushlight.int64),
        weight,
        reduction=_REDUCTIONS[reduction],
        ignore_index=ignore,
        dtype=x.dtype,
    )
    return call.reshape(made, []) if alone and reduction == 0 else made


def _soft_targets(call: Call, x: Value, target: Value, weight: Value | None, reduction: int, smoothing: float) -> Value:
    if not target.dtype.is_floating_point or weight is not None:
        raise call.refuse(
            "label_smoothing with class indices, or class weights with probabilities,", "give probabilities"
        )
    axis = 1 if x.ndim > 1 else 0
    classes = call.dim(x, axis)
    if smoothing:
        kept = call.op("Mul", target, call.const(1 - smoothing, x.dtype))
        target = call.op("Add", kept, call.const(smoothing / classes, x.dtype))
    log = call.op("LogSoftmax", x, axis=axis)
    made = call.op("Neg", call.reduce("ReduceSum", call.op("Mul", log, target, shape=x.shape), [axis]))
    if _REDUCTIONS[reduction] == "mean" and x.ndim > 1:
        made.shape = (x.shape or ())[:1] + (x.shape or ())[2:]
        total = call.reduce("ReduceSum", made, None)
        others = call.product([s for d, s in enumerate(call.dims(x)) if d != axis])
        return call.op("Div", total, call.scalar(others, x.dtype), shape=())
    return _finished(call, made, reduction)
