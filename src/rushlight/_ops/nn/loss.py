"""Losses.

They take the arguments of `torch.nn.functional`, the deprecated `size_average` and `reduce` included, so that a loss
with its reduction is one operator: one kernel forward, one backward.
"""

from __future__ import annotations

import math
from typing import Any

from rushlight._base.errors import warn_user
from rushlight._ops.bodies import (
    CPP_NAME,
    along,
    as_float,
    common,
    dims_of,
    given_dtype,
    is_weak,
    isnan,
    narrow,
    pair,
    reduce_dims,
    refuse,
    rounded,
    spread,
    wide,
    wrap,
)
from rushlight._ops.index_arguments import from_zero
from rushlight._ops.reductions.reduce import log_sum_exp, powers
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import BOOL, INT32, INT64, UINT8, DType
from rushlight._types.layout import broadcast_shapes, numel, restride
from rushlight._types.promotion import default_dtype
from rushlight._types.symbols import as_double

__all__: list[str] = []

NN = ("nn.functional",)
LEGACY = "bool? size_average=None, bool? reduce=None, str reduction='mean'"
LOSS: dict[str, Any] = {"promote": "float", "spaces": NN, "method": False, "like": "contiguous"}
# The losses of single elements have the memory layout of the operands.
PAIRED: dict[str, Any] = {**LOSS, "like": "operands"}


def _like_operand(operand: int) -> Any:
    """An operator's `like`: each element's loss has the layout of this operand, the first of PyTorch's formula."""

    def strides(shape: Any, specs: Any) -> Any:
        lead = specs[operand] if len(specs) > operand else specs[0]
        return restride(shape, lead.strides) if lead.shape == shape else None

    return strides


# ***** reductions of a loss *****


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The requested reduction, from the current argument or the two deprecated ones."""
    if size_average is not None or reduce is not None:
        average = True if size_average is None else size_average
        wanted = True if reduce is None else reduce
        reduction = ("mean" if average else "sum") if wanted else "none"
        warn_user(f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def reduced(loss: Any, reduction: str) -> Any:
    """The mean, the sum, or the losses themselves."""
    if reduction == "none":
        return loss
    total = reduce_dims("sum", loss, dims_of(loss, None))
    return total / as_double(numel(loss.shape)) if reduction == "mean" else total


def _each(ct: Any, shape: Any, reduction: str) -> Any:
    """The cotangent of each element's loss."""
    return build.broadcast_to(ct / as_double(numel(shape)) if reduction == "mean" else ct, shape)


def _alike(x: Any, y: Any) -> tuple[Any, Any]:
    """Input and target broadcast; a warning if their shapes differ, because that is rarely intended."""
    if x.shape != y.shape:
        warn_user(
            f"Using a target size (torch.Size({list(y.shape)})) that is different to the input size (torch.Size({list(x.shape)})). This will likely lead to incorrect "
            "results due to broadcasting. Please ensure they have the same size."
        )
    return pair(x, y)


def _weighted(loss: Any, weight: Any, reduction: str) -> Any:
    """Losses times weights; the mean divides by the sum of the weights."""
    if weight is None:
        return reduced(loss, reduction)
    loss, weight = pair(loss, weight)
    if reduction != "mean":
        return reduced(loss * weight, reduction)
    return reduced(loss * weight, "sum") / reduced(weight, "sum")


# ***** differences *****


@operator(
    f"mse_loss(Tensor input, Tensor target, {LEGACY}, Tensor? weight=None) -> Tensor", tags=("aligned",), **PAIRED
)
def mse_loss(x: Any, y: Any, size_average: Any, reduce: Any, reduction: str, weight: Any) -> Any:
    """Mean of (input - target)^2."""
    x, y = _alike(x, y)
    return _weighted((x - y) * (x - y), weight, reduction_of(size_average, reduce, reduction))


def _real_for(dtype: DType, y: Any) -> None:
    """RuntimeError if a target is complex and the input, whose dtype the loss has, is not."""
    target_dtype = given_dtype(y)
    if target_dtype.is_complex and not dtype.is_complex:
        raise RuntimeError(
            f"result type {CPP_NAME[target_dtype.name]} can't be cast to the desired output type {CPP_NAME[dtype.name]}"
        )


def _floats_for_mean(dtype: DType, reduction: str) -> None:
    """RuntimeError if whole numbers would be averaged."""
    if dtype.kind in "ui" and reduction == "mean":
        raise RuntimeError(
            f"mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: {CPP_NAME[dtype.name]}"
        )


@operator(
    f"l1_loss(Tensor input, Tensor target, {LEGACY}, Tensor? weight=None) -> Tensor",
    node="MeanBackward0",
    tags=("aligned",),
    **{**PAIRED, "promote": "same"},
)
def l1_loss(x: Any, y: Any, size_average: Any, reduce: Any, reduction: str, weight: Any) -> Any:
    """Mean of |input - target|."""
    x, y = _alike(x, y)
    reduction = reduction_of(size_average, reduce, reduction)
    _floats_for_mean(x.dtype, reduction)
    return _weighted(prim.abs(x - y), weight, reduction)


@operator(
    f"smooth_l1_loss(Tensor input, Tensor target, {LEGACY}, float beta=1.0) -> Tensor", tags=("aligned",), **PAIRED
)
def smooth_l1_loss(x: Any, y: Any, size_average: Any, reduce: Any, reduction: str, beta: float) -> Any:
    """d^2 / (2 beta) where d = |input - target| < beta, else d - beta / 2."""
    reduction = reduction_of(size_average, reduce, reduction)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    x, y = _alike(x, y)
    d = x - y
    size = prim.abs(d)
    if beta == 0:
        return reduced(size, reduction)
    # d, not |d|: no corner at zero; 0 where it is far, as infinity times 0 is no slope; NaN counts as near.
    far = size >= beta
    near = build.select(far, 0.0, d)
    return reduced(build.select(far, size - 0.5 * beta, 0.5 * near * near / beta), reduction)


@operator(
    "huber_loss(Tensor input, Tensor target, str reduction='mean', float delta=1.0, Tensor? weight=None) -> Tensor",
    **PAIRED,
)
def huber_loss(x: Any, y: Any, reduction: str, delta: float, weight: Any) -> Any:
    """d^2 / 2 where d = |input - target| <= delta, else delta (d - delta / 2)."""
    if not delta > 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    dtype = given_dtype(x)
    _real_for(dtype, y)
    x, y = _alike(x, y)
    d = x - y
    size = prim.abs(d)
    far = size > delta  # as in smooth_l1_loss
    near = build.select(far, 0.0, d)
    loss = build.select(far, delta * (size - 0.5 * delta), 0.5 * near * near)
    how = reduction_of(None, None, reduction)
    if weight is None:
        return narrow(reduced(loss, how), dtype)
    loss, weight = pair(loss, weight)
    # The mean of the products: the sum of the weights does not count here
    return narrow(reduced(loss * weight, how), dtype)


# ***** negative log likelihood *****


def _classes(x: Any, target: Any, weight: Any, name: str) -> int:
    """The dim of the classes; errors if input, target and weight do not fit."""
    if not x.shape:
        if name == "cross_entropy":
            raise IndexError(f"{name}: expected input to have at least one dimension")
        raise ValueError("Expected 1 or more dimensions (got 0)")
    dim = 0 if len(x.shape) == 1 else 1
    batch = (*x.shape[:dim], *x.shape[dim + 1 :])
    _class_dtype(target, x, name)
    if target.shape != batch:
        if not dim and len(target.shape) == 1:
            raise ValueError(f"For 1D input, 1D target must have size 1, but got target size: {target.shape[0]}")
        if dim and (not target.shape or x.shape[0] != target.shape[0]):
            raise ValueError(
                f"Expected input batch_size ({x.shape[0]}) to match target batch_size ({target.shape[0] if target.shape else 0})."
            )
        words = "0D or 1D target tensor expected, multi-target not supported; " if len(x.shape) == 2 else ""
        raise RuntimeError(
            f"{words}{name}(): expected target of size {list(batch)} (one class for each of input{list(x.shape)}), but found {list(target.shape)}"
        )
    if weight is not None and weight.shape != (x.shape[dim],):
        raise RuntimeError(
            f"weight tensor should be defined either for all {x.shape[dim]} classes or no classes but got weight tensor of shape: {list(weight.shape)}"
        )
    return dim


def _class_dtype(target: Any, x: Any, name: str) -> None:
    """RuntimeError if a target cannot hold classes."""
    if target.dtype is not INT64 and target.dtype is not UINT8:
        way = f", or probabilities in the shape of input, {list(x.shape)}" if name == "cross_entropy" else ""
        raise RuntimeError(
            f"{name}(): expected target dtype to be Long or Byte, but got {CPP_NAME[target.dtype.name]} of shape {list(target.shape)}; a target holds "
            f"classes (target.long()){way}"
        )
    if target.dtype is UINT8 and len(x.shape) > 2:
        raise RuntimeError(
            f"{name}(): expected scalar type Long but found Byte; classes of more than one place a sample are int64: target.long()"
        )


def _single(x: Any, target: Any) -> Any:
    """The target of a single sample, which may be a vector of one."""
    return build.reshape(target, ()) if len(x.shape) == 1 and target.shape == (1,) else target


def _targets(target: Any, ignore_index: int) -> tuple[Any, Any]:
    """(class to read, whether it counts).  A negative class other than `ignore_index` reads out of range: an
    IndexError."""
    target = build.convert(target, INT64)
    counts = build.ne(target, ignore_index)
    return from_zero(build.select(counts, target, 0)), counts


def _at_class(x: Any, classes: Any, dim: int) -> Any:
    """x at the class of each position."""
    shape = tuple(1 if d == dim else s for d, s in enumerate(x.shape))
    return build.reshape(prim.gather(x, build.reshape(classes, shape), dim=dim), classes.shape)


def _class_weights(x: Any, weight: Any, classes: Any, counts: Any) -> Any:
    """The weight of each position, 0 if its class is ignored."""
    ones = build.full(classes.shape, 1.0, x.dtype) if weight is None else prim.index(weight, classes)
    return build.select(counts, ones, 0.0)


def _average(losses: Any, weights: Any, reduction: str) -> Any:
    if reduction == "none":
        return losses
    dims = dims_of(losses, None)
    total = reduce_dims("sum", losses, dims)
    return total / reduce_dims("sum", weights, dims) if reduction == "mean" else total


def _one_hot(x: Any, classes: Any, dim: int) -> Any:
    """Whether an element of `x` is at the class of its target."""
    here = along(x.shape, dim)
    return prim.eq(here, spread(build.convert(classes, here.dtype), x.shape, (dim,)))


def _per_position(ct: Any, weights: Any, total: Any, reduction: str, counts: Any) -> Any:
    """The cotangent of each position's -log p, times its weight; `total` is the sum of the weights.

    If nothing counts the mean is nan, but the gradient of ignored positions is still zero.
    """
    if reduction == "mean":
        ct = ct / total
    return build.select(counts, build.broadcast_to(ct, weights.shape) * weights, 0.0)


