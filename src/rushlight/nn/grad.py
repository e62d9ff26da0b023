"""Gradients of convolutions as functions: with respect to the input, and with respect to the weight."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.nn import functional as F

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _gradient(convolve: Any, wanted: int, pair: tuple[Any, Any], grad_output: Any, options: tuple[Any, ...]) -> Any:
    """The gradient of a convolution of the pair (input, weight) with respect to one of them."""
    differentiable = rushlight.is_grad_enabled() and any(t.requires_grad for t in (*pair, grad_output))
    with rushlight.enable_grad():
        pair[wanted].requires_grad_(True)
        stride, padding, dilation, groups = options
        out = convolve(*pair, None, stride, padding, dilation, groups)
        if out.shape != grad_output.shape:
            raise RuntimeError(
                f"{convolve.__name__}: grad_output must have the shape of the result, {tuple(out.shape)}, found {tuple(grad_output.shape)}"
            )
        (found,) = rushlight.autograd.grad(out, pair[wanted], grad_output, create_graph=differentiable)
    return found


def _input_gradient(convolve: Any, size: Any, weight: Any, grad_output: Any, options: tuple[Any, ...]) -> Any:
    start = rushlight.zeros(size, dtype=grad_output.dtype, device=grad_output.device)
    return _gradient(convolve, 0, (start, weight), grad_output, options)


def _weight_gradient(convolve: Any, input: Any, size: Any, grad_output: Any, options: tuple[Any, ...]) -> Any:
    start = rushlight.zeros(size, dtype=grad_output.dtype, device=grad_output.device)
    return _gradient(convolve, 1, (input, start), grad_output, options)


def conv1d_input(
    input_size: Any,
    weight: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient, of shape `input_size`, of `conv1d` with respect to its input, given that of its result.

    >>> import rushlight as torch
    >>> torch.nn.grad.conv1d_input((1, 1, 3), torch.tensor([[[1.0, 2.0]]]), torch.ones(1, 1, 2))
    tensor([[[1., 3., 2.]]])
    """
    return _input_gradient(F.conv1d, input_size, weight, grad_output, (stride, padding, dilation, groups))


def conv1d_weight(
    input: Any,
    weight_size: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient, of shape `weight_size`, of `conv1d` with respect to its weight, given that of its result."""
    return _weight_gradient(F.conv1d, input, weight_size, grad_output, (stride, padding, dilation, groups))


def conv2d_input(
    input_size: Any,
    weight: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient, of shape `input_size`, of `conv2d` with respect to its input, given that of its result."""
    return _input_gradient(F.conv2d, input_size, weight, grad_output, (stride, padding, dilation, groups))


def conv2d_weight(
    input: Any,
    weight_size: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient, of shape `weight_size`, of `conv2d` with respect to its weight, given that of its result."""
    return _weight_gradient(F.conv2d, input, weight_size, grad_output, (stride, padding, dilation, groups))


def conv3d_input(
    input_size: Any,
    weight: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient, of shape `input_size`, of `conv3d` with respect to its input, given that of its result."""
    return _input_gradient(F.conv3d, input_size, weight, grad_output, (stride, padding, dilation, groups))


def conv3d_weight(
    input: Any,
    weight_size: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient, of shape `weight_size`, of `conv3d` with respect to its weight, given that of its result."""
    return _weight_gradient(F.conv3d, input, weight_size, grad_output, (stride, padding, dilation, groups))
