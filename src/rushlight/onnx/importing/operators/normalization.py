"""Normalisation and softmax."""

from __future__ import annotations

import math
from typing import Any

import rushlight as torch
import rushlight.nn.functional as F
from rushlight.onnx.importing.table import MICROSOFT, operator
from rushlight.onnx.importing.values import dtype_of

__all__: list[str] = []


@operator("BatchNormalization")
def batch_normalization_old(
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    var: Any,
    *,
    epsilon: float = 1e-5,
    is_test: int = 0,
    momentum: float = 0.9,
    spatial: int = 1,
    consumed_inputs: Any = None,
    outputs: list[bool],
    opset: int,
) -> Any:
    training = len(outputs) > 1 and not is_test
    if not spatial:
        raise NotImplementedError("batch normalisation with a mean for every place (spatial=0)")
    return batch_normalization(
        x, scale, bias, mean, var, epsilon=epsilon, momentum=momentum, training_mode=int(training), outputs=outputs
    )


@operator("BatchNormalization", since=14)
def batch_normalization(
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    var: Any,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    outputs: list[bool],
) -> Any:
    if not training_mode:
        return F.batch_norm(
            x, mean.to(x.dtype), var.to(x.dtype), scale.to(x.dtype), bias.to(x.dtype), False, 0.0, epsilon
        )
    axes = [i for i in range(x.ndim) if i != 1]
    wide = x.to(var.dtype)
    now, spread = wide.mean(axes), wide.var(axes, correction=0)
    y = F.batch_norm(wide, now, spread, scale.to(wide.dtype), bias.to(wide.dtype), False, 0.0, epsilon).to(x.dtype)
    new_mean, new_var = mean * momentum + now * (1 - momentum), var * momentum + spread * (1 - momentum)
    return (y, new_mean, new_var, now, spread)[: len(outputs)] if len(outputs) > 1 else y


@operator("InstanceNormalization")
def instance_normalization(x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5, consumed_inputs: Any = None) -> Any:
    return F.instance_norm(x, None, None, scale, bias, True, 0.1, epsilon)


@operator("LayerNormalization", since=17)
def layer_normalization(
    x: Any,
    scale: Any,
    bias: Any = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: list[bool],
) -> Any:
    axis = axis + x.ndim if axis < 0 else axis
    sizes = list(x.shape[axis:])
    if (
        len(outputs) == 1
        and x.dtype in (torch.float32, torch.float64)
        and list(scale.shape) == sizes
        and (bias is None or list(bias.shape) == sizes)
    ):
        return F.layer_norm(x, sizes, scale, bias, epsilon)
    axes = list(range(axis, x.ndim))
    wide = x.to(dtype_of(stash_type))
    mean = wide.mean(axes, keepdim=True)
    centred = wide - mean
    inverse = torch.rsqrt((centred * centred).mean(axes, keepdim=True) + epsilon)
    y = (centred * inverse).to(x.dtype) * scale
    return (y if bias is None else y + bias), mean, inverse


@operator("RMSNormalization", since=23)
def rms_normalization(x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    axis = axis + x.ndim if axis < 0 else axis
    wide = x.to(dtype_of(stash_type))
    mean = (wide * wide).mean(list(range(axis, x.ndim)), keepdim=True)
    return (wide / torch.sqrt(mean + epsilon)).to(x.dtype) * scale


@operator("GroupNormalization", since=21)
def group_normalization(
    x: Any, scale: Any, bias: Any, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@operator("GroupNormalization", since=18)
def group_normalization_of_groups(x: Any, scale: Any, bias: Any, *, num_groups: int, epsilon: float = 1e-5) -> Any:
    """Operator sets below 21 have a scale and a bias of each group."""
    each = x.shape[1] // num_groups
    wide = [torch.repeat_interleave(one, each) for one in (scale, bias)]
    return F.group_norm(x, num_groups, wide[0], wide[1], epsilon)


@operator("LRN")
def lrn(x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    """Divide by a power of the sum of squares over `size` channels around each."""
    before = (size - 1) // 2
    squares = F.pad(x * x, [0, 0] * (x.ndim - 2) + [before, size - 1 - before])
    total: Any = sum(squares.narrow(1, i, x.shape[1]) for i in range(size))
    return x / (bias + (alpha / size) * total) ** beta


@operator("LpNormalization")
def lp_normalization(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    norm = torch.sum(torch.abs(x), axis, keepdim=True) if p == 1 else torch.sqrt(torch.sum(x * x, axis, keepdim=True))
    return torch.where(norm == 0, torch.zeros_like(x), x / torch.where(norm == 0, torch.ones_like(norm), norm))


@operator("MeanVarianceNormalization")
def mean_variance_normalization(
    x: Any, *, axes: Any = (0, 2, 3), across_channels: int | None = None, normalize_variance: int = 1
) -> Any:
    axes = list(axes)
    centred = x - x.mean(axes, keepdim=True)
    if not normalize_variance:
        return centred
    return centred / (torch.sqrt((centred * centred).mean(axes, keepdim=True)) + 1e-9)


# ***** softmax *****


def _as_rows(function: Any, x: Any, axis: int) -> Any:
    """Operator sets below 13 take every dim from `axis` on as one."""
    axis = axis + x.ndim if axis < 0 else axis
    return function(x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), 1).reshape(x.shape)


def _hardmax(x: Any, axis: int) -> Any:
    best = torch.argmax(x, axis, keepdim=True)
    return torch.zeros_like(x).scatter(axis, best, torch.ones_like(best, dtype=x.dtype))


for _name, _function in {"Softmax": torch.softmax, "LogSoftmax": torch.log_softmax, "Hardmax": _hardmax}.items():

    def _enter(function: Any, name: str) -> None:
        def rows(x: Any, *, axis: int = 1) -> Any:
            return _as_rows(function, x, axis)

        def along(x: Any, *, axis: int = -1) -> Any:
            return function(x, axis)

        operator(name)(rows)
        operator(name, since=13)(along)

    _enter(_function, _name)


@operator("Dropout")
def dropout_by_attribute(x: Any, *, ratio: float = 0.5, is_test: int = 0, consumed_inputs: Any = None) -> Any:
    return x, torch.ones_like(x, dtype=torch.bool)


@operator("Dropout", since=12)
def dropout(x: Any, ratio: Any = None, training: Any = None, *, seed: int | None = None, outputs: list[bool]) -> Any:
    """Without training, or with a ratio of 0, the input; with it elements are zeroed by the default generator."""
    chance = 0.5 if ratio is None else float(ratio.item())
    if training is None or not bool(training.item()) or chance == 0.0:
        return (x, torch.ones_like(x, dtype=torch.bool)) if len(outputs) > 1 else x
    if seed is None:
        kept = torch.rand(x.shape) >= chance
    else:
        kept = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) >= chance
    return torch.where(kept, x / (1 - chance), torch.zeros_like(x)), kept


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    x: Any, skip: Any, gamma: Any, beta: Any = None, bias: Any = None, *, epsilon: float = 1e-12
) -> Any:
    total = x + skip if bias is None else x + skip + bias
    return F.layer_norm(total, [total.shape[-1]], gamma, beta, epsilon), None, None, total