NLL = "(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, int ignore_index=-100, bool? reduce=None, str reduction='mean'"


@operator(f"nll_loss{NLL}) -> Tensor", promote="opmath", promote_over=("input", "weight"), spaces=NN, method=False, constants=("weight",),
          node=lambda input, **_: "NllLossBackward0" if len(input.shape) < 3 else "NllLoss2DBackward0")  # fmt: skip
def nll_loss(
    x: Any, target: Any, weight: Any, size_average: Any, ignore_index: int, reduce: Any, reduction: str
) -> Any:
    """Minus the log probability of the target's class; classes are along dim 1 (dim 0 of a single sample)."""
    reduction = reduction_of(size_average, reduce, reduction)
    refuse(x, "nll_loss_out_frame", "c")
    target = _single(x, target)
    dim = _classes(x, target, weight, "nll_loss")
    classes, counts = _targets(target, ignore_index)
    weights = _class_weights(x, weight, classes, counts)
    losses = build.select(counts, -(_at_class(x, classes, dim) * weights), 0.0)
    return _average(losses, weights, reduction)


@nll_loss.gradient
def _(
    ct: Any,
    out: Any,
    x: Any,
    target: Any,
    weight: Any,
    size_average: Any,
    ignore_index: int,
    reduce: Any,
    reduction: str,
) -> Any:
    target = _single(x, target)
    dim = _classes(x, target, weight, "nll_loss")
    classes, counts = _targets(target, ignore_index)
    weights = _class_weights(x, weight, classes, counts)
    total = reduce_dims("sum", weights, dims_of(weights, None))
    share = _per_position(ct, weights, total, reduction_of(size_average, reduce, reduction), counts)
    return build.select(_one_hot(x, classes, dim), spread(-share, x.shape, (dim,)), 0.0), None, None


# ***** cross entropy *****


def _soft_targets(x: Any, target: Any, dim: int, smoothing: float) -> Any:
    """Given class probabilities, smoothed."""
    return target * (1.0 - smoothing) + smoothing / x.shape[dim] if smoothing > 0 else target


def _is_soft(x: Any, target: Any) -> bool:
    return bool(target.shape == x.shape and (target.dtype.is_floating_point or not x.shape))


def _smooth_weights(x: Any, weight: Any, dim: int) -> Any:
    return build.full(x.shape, 1.0, x.dtype) if weight is None else prim.broadcast(weight, shape=x.shape, dims=(dim,))


def _soft_divisor(x: Any, dim: int) -> float:
    return as_double(numel(x.shape) / max(x.shape[dim], 1))


@operator(f"cross_entropy{NLL}, float label_smoothing=0.0) -> Tensor", promote="opmath", promote_over=("input", "target", "weight"), spaces=NN,
          method=False, node=lambda input, target, **_: "DivBackward1" if target.dtype.is_floating_point else
          "NllLossBackward0" if len(input.shape) < 3 else "NllLoss2DBackward0")  # fmt: skip
def cross_entropy(
    x: Any,
    target: Any,
    weight: Any,
    size_average: Any,
    ignore_index: int,
    reduce: Any,
    reduction: str,
    label_smoothing: float,
) -> Any:
    """-log softmax(input) at the target's class, or weighted by the target's class probabilities.

    Classes are along dim 1 (dim 0 of a single sample).  The forward saves the logsumexp of each row for the backward.
    """
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    reduction = reduction_of(size_average, reduce, reduction)
    refuse(x, "log_softmax_lastdim_kernel_impl", "c")
    if _is_soft(x, target):
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        return _soft_cross_entropy(x, target, weight, reduction, label_smoothing)
    target = _single(x, target)
    dim = _classes(x, target, weight, "cross_entropy")
    classes, counts = _targets(target, ignore_index)
    norm = log_sum_exp(x, (dim,))
    weights = _class_weights(x, weight, classes, counts)
    losses = build.select(counts, (norm - _at_class(x, classes, dim)) * weights, 0.0)
    if label_smoothing > 0.0:
        share = label_smoothing / x.shape[dim]
        apart = spread(norm, x.shape, (dim,)) - x
        if weight is not None:
            apart = apart * _smooth_weights(x, weight, dim)
        losses = losses * (1.0 - label_smoothing) + build.select(counts, prim.sum(apart, dims=(dim,)), 0.0) * share
    return _average(losses, weights, reduction), norm


def _soft_cross_entropy(x: Any, target: Any, weight: Any, reduction: str, smoothing: float) -> Any:
    dim = 0 if len(x.shape) == 1 else 1
    if not x.shape:
        raise RuntimeError(
            "Expected floating point type for target with class probabilities, got input without dimensions"
        )
    x, target = common((x, target))
    target = _soft_targets(x, target, dim, smoothing)
    norm = log_sum_exp(x, (dim,))
    apart = (spread(norm, x.shape, (dim,)) - x) * target
    if weight is not None:
        apart = apart * _smooth_weights(x, weight, dim)
    losses = prim.sum(apart, dims=(dim,))
    if reduction == "none":
        return losses, norm
    total = reduce_dims("sum", losses, dims_of(losses, None))
    return (total / _soft_divisor(x, dim) if reduction == "mean" else total), norm


