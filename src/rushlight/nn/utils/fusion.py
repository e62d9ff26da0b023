"""Batch normalisation, in evaluation, written into the layer before it."""

from __future__ import annotations

import copy
from typing import Any

import rushlight
from rushlight.nn.parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def _folded(
    weight: Any, bias: Any, mean: Any, var: Any, eps: float, scale: Any, shift: Any, channel_dim: int
) -> tuple[Any, Any]:
    """(w, b) with scale * ((w x + b) - mean) / sqrt(var + eps) + shift = w' x + b'; channels are along `channel_dim` of
    w.
    """
    scale = rushlight.ones_like(mean) if scale is None else scale
    shift = rushlight.zeros_like(mean) if shift is None else shift
    bias_dtype = weight.dtype if bias is None else bias.dtype
    bias = rushlight.zeros_like(mean) if bias is None else bias
    factor = scale * rushlight.rsqrt(var + eps)
    shape = [1] * weight.dim()
    shape[channel_dim] = -1
    new_weight = (weight * factor.reshape(shape)).to(weight.dtype)
    new_bias = ((bias - mean) * factor + shift).to(bias_dtype)
    return new_weight, new_bias


def _as_parameters(made: tuple[Any, Any], weight: Any, bias: Any) -> tuple[Any, Any]:
    wants = weight.requires_grad, weight.requires_grad if bias is None else bias.requires_grad
    return Parameter(made[0], wants[0]), Parameter(made[1], wants[1])


def fuse_conv_bn_weights(
    conv_w: Any, conv_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any, transpose: bool = False
) -> tuple[Any, Any]:
    """Weight and bias of a convolution that does the work of a batch normalisation after it too.

    `conv_w` and `conv_b` (or None) are the convolution's, the others the normalisation's: running mean and variance,
    eps, weight and bias (or None). `transpose` says that the convolution is transposed.
    """
    return _as_parameters(
        _folded(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0), conv_w, conv_b
    )


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any
) -> tuple[Any, Any]:
    """Weight and bias of a linear layer that does the work of a batch normalisation after it too; see
    `fuse_conv_bn_weights`.
    """
    return _as_parameters(_folded(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0), linear_w, linear_b)


def _require_evaluation(layer: Any, bn: Any) -> None:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of the convolution `conv` that does the work of the batch normalisation `bn` after it too. Both must be in
    evaluation.

    >>> import rushlight as torch
    >>> conv, bn = torch.nn.Conv2d(3, 8, 3).eval(), torch.nn.BatchNorm2d(8).eval()
    >>> x = torch.randn(1, 3, 5, 5)
    >>> fused = torch.nn.utils.fuse_conv_bn_eval(conv, bn)
    >>> bool(torch.allclose(fused(x), bn(conv(x)), atol=1e-5))
    True
    """
    _require_evaluation(conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of the linear layer `linear` that does the work of the batch normalisation `bn` after it too. Both must be
    in evaluation.

    AssertionError unless `bn.num_features` is the layer's number of features, or 1.
    """
    _require_evaluation(linear, bn)
    if bn.num_features not in (linear.out_features, 1):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, "
            f"got linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused
