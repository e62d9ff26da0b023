"""Normalisation.

Layer norm, group norm and RMS norm are one pass over each row; their gradients too: they save the mean and the
reciprocal of the deviation of each row, and nothing as large as the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._ops.bodies import (
    HALF,
    as_float,
    dims_of,
    epsilon,
    given_dtype,
    narrow,
    not_implemented,
    onto,
    reduce_dims,
    refuse,
    rounded,
    spread,
    wide,
)
from rushlight._ops.elementwise.arithmetic import div
from rushlight._ops.reductions.reduce import count_of, norm_slope, vector_norm_body
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.symbols import as_double

__all__: list[str] = []


def _statistics(x: Any, dims: Sequence[int], eps: float) -> tuple[Any, Any, Any, Any]:
    """(x - mean, mean, sum of squares, 1 / deviation), the last three over removed dims."""
    count = as_double(count_of(x, dims))
    middle = reduce_dims("sum", x, dims) / count
    apart = x - spread(middle, x.shape, dims)
    squares = reduce_dims("sum", apart * apart, dims)
    return apart, middle, squares, prim.rsqrt(squares / count + eps)


def _row_gradient(ct: Any, normal: Any, scale: Any, dims: Sequence[int], centred: bool = True) -> Any:
    """Gradient through (x - mean) * scale, given the normalised values and the cotangent of the same."""
    count = as_double(count_of(ct, dims))
    along = spread(reduce_dims("sum", ct * normal, dims) / count, ct.shape, dims)
    rest = ct - normal * along
    if centred:
        rest = rest - spread(reduce_dims("sum", ct, dims) / count, ct.shape, dims)
    return rest * spread(scale, ct.shape, dims)


# ***** layer norm and RMS norm *****


def _trailing(name: str, x: Any, normalized_shape: Sequence[int], *parameters: Any) -> tuple[int, ...]:
    """The normalised dims; RuntimeError if shapes do not fit."""
    shape = tuple(normalized_shape)
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got normalized_shape = []"
        )
    for what, parameter in zip(("weight", "bias"), parameters, strict=False):
        if parameter is not None and parameter.shape != shape:
            raise RuntimeError(
                f"Expected {what} to be of same shape as normalized_shape, but got {what} of shape {list(parameter.shape)} and "
                f"normalized_shape = {list(shape)}"
            )
    lead = len(x.shape) - len(shape)
    if lead < 0 or x.shape[lead:] != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [*, {', '.join(map(str, shape))}], but got input of size{list(x.shape)}"
        )
    return tuple(range(lead, len(x.shape)))


def _like_rows(parameter: Any, x: Any) -> Any:
    """A parameter of the trailing shape, broadcast to every row."""
    return build.broadcast_to(parameter, x.shape)


@operator("layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor",
          promote="opmath", spaces=("torch", "nn.functional"), method=False, node="NativeLayerNormBackward0")  # fmt: skip
def layer_norm(x: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Each trailing block of `normalized_shape` with mean 0 and variance 1, times weight, plus bias."""
    refuse(x, "LayerNormKernelImpl", "c")
    dims = _trailing("layer_norm", x, normalized_shape, weight, bias)
    apart, middle, _, scale = _statistics(x, dims, eps)
    y = apart * spread(scale, x.shape, dims)
    if weight is not None:
        y = y * _like_rows(build.convert(weight, x.dtype), x)
    if bias is not None:
        y = y + _like_rows(build.convert(bias, x.dtype), x)
    return y, middle, scale