@cross_entropy.gradient
def _(
    ct: Any,
    outs: Any,
    x: Any,
    target: Any,
    weight: Any,
    size_average: Any,
    ignore_index: int,
    reduce: Any,
    reduction: str,
    label_smoothing: float,
) -> Any:
    reduction = reduction_of(size_average, reduce, reduction)
    norm = outs[1]
    dim = 0 if len(x.shape) == 1 else 1
    if _is_soft(x, target):
        x, target = common((x, target))
    chance = prim.exp(x - spread(norm, x.shape, (dim,)))
    if _is_soft(x, target):
        return _soft_gradient(ct, x, target, weight, norm, chance, dim, reduction, label_smoothing)
    classes, counts = _targets(target, ignore_index)
    weights = _class_weights(x, weight, classes, counts)
    total = reduce_dims("sum", weights, dims_of(weights, None))
    share = spread(_per_position(ct, weights, total, reduction, counts), x.shape, (dim,))
    hit = build.convert(_one_hot(x, classes, dim), x.dtype)
    if label_smoothing == 0.0:
        return (chance - hit) * share, None, None
    plain = spread(_per_position(ct, build.convert(counts, x.dtype), total, reduction, counts), x.shape, (dim,)) * (
        label_smoothing / x.shape[dim]
    )
    class_weights = _smooth_weights(x, weight, dim)
    whole = as_double(x.shape[dim]) if weight is None else build.broadcast_to(reduce_dims("sum", weight, (0,)), x.shape)
    return (chance - hit) * share * (1.0 - label_smoothing) + (chance * whole - class_weights) * plain, None, None


def _soft_gradient(
    ct: Any, x: Any, target: Any, weight: Any, norm: Any, chance: Any, dim: int, reduction: str, smoothing: float
) -> Any:
    share = spread(
        build.broadcast_to(ct / _soft_divisor(x, dim) if reduction == "mean" else ct, norm.shape), x.shape, (dim,)
    )
    class_weights = _smooth_weights(x, weight, dim)
    soft = _soft_targets(x, target, dim, smoothing) * class_weights
    to_x = (chance * spread(prim.sum(soft, dims=(dim,)), x.shape, (dim,)) - soft) * share
    to_target = (spread(norm, x.shape, (dim,)) - x) * class_weights * share * (1.0 - smoothing)
    return to_x, to_target, None


# ***** two classes *****


def _bce_shapes(x: Any, target: Any) -> None:
    if x.shape != target.shape:
        raise ValueError(
            f"Using a target size (torch.Size({list(target.shape)})) that is different to the input size (torch.Size({list(x.shape)})) is deprecated. "
            "Please ensure they have the same size."
        )


@operator(f"binary_cross_entropy(Tensor input, Tensor target, Tensor? weight=None, {LEGACY}) -> Tensor", promote="opmath", spaces=NN,
          method=False, constants=("weight",), like="operands")  # fmt: skip
def binary_cross_entropy(x: Any, target: Any, weight: Any, size_average: Any, reduce: Any, reduction: str) -> Any:
    """-(target log input + (1 - target) log(1 - input)), each log not below -100.  RuntimeError for inputs and targets
    outside of [0, 1]."""
    _bce_shapes(x, target)
    x, target = _probabilities(x, "input is a probability"), _probabilities(target, "target is a probability")
    yes = prim.maximum(prim.log(x), build.full_like(x, -100.0))
    no = prim.maximum(prim.log1p(-x), build.full_like(x, -100.0))
    loss = (target - 1.0) * no - target * yes
    _fits(weight, x)
    return reduced(
        loss if weight is None else loss * build.convert(weight, loss.dtype),
        reduction_of(size_average, reduce, reduction),
    )


def _probabilities(x: Any, requirement: str) -> Any:
    """x, which must lie in [0, 1]."""
    return prim.require(x, (x >= 0.0) & (x <= 1.0), requirement=requirement)


def _fits(weight: Any, x: Any) -> None:
    """RuntimeError if a weight is larger than its operand."""
    if weight is not None and broadcast_shapes(x.shape, weight.shape) != x.shape:
        raise RuntimeError(
            f"output with shape {list(x.shape)} doesn't match the broadcast shape {list(broadcast_shapes(x.shape, weight.shape))}"
        )


@binary_cross_entropy.gradient
def _(ct: Any, out: Any, x: Any, target: Any, weight: Any, size_average: Any, reduce: Any, reduction: str) -> Any:
    share = _each(ct, x.shape, reduction_of(size_average, reduce, reduction))
    share = share if weight is None else share * build.convert(weight, share.dtype)
    product = (1.0 - x) * x
    to_x = share * (x - target) / prim.maximum(product, build.full_like(x, 1e-12))
    return to_x, share * (prim.log1p(-x) - prim.log(x)), None


def _logits_loss(x: Any, target: Any, weight: Any, pos_weight: Any) -> Any:
    """max(-x, 0) form of -(p t log s + (1 - t) log(1 - s)), s = sigmoid(x)."""
    tail = prim.log1p(prim.exp(-prim.abs(x))) + prim.maximum(-x, build.zeros_like(x))
    if pos_weight is not None:
        tail = tail * ((pos_weight - 1.0) * target + 1.0)
    loss = (1.0 - target) * x + tail
    return loss if weight is None else loss * weight


