"""Normalisation with running statistics: batch and instance normalisation."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.operators import function_of, inplace_of, only_tensors
from rushlight._interface.tensors import as_flag

__all__ = ["batch_norm", "instance_norm"]


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel (dimension 1) of `input`, then scale by `weight` and shift by `bias`.

    In training with the statistics of the batch, which are mixed into the running ones, in place: new = (1 - momentum)
    * old + momentum * batch, with the unbiased variance. Else with the running statistics. Raises `ValueError` if a
    channel has one value only in training, and for an `eps` below zero (zero in training).
    """
    if as_flag("batch_norm", "training", training):
        _check_values(input, math.prod(n for i, n in enumerate(input.shape) if i != 1))
    only_tensors("batch_norm", input=input)
    for name, running in (("running_mean", running_mean), ("running_var", running_var)):
        if running is not None and running.requires_grad and rushlight.is_grad_enabled():
            raise RuntimeError(
                f"The function 'batch_norm' is not differentiable with respect to argument '{name}'. This input cannot have requires_grad True."
            )
    if eps < 0 or (training and eps == 0):
        raise ValueError(
            f"batch_norm eps must be {'positive during training' if training else 'non-negative'}, but got {eps}"
        )
    # How many numbers there are is what counts
    weight, bias = (p if p is None or p.ndim == 1 else p.reshape(-1) for p in (weight, bias))
    if input.numel() == 0:
        # Nothing to normalise, but the result still depends on all that take gradients.
        out = input.clone()
        out = out if weight is None else out * weight[0]
        return out if bias is None else out + bias[0]
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError("running_mean and running_var must be defined in evaluation mode")
        return function_of("batch_norm_eval")(input, running_mean, running_var, weight, bias, eps)
    for running in (running_mean, running_var):
        _check_running(input, running)
    out, mean, var = function_of("batch_norm_train")(input, weight, bias, eps)
    _mix(running_mean, mean, momentum)
    _mix(running_var, var, momentum)
    return out


def _check_values(input: Any, values: int) -> None:
    if values == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.size()}")


def _check_running(input: Any, running: Any) -> None:
    if running is None:
        return
    mixed = input.dtype.itemsize == 2 and running.dtype is rushlight.float32
    if running.dtype is not input.dtype and not mixed:
        raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")
    if running.dim() != 1:
        raise RuntimeError(f"expected running statistics of 1 dim, but found {running.dim()}")


def _mix(running: Any, batch: Any, momentum: float) -> None:
    if running is not None:
        with rushlight.no_grad():
            inplace_of("running_average")(running, batch.detach(), momentum)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each sample of `input` (N, C, *); running statistics are averaged over the samples."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    only_tensors("instance_norm", input=input)
    if math.prod(input.shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.size()}")
    out, mean, var = function_of("instance_norm_core")(input, weight, bias, eps)
    _mix(running_mean, mean, momentum)
    _mix(running_var, var, momentum)
    return out