@layer_norm.gradient
def _(ct: Any, outs: Any, x: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    dims = _trailing("layer_norm", x, normalized_shape)
    _, middle, scale = outs
    lead = tuple(range(dims[0]))
    normal = (x - spread(middle, x.shape, dims)) * spread(scale, x.shape, dims)
    scaled = ct if weight is None else ct * _like_rows(build.convert(weight, x.dtype), x)
    dx = _row_gradient(scaled, normal, scale, dims)
    return (
        dx,
        reduce_dims("sum", ct * normal, lead) if weight is not None else None,
        reduce_dims("sum", ct, lead) if bias is not None else None,
    )


@operator("rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor", promote="opmath",
          spaces=("torch", "nn.functional"), method=False, like="image", node="FusedRmsNormBackward0")  # fmt: skip
def rms_norm(x: Any, normalized_shape: Any, weight: Any, eps: float | None) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight over each trailing block of `normalized_shape`; `eps` defaults to that of the
    dtype."""
    dims = _trailing("rms_norm", x, normalized_shape, weight)
    eps = (
        epsilon(given_dtype(x))
        if eps is None and given_dtype(x) not in HALF
        else epsilon(x.dtype)
        if eps is None
        else eps
    )
    scale = prim.rsqrt(reduce_dims("sum", x * x, dims) / as_double(count_of(x, dims)) + eps)
    y = x * spread(scale, x.shape, dims)
    if weight is not None:
        y = y * _like_rows(build.convert(weight, x.dtype), x)
    return y, scale


@rms_norm.gradient
def _(ct: Any, outs: Any, x: Any, normalized_shape: Any, weight: Any, eps: float | None) -> Any:
    dims = _trailing("rms_norm", x, normalized_shape)
    scale = build.conj(outs[1])
    normal = build.conj(x) * spread(scale, x.shape, dims)
    scaled = ct if weight is None else ct * _like_rows(build.conj(build.convert(weight, x.dtype)), x)
    dx = _row_gradient(scaled, normal, scale, dims, centred=False)
    return dx, None if weight is None else reduce_dims("sum", ct * normal, tuple(range(dims[0])))


# ***** group norm *****


def _grouped(x: Any, num_groups: int) -> tuple[Any, tuple[int, ...]]:
    """`x` as [N, groups, channels of a group, *space], and the dims that are normalised together."""
    if len(x.shape) < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {len(x.shape)}")
    batch, channels, *space = x.shape
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if channels % num_groups:
        raise RuntimeError(
            f"Expected number of channels in input to be divisible by num_groups, but got input of shape {list(x.shape)} and num_groups={num_groups}"
        )
    split = build.reshape(x, (batch, num_groups, channels // num_groups, *space))
    return split, tuple(range(2, len(split.shape)))


def _affine_shapes(x: Any, *parameters: Any) -> None:
    for what, parameter in zip(("weight", "bias"), parameters, strict=True):
        if parameter is not None and parameter.shape != (x.shape[1],):
            raise RuntimeError(
                f"Expected {what} to be a vector of size equal to the number of channels in input, but got {what} of shape "
                f"{list(parameter.shape)} and input of shape {list(x.shape)}"
            )


@operator("group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor", promote="opmath",
          spaces=("torch", "nn.functional"), method=False, like="image", node="NativeGroupNormBackward0")  # fmt: skip
def group_norm(x: Any, num_groups: int, weight: Any, bias: Any, eps: float) -> Any:
    """Each group of channels of each sample with mean 0 and variance 1, then weight and bias for each channel."""
    refuse(x, "GroupNormKernelImpl", "c")
    split, dims = _grouped(x, num_groups)
    _affine_shapes(x, weight, bias)
    apart, middle, _, scale = _statistics(split, dims, eps)
    y = build.reshape(apart * spread(scale, split.shape, dims), x.shape)
    if weight is not None:
        y = y * onto(build.convert(weight, x.dtype), x.shape, 1)
    if bias is not None:
        y = y + onto(build.convert(bias, x.dtype), x.shape, 1)
    return y, middle, scale


@group_norm.gradient
def _(ct: Any, outs: Any, x: Any, num_groups: int, weight: Any, bias: Any, eps: float) -> Any:
    split, dims = _grouped(x, num_groups)
    _, middle, scale = outs
    normal = (split - spread(middle, split.shape, dims)) * spread(scale, split.shape, dims)
    scaled = ct if weight is None else ct * onto(build.convert(weight, x.dtype), x.shape, 1)
    dx = _row_gradient(build.reshape(scaled, split.shape), normal, scale, dims)
    others = tuple(d for d in range(len(x.shape)) if d != 1)
    return (
        build.reshape(dx, x.shape),
        None if weight is None else reduce_dims("sum", ct * build.reshape(normal, x.shape), others),
        None if bias is None else reduce_dims("sum", ct, others),
    )


# ***** batch norm *****


def _per_channel(x: Any) -> tuple[int, ...]:
    return tuple(d for d in range(len(x.shape)) if d != 1)


def _affine(y: Any, weight: Any, bias: Any) -> Any:
    if weight is not None:
        y = y * onto(build.convert(weight, y.dtype), y.shape, 1)
    return y if bias is None else y + onto(build.convert(bias, y.dtype), y.shape, 1)


def _channel_check(x: Any, **parameters: Any) -> None:
    for what, parameter in parameters.items():
        if parameter is not None and parameter.shape != (x.shape[1],):
            raise RuntimeError(
                f"{what} should contain {x.shape[1]} elements not {parameter.shape[0] if parameter.shape else 1}"
            )


@operator("batch_norm_train(Tensor input, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)", promote="opmath",
          spaces=(), method=False, like="image", node="NativeBatchNormBackward0")  # fmt: skip
def batch_norm_train(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Each channel (dim 1) with mean 0 and variance 1 over the batch, then weight and bias.

    Returns also the mean and the unbiased variance of each channel, for the running statistics.
    """
    refuse(x, "batch_norm", "c")
    _channel_check(x, weight=weight, bias=bias)
    dims = _per_channel(x)
    count = count_of(x, dims)
    apart, middle, squares, scale = _statistics(x, dims, eps)
    y = _affine(apart * onto(scale, x.shape, 1), weight, bias)
    unbiased = squares / as_double(count - 1)  # a size, which one kernel takes as an argument
    return y, middle, unbiased, middle, scale


@batch_norm_train.gradient
def _(cts: Any, outs: Any, x: Any, weight: Any, bias: Any, eps: float) -> Any:
    ct, to_mean, to_variance = cts  # the last two only if gradients are differentiated: the mean is saved for them
    dims = _per_channel(x)
    middle, scale = outs[-2:]
    apart = x - onto(middle, x.shape, 1)
    normal = apart * onto(scale, x.shape, 1)
    to_weight = reduce_dims("sum", ct * normal, dims)
    to_bias = reduce_dims("sum", ct, dims)
    count = as_double(count_of(x, dims))
    rest = ct - onto(to_bias / count, x.shape, 1) - normal * onto(to_weight / count, x.shape, 1)
    factor = scale if weight is None else scale * build.convert(weight, scale.dtype)
    dx = rest * onto(factor, x.shape, 1) + onto(to_mean / count, x.shape, 1)
    return dx + apart * onto(to_variance * 2.0 / (count - 1.0), x.shape, 1), to_weight, to_bias


@operator("batch_norm_eval(Tensor input, Tensor running_mean, Tensor running_var, Tensor? weight, Tensor? bias, float eps) -> Tensor",
          promote="opmath", spaces=(), method=False, like="image", node="NativeBatchNormBackward0")  # fmt: skip
def batch_norm_eval(x: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Each channel (dim 1) normalised by given statistics, then weight and bias."""
    if x.shape == (0,):
        return x
    refuse(x, "batch_norm", "c")
    _channel_check(x, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    scale = prim.rsqrt(build.convert(running_var, x.dtype) + eps)
    if weight is not None:
        scale = scale * build.convert(weight, x.dtype)
    y = (x - onto(build.convert(running_mean, x.dtype), x.shape, 1)) * onto(scale, x.shape, 1)
    return y if bias is None else y + onto(build.convert(bias, x.dtype), x.shape, 1)


@batch_norm_eval.gradient
def _(ct: Any, out: Any, x: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, eps: float) -> Any:
    scale = prim.rsqrt(build.convert(running_var, x.dtype) + eps)
    factor = scale if weight is None else scale * build.convert(weight, x.dtype)
    apart = x - onto(build.convert(running_mean, x.dtype), x.shape, 1)
    dims = _per_channel(x)
    to_weight = None if weight is None else reduce_dims("sum", ct * apart, dims) * scale
    return ct * onto(factor, x.shape, 1), None, None, to_weight, None if bias is None else reduce_dims("sum", ct, dims)


@operator("instance_norm_core(Tensor input, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)", promote="opmath",
          spaces=(), method=False, node="NativeBatchNormBackward0")  # fmt: skip
def instance_norm_core(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Each channel of each sample with mean 0 and variance 1 over space, then weight and bias for each channel.

    Returns also the mean and unbiased variance of each channel, averaged over the batch; they carry no gradient.
    """
    refuse(x, "batch_norm", "c")
    dims = tuple(range(2, len(x.shape)))
    count = count_of(x, dims)
    apart, middle, squares, scale = _statistics(x, dims, eps)
    y = _affine(apart * spread(scale, x.shape, dims), weight, bias)
    batch = as_double(x.shape[0])
    unbiased = squares / as_double(count - 1) if count > 1 else squares
    return y, prim.sum(middle, dims=(0,)) / batch, prim.sum(unbiased, dims=(0,)) / batch, middle, scale


@instance_norm_core.gradient
def _(cts: Any, outs: Any, x: Any, weight: Any, bias: Any, eps: float) -> Any:
    ct, dims = cts[0], tuple(range(2, len(x.shape)))
    middle, scale = outs[-2:]
    normal = (x - spread(middle, x.shape, dims)) * spread(scale, x.shape, dims)
    scaled = ct if weight is None else ct * onto(build.convert(weight, x.dtype), x.shape, 1)
    others = _per_channel(x)
    return (
        _row_gradient(scaled, normal, scale, dims),
        None if weight is None else reduce_dims("sum", ct * normal, others),
        None if bias is None else reduce_dims("sum", ct, others),
    )


# ***** by a norm *****


@operator("normalize(Tensor input, float? p=2.0, int[1]? dim=1, float eps=1e-12) -> Tensor", spaces=("nn.functional",), method=False,
          like="operands", node="DivBackward0", out=True)  # fmt: skip
def normalize(x: Any, p: float, dim: int, eps: float) -> Any:
    """Each vector along dim divided by its p-norm, or by eps where that is less."""
    x_dtype = x.dtype
    norm, exact = vector_norm_body(x, 2.0 if p is None else p, dim, True)
    norm = wide(norm)
    bound = build.broadcast_to(prim.maximum(norm, build.full_like(norm, eps)), x.shape)
    return narrow(wide(x) / (build.complex_(bound) if x_dtype.is_complex else bound), x_dtype), exact


@normalize.gradient
def _(ct: Any, outs: Any, x: Any, p: float | None, dim: int | None, eps: float) -> Any:
    """The gradients of a quotient and a norm; half types round between the two, as in PyTorch."""
    ct, x_dtype, dims, x = wide(ct), x.dtype, dims_of(x, dim), wide(x)
    norm = rounded(outs[1], x_dtype)
    bound = spread(prim.maximum(norm, build.full_like(norm, eps)), x.shape, dims)
    direct, each = div.gradient_rule(
        ct, None, x, build.complex_(bound) if x_dtype.is_complex else bound, rounding_mode=None
    )  # type: ignore[misc]
    through = rounded(reduce_dims("sum", prim.real(each) if x_dtype.is_complex else each, dims), x_dtype)
    through = build.select(norm >= eps, through, 0.0)
    return narrow(
        direct + rounded(norm_slope(x, norm, 2.0 if p is None else p, dims, through, x_dtype), x_dtype), x_dtype
    )


@operator("local_response_norm(Tensor input, int size, float alpha=0.0001, float beta=0.75, float k=1.0) -> Tensor",
          spaces=("nn.functional",), method=False, promote="opmath", like="operands", node="DivBackward0")  # fmt: skip
def local_response_norm(x: Any, size: int, alpha: float, beta: float, k: float) -> Any:
    """x / (k + alpha * mean of squares over `size` neighbouring channels)^beta."""
    if len(x.shape) < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {len(x.shape)} dimensions)")
    if x.shape[0] == 0 or x.shape[1] == 0:
        return x
    if len(x.shape) > 3 and given_dtype(x) in HALF:  # a mean over boxes
        raise not_implemented("avg_pool3d_out_frame", given_dtype(x))
    lo, hi = [0] * len(x.shape), [0] * len(x.shape)
    channels = x.shape[1]
    lo[1], hi[1] = min(size // 2, channels), min((size - 1) // 2, channels)  # no channels beyond these
    padded = build.pad(x * x, lo, hi, [0] * len(x.shape))
    windows = prim.window(padded, dims=(1,), size=(lo[1] + hi[1] + 1,), stride=(1,), dilation=(1,))
    total = prim.sum(windows, dims=(len(x.shape),))
    whole = x.dtype.is_integer  # the mean of integers is truncated, as in `avg_pool`
    mean = as_float(prim.div_trunc(total, build.full_like(total, size))) if whole else total / as_double(size)
    x = as_float(x)
    base = mean * alpha + k
    return x / prim.pow(base, build.full_like(base, beta))