@operator(
    f"binary_cross_entropy_with_logits(Tensor input, Tensor target, Tensor? weight=None, {LEGACY}, Tensor? pos_weight=None) -> Tensor",
    constants=("weight",),
    **{**LOSS, "like": _like_operand(1)},
)
def binary_cross_entropy_with_logits(
    x: Any, target: Any, weight: Any, size_average: Any, reduce: Any, reduction: str, pos_weight: Any
) -> Any:
    """`binary_cross_entropy` of sigmoid(input), without overflow; `pos_weight` weighs the positive class."""
    if x.shape != target.shape:
        raise ValueError(
            f"Target size (torch.Size({list(target.shape)})) must be the same as input size (torch.Size({list(x.shape)}))"
        )
    _fits(weight, x)
    loss = reduced(_logits_loss(x, target, weight, pos_weight), reduction_of(size_average, reduce, reduction))
    return build.convert(loss, given_dtype(target))  # PyTorch sums in the dtype of 1 - target


@binary_cross_entropy_with_logits.gradient
def _(
    ct: Any, out: Any, x: Any, target: Any, weight: Any, size_average: Any, reduce: Any, reduction: str, pos_weight: Any
) -> Any:
    shape = broadcast_shapes(x.shape, *(w.shape for w in (weight, pos_weight) if w is not None))
    share = _each(ct, shape, reduction_of(size_average, reduce, reduction))
    share = share if weight is None else share * weight
    chance = 1.0 / (1.0 + prim.exp(-x))
    if pos_weight is None:
        return (chance - target) * share, -(x * share), None, None
    part = pos_weight * target
    to_x = ((part + 1.0 - target) * chance - part) * share
    tail = prim.log1p(prim.exp(-prim.abs(x))) + prim.maximum(-x, build.zeros_like(x))  # -log sigmoid(x)
    to_target = ((pos_weight - 1.0) * tail - x) * share
    return to_x, to_target, None, target * tail * share


@operator(f"soft_margin_loss(Tensor input, Tensor target, {LEGACY}) -> Tensor", constants=("target",), **PAIRED)
def soft_margin_loss(x: Any, y: Any, size_average: Any, reduce: Any, reduction: str) -> Any:
    """log(1 + exp(-target * input))."""
    if broadcast_shapes(x.shape, y.shape) != x.shape:
        raise RuntimeError(
            f"output with shape {list(x.shape)} doesn't match the broadcast shape {list(broadcast_shapes(x.shape, y.shape))}"
        )
    dtype = given_dtype(x)
    _real_for(dtype, y)
    x, y = pair(x, y)
    loss = reduced(prim.log1p(prim.exp(-(y * x))), reduction_of(size_average, reduce, reduction))
    return build.convert(loss, dtype) if dtype.is_floating_point else loss


@soft_margin_loss.gradient
def _(ct: Any, out: Any, x: Any, y: Any, size_average: Any, reduce: Any, reduction: str) -> Any:
    """-target z / (1 + z) with z = exp(-target * input).  Half types round every step, as in PyTorch: NaN where z
    overflows there."""
    rounded_low = lambda v, low=given_dtype(ct): rounded(v, low)
    x, y = pair(x, y)
    z = rounded_low(prim.exp(-rounded_low(y * x)))
    share = -1.0 / as_double(numel(x.shape)) if reduction_of(size_average, reduce, reduction) == "mean" else -1.0
    slope = lambda v: rounded_low(
        build.conj(rounded_low(rounded_low(rounded_low(v * z) * share) / rounded_low(z + 1.0)))
        * build.broadcast_to(ct, x.shape)
    )
    return slope(y), slope(x)


@operator(
    f"multilabel_soft_margin_loss(Tensor input, Tensor target, Tensor? weight=None, {LEGACY}) -> Tensor",
    numbers=("target",),
    node="MeanBackward0",
    **LOSS,
)
def multilabel_soft_margin_loss(x: Any, y: Any, weight: Any, size_average: Any, reduce: Any, reduction: str) -> Any:
    """Binary cross entropy of sigmoid(input), averaged over the last dim."""
    softly = lambda v: prim.minimum(v, build.zeros_like(v)) - prim.log1p(prim.exp(-prim.abs(v)))
    if not x.shape:
        raise IndexError("Dimension specified as -1 but tensor has no dimensions")
    last = len(x.shape) - 1
    classes = x.shape[last]
    x, y = pair(x, y)
    loss = -(y * softly(x) + (1.0 - y) * softly(-x))
    loss = loss if weight is None else loss * weight
    return reduced(prim.sum(loss, dims=(last,)) / as_double(classes), reduction_of(size_average, reduce, reduction))


# ***** distributions *****


@operator(
    f"kl_div(Tensor input, Tensor target, {LEGACY}, bool log_target=False) -> Tensor",
    node=lambda reduction, **_: "DivBackward0" if reduction == "batchmean" else "MeanBackward0",
    **{**LOSS, "like": _like_operand(1)},
)
def kl_div(x: Any, y: Any, size_average: Any, reduce: Any, reduction: str, log_target: bool) -> Any:
    """target * (log target - input), where the input holds log probabilities."""
    how = "sum" if reduction == "batchmean" else reduction_of(size_average, reduce, reduction)
    batch = x.shape[0] if x.shape else 1
    x, y = pair(x, y)
    if log_target:
        loss = prim.exp(y) * (y - x)
    else:
        dead = build.eq(y, 0.0)
        loss = build.select(dead, 0.0, y * prim.log(build.select(dead, 1.0, y))) - y * x
    total = reduced(loss, how)
    return total / as_double(batch) if reduction == "batchmean" else total


@operator("poisson_nll_loss(Tensor input, Tensor target, bool log_input=True, bool full=False, bool? size_average=None, float eps=1e-08, "
          "bool? reduce=None, str reduction='mean') -> Tensor", node="MeanBackward0", **PAIRED)  # fmt: skip
def poisson_nll_loss(
    x: Any, y: Any, log_input: bool, full: bool, size_average: Any, eps: float, reduce: Any, reduction: str
) -> Any:
    """exp(input) - target * input (input - target * log(input + eps) unless `log_input`): Poisson counts; `full` adds
    Stirling's term."""
    flags = [given_dtype(v) is BOOL for v in (x, y)]
    if all(flags) or flags[0] and not log_input or flags[1] and full:
        raise RuntimeError(
            "poisson_nll_loss(): a bool tensor is subtracted here; convert it first, for example with .float()"
        )
    x, y = pair(x, y)
    loss = prim.exp(x) - y * x if log_input else x - y * prim.log(x + eps)
    if full:
        stirling = y * prim.log(y) - y + 0.5 * prim.log(y * (2.0 * math.pi))
        loss = loss + build.select(y > 1.0, stirling, 0.0)
    return reduced(loss, reduction_of(size_average, reduce, reduction))


@operator("gaussian_nll_loss(Tensor input, Tensor target, Tensor var, bool full=False, float eps=1e-06, str reduction='mean') -> Tensor",
          numbers=("target", "var"), node="MeanBackward0", **{**LOSS, "like": _like_operand(2)})  # fmt: skip
def gaussian_nll_loss(x: Any, y: Any, var: Any, full: bool, eps: float, reduction: str) -> Any:
    """(log(v) + (input - target)^2 / v) / 2 with v = max(var, eps): a normal distribution's; `full` adds log(2 pi) / 2."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    if is_weak(var):
        var = build.match(x, var)[1]
    elif var.shape != x.shape:
        if x.shape[:-1] == var.shape:
            var = build.reshape(var, (*var.shape, 1))
        elif not (x.shape[:-1] == var.shape[:-1] and var.shape[-1:] == (1,)) and any(
            a != b and b != 1 for a, b in zip(x.shape, var.shape, strict=False)
        ):
            raise ValueError("var is of incorrect size")
    bounded = build.select(var < eps, eps, var)
    variance = _straight_through(bounded, var)
    gap = x - y
    loss = 0.5 * (prim.log(variance) + gap * gap / variance)
    return reduced(loss + 0.5 * math.log(2.0 * math.pi) if full else loss, reduction)


def _straight_through(bounded: Any, var: Any) -> Any:
    """The bounded value, whose gradient passes to the unbounded one unchanged (PyTorch sets the bound outside of the
    graph): var plus a difference that comes through bits, which carry no gradient."""
    width = INT64 if var.dtype.itemsize == 8 else INT32
    gap = prim.bitcast(prim.bitcast(bounded - var, dtype=width), dtype=var.dtype)
    return var + gap


# ***** margins *****


def _sides(y: Any) -> Any:
    """A target that is compared with 1 and -1, in a dtype that distinguishes them."""
    return build.convert(y, INT32) if y.dtype is BOOL else wide(y)


def _positive_part(x: Any) -> Any:
    """max(x, 0), flat at 0."""
    return build.select(x <= 0, 0, x)


def _clamped(x: Any) -> Any:
    """max(x, 0) with slope 1 at 0 and 0 at NaN, as `clamp_min` has it."""
    low = build.select(isnan(x), math.nan, build.zeros_like(x)) if x.dtype.is_floating_point else 0
    return build.select(x >= 0, x, low)


@operator(
    f"margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, {LEGACY}) -> Tensor",
    node="MeanBackward0",
    **{**LOSS, "promote": "same", "like": _like_operand(2)},
)
def margin_ranking_loss(a: Any, b: Any, y: Any, margin: float, size_average: Any, reduce: Any, reduction: str) -> Any:
    """max(0, -target * (input1 - input2) + margin)."""
    if len(a.shape) != len(b.shape) or len(a.shape) != len(y.shape):
        raise RuntimeError(
            f"margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: {list(a.shape)}, "
            f"input2: {list(b.shape)}, target: {list(y.shape)} "
        )
    return reduced(_clamped(as_float(-(y * (a - b))) + margin), reduction_of(size_average, reduce, reduction))


@operator(
    f"hinge_embedding_loss(Tensor input, Tensor target, float margin=1.0, {LEGACY}) -> Tensor",
    node="MeanBackward0",
    promote_over=("input",),
    choosing=("target",),
    **{**LOSS, "like": _like_operand(1)},
)
def hinge_embedding_loss(x: Any, y: Any, margin: float, size_average: Any, reduce: Any, reduction: str) -> Any:
    """input where target is 1, max(0, margin - input) where it is -1."""
    reduction = reduction_of(size_average, reduce, reduction)
    _floats_for_mean(given_dtype(x), reduction)
    y = _sides(y)
    apart, same = (build.broadcast_to(c, broadcast_shapes(x.shape, y.shape)) for c in (build.ne(y, 1), build.ne(y, -1)))
    x = build.broadcast_to(x, apart.shape)
    return reduced(build.select(apart, _clamped(margin - x), 0) + build.select(same, x, 0), reduction)


def _length(square: Any) -> Any:
    """The root of a sum of squares; its gradient is 0 where the sum is."""
    zero = build.eq(square, 0.0)
    return build.select(zero, 0.0, prim.sqrt(build.select(zero, 1.0, square)))


def _cosine(a: Any, b: Any, dim: int, eps: float) -> Any:
    """a.b / (|a| |b|), each norm not below eps."""
    a, b = pair(a, b)
    if not a.shape:
        wrap(dim, a)
        a, b, dim = build.reshape(a, (1,)), build.reshape(b, (1,)), 0
    (dim,) = dims_of(a, (dim,))
    norms = [build.binary("maximum", _length(prim.sum(v * v, dims=(dim,))), eps) for v in (a, b)]
    unit_a, unit_b = (v / spread(n, v.shape, (dim,)) for v, n in zip((a, b), norms, strict=True))
    return prim.sum(unit_a * unit_b, dims=(dim,))


@operator("cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor", promote="float", method=False, like="contiguous",
          spaces=("torch", "nn.functional"), node="SumBackward1", tags=("aligned",))  # fmt: skip
def cosine_similarity(a: Any, b: Any, dim: int, eps: float) -> Any:
    """sum(x1 * x2) / (max(|x1|, eps) * max(|x2|, eps)) along dim: the cosine of the angle between vectors."""
    if not eps >= 0:
        raise RuntimeError(f"eps must be non-negative, got: {eps}")
    return _cosine(a, b, dim, eps)


@operator(f"cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, {LEGACY}) -> Tensor", node="MeanBackward0",
          promote_over=("input1", "input2"), choosing=("target",), **LOSS)  # fmt: skip
def cosine_embedding_loss(a: Any, b: Any, y: Any, margin: float, size_average: Any, reduce: Any, reduction: str) -> Any:
    """1 - cosine where target is 1, max(0, cosine - margin) where it is -1."""
    if len(y.shape) > 1 or len(y.shape) == 0 and len(a.shape) != 1 or len(y.shape) == 1 and len(a.shape) != 2:
        raise RuntimeError(
            f"{len(y.shape)}D target tensor expects {len(y.shape) + 1}D input tensors, but found inputs with sizes {list(a.shape)} and {list(b.shape)}."
        )
    if len(a.shape) != len(b.shape):
        raise RuntimeError(
            f"{len(y.shape)}D target tensor expects {len(y.shape) + 1}D input tensors, but found inputs with sizes {list(a.shape)} and {list(b.shape)}."
        )
    a, b = pair(a, b)
    y = _sides(y)
    dim = len(a.shape) - 1
    dot, first, second = (prim.sum(u * v, dims=(dim,)) for u, v in ((a, b), (a, a), (b, b)))
    cosine = dot / prim.sqrt((first + 1e-12) * (second + 1e-12))
    loss = build.select(build.eq(y, 1), 1.0 - cosine, 0.0) + build.select(
        build.eq(y, -1), _clamped(cosine - margin), 0.0
    )
    return reduced(loss, reduction_of(size_average, reduce, reduction))


def _distance(a: Any, b: Any, p: float, eps: float) -> Any:
    """|a - b + eps| in the p-norm along the last dim."""
    gap = wide(as_float(a - b)) + eps  # integers wrap around before they become floats
    dims = (len(gap.shape) - 1,)
    if gap.dtype.is_complex or p == 0:
        return powers(gap, p, dims)
    if p == 2:
        return _length(prim.sum(gap * gap, dims=dims))
    if p == 1:
        return prim.sum(prim.abs(gap), dims=dims)
    if p == math.inf:
        return prim.amax(prim.abs(gap), dims=dims)
    size = prim.abs(gap)
    total = prim.sum(prim.pow(size, build.full_like(size, p)), dims=dims)
    return prim.pow(total, build.full_like(total, 1.0 / p))


@operator("pairwise_distance(Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False) -> Tensor", promote="same", method=False,
          like="contiguous", spaces=("torch", "nn.functional"), node="NormBackward1")  # fmt: skip
def pairwise_distance(a: Any, b: Any, p: float, eps: float, keepdim: bool) -> Any:
    """The p-norm of x1 - x2 + eps along the last dim."""
    a, b = pair(a, b)
    distance = _distance(a, b, p, eps)
    if a.dtype.kind in "bui":
        distance = narrow(distance, default_dtype())
    return build.expand_dims(distance, (len(distance.shape),)) if keepdim else distance


@operator("triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2.0, float eps=1e-06, bool swap=False, "
          f"{LEGACY}) -> Tensor", node="MeanBackward0", **{**LOSS, "promote": "same"})  # fmt: skip
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float,
    p: float,
    eps: float,
    swap: bool,
    size_average: Any,
    reduce: Any,
    reduction: str,
) -> Any:
    """max(0, distance to positive - distance to negative + margin)."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    dims = {len(v.shape) for v in (anchor, positive, negative)}
    if len(dims) > 1:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions"
        )
    near, far = _distance(anchor, positive, p, eps), _distance(anchor, negative, p, eps)
    if swap:
        far = prim.minimum(far, _distance(positive, negative, p, eps))
    return reduced(_clamped(margin + near - far), reduction_of(size_average, reduce, reduction))


@operator(f"multi_margin_loss(Tensor input, Tensor target, Scalar p=1, Scalar margin=1.0, Tensor? weight=None, {LEGACY}) -> Tensor",
          promote="opmath", promote_over=("input", "weight"), static=("p", "margin"), spaces=NN, method=False, constants=("weight",))  # fmt: skip
def multi_margin_loss(
    x: Any, target: Any, p: Any, margin: Any, weight: Any, size_average: Any, reduce: Any, reduction: str
) -> Any:
    """Mean over the other classes of max(0, margin - x[target] + x[other])^p."""
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and len(weight.shape) != 1:
        raise ValueError("weight must be one-dimensional")
    reduction = reduction_of(size_average, reduce, reduction)
    if target.dtype is not INT64:
        raise RuntimeError(f"expected scalar type Long but found {target.dtype.name}")
    if len(x.shape) > 2 or numel(x.shape) == 0 and x.shape[-1:] == (0,):
        raise RuntimeError(
            f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(x.shape)}"
        )
    if len(target.shape) > 1 or numel(target.shape) != (x.shape[0] if len(x.shape) == 2 else 1):
        raise RuntimeError(
            f"inconsistent target size, expected {x.shape[0] if len(x.shape) == 2 else 1} but got {list(target.shape)}"
        )
    rows = x if len(x.shape) == 2 else build.reshape(x, (1, numel(x.shape)))
    classes = from_zero(build.reshape(target, (rows.shape[0],)))
    own = _at_class(rows, classes, 1)
    loss = _positive_part(float(margin) - spread(own, rows.shape, (1,)) + rows)
    loss = loss * loss if p == 2 else loss
    if weight is not None:
        loss = loss * spread(prim.index(weight, classes), rows.shape, (1,))
    loss = build.select(_one_hot(rows, classes, 1), 0.0, loss)
    each = prim.sum(loss, dims=(1,)) / as_double(rows.shape[1])
    if len(x.shape) < 2:
        each = build.reshape(each, target.shape)
    return reduced(each, reduction)


@operator(f"multilabel_margin_loss(Tensor input, Tensor target, {LEGACY}) -> Tensor", promote="opmath", promote_over=("input",), spaces=NN,
          method=False)  # fmt: skip
def multilabel_margin_loss(x: Any, target: Any, size_average: Any, reduce: Any, reduction: str) -> Any:
    """Over pairs of a target class and another: max(0, 1 - x[target] + x[other]), summed and divided by the classes.

    A row of `target` lists classes up to the first -1.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    if len(x.shape) > 2 or x.shape[-1:] == (0,):
        raise RuntimeError(
            f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(x.shape)}"
        )
    if target.shape != x.shape and not (numel(target.shape) == numel(x.shape) == 1 and len(target.shape) < 2):
        raise RuntimeError(f"inconsistent target size: {list(target.shape)} for input of size: {list(x.shape)}")
    if target.dtype is not INT64:
        raise RuntimeError(f"expected scalar type Long but found {target.dtype.name}")
    rows = x if len(x.shape) == 2 else build.reshape(x, (1, numel(x.shape)))
    listed = build.reshape(build.convert(target, INT64), rows.shape)
    size = rows.shape[1]
    none = build.eq(listed, -1)
    valid = build.eq(prim.cumsum(build.convert(none, INT64), dim=1, reverse=False), 0)
    safe = build.select(none, 0, from_zero(listed))  # classes behind the end are checked, too
    cube = (rows.shape[0], size, size)  # [row, listed class, class]
    named = prim.eq(prim.broadcast(safe, shape=cube, dims=(0, 1)), prim.iota(shape=cube, dim=2, dtype=INT64))
    named = named & prim.broadcast(valid, shape=cube, dims=(0, 1))
    is_target = prim.amax(named, dims=(1,))
    own = prim.gather(rows, safe, dim=1)
    gap = _positive_part(
        1.0 - prim.broadcast(own, shape=cube, dims=(0, 1)) + prim.broadcast(rows, shape=cube, dims=(0, 2))
    )
    wanted = prim.broadcast(valid, shape=cube, dims=(0, 1)) & ~prim.broadcast(is_target, shape=cube, dims=(0, 2))
    each = prim.sum(build.select(wanted, gap, 0.0), dims=(1, 2)) / as_double(size)
    if len(x.shape) < 2:
        each = build.reshape(each, ())
    return reduced(each, reduction_of(size_average, reduce, reduction))


# ***** alignments *****

NEVER = -1e30  # replaces log(0): sums of a few of them stay finite, so that no gradient becomes NaN


def _arrivals(reached: Any, barred: Any) -> tuple[Any, list[Any]]:
    """The terms by which each state of a path is reached: from itself, from the state before, from the one before that
    unless barred.

    Returns the greatest of the logarithms, and exp of each less the greatest.
    """

    def moved(by: int) -> Any:
        return build.pad(reached, (0, by), (0, -by), (0, 0), value=NEVER)

    ways = [reached, moved(1), build.select(barred, NEVER, moved(2))]
    top = prim.maximum(prim.maximum(ways[0], ways[1]), ways[2])
    return top, [prim.exp(way - top) for way in ways]


@operator("ctc_step(Tensor reached, Tensor scores, Tensor barred) -> Tensor", spaces=(), promote="same", promote_over=("reached", "scores"),
          method=False)  # fmt: skip
def ctc_step(reached: Any, scores: Any, barred: Any) -> Any:
    """The next step of `ctc_loss`: log-probabilities of having reached each state of a path (sequences, states),
    including the step's scores."""
    if reached.shape[1] < 2:
        return prim.maximum(reached + scores, build.full_like(reached, NEVER))
    top, parts = _arrivals(reached, barred)
    total = top + prim.log(parts[0] + parts[1] + parts[2]) + scores
    return prim.maximum(total, build.full_like(total, NEVER))


@ctc_step.gradient
def _(ct: Any, out: Any, reached: Any, scores: Any, barred: Any) -> Any:
    ct = build.select(out > NEVER, ct, 0.0)
    if reached.shape[1] < 2:
        return ct, ct, None
    _, parts = _arrivals(reached, barred)
    share = ct / (parts[0] + parts[1] + parts[2])

    def back(x: Any, by: int) -> Any:
        return build.pad(x, (0, -by), (0, by), (0, 0))

    skipped = build.select(barred, 0.0, share * parts[2])
    return share * parts[0] + back(share * parts[1], 1) + back(skipped, 2), ct, None
