"""Clipping gradients: by their common norm, or each element by itself."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from types import GeneratorType
from typing import Any

import rushlight
from rushlight import Tensor

__all__ = ["clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def _as_list(tensors: Any, name: str) -> list[Any]:
    if isinstance(tensors, Tensor):
        return [tensors]
    found = list(tensors)
    if not found and isinstance(tensors, GeneratorType):
        warnings.warn(f"`{name}` is an empty generator, no gradient clipping will occur.", stacklevel=4)
    return found


def get_total_norm(
    tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The `norm_type` norm of all tensors together, as if they were one vector: a tensor of shape ().

    `norm_type` may be inf. Raises `RuntimeError` for nan or inf if `error_if_nonfinite`.

    >>> import rushlight as torch
    >>> torch.nn.utils.get_total_norm([torch.tensor([3.0]), torch.tensor([4.0])])
    tensor(5.)
    """
    with rushlight.no_grad():
        grads = _as_list(tensors, "tensors")
        norm_type = float(norm_type)
        if not grads:
            return rushlight.tensor(0.0)
        spread = getattr(type(grads[0]), "_common_norm", None)  # tensors over a mesh: one reduction for all
        total = None if spread is None else spread(grads, norm_type)
        if total is None:
            total = _norm(rushlight.stack([_norm(grad, norm_type) for grad in grads]), norm_type)
        if error_if_nonfinite and not rushlight.isfinite(total):
            raise RuntimeError(
                f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
                "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
                "`error_if_nonfinite=False`"
            )
        return total


def _norm(values: Any, order: float) -> Any:
    return rushlight.linalg.vector_norm(values, order)


def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Any, foreach: bool | None = None) -> None:
    """Scale the gradients by max_norm / (total_norm + 1e-6), if that is less than 1.

    >>> import rushlight as torch
    >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> (w * torch.tensor([3.0, 4.0])).sum().backward()
    >>> torch.nn.utils.clip_grads_with_norm_([w], 1.0, torch.tensor(5.0))
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    with rushlight.no_grad():
        grads = [p.grad for p in _as_list(parameters, "parameters") if p.grad is not None]
        if not grads:
            return
        # The factor stays a tensor: reading it would wait for the device.
        factor = rushlight.clamp(float(max_norm) / (total_norm + 1e-6), max=1.0)
        for grad in grads:
            grad.mul_(factor)


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients of `parameters` in place so that their common norm is at most `max_norm`.

    Returns the norm before clipping, a tensor of shape (). Parameters without a gradient are passed over.

    Example: `clip_grad_norm_(model.parameters(), 1.0)`
    """
    params = _as_list(parameters, "parameters")
    grads = [p.grad for p in params if p.grad is not None]
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(params, max_norm, total, foreach)
    return total


def clip_grad_norm(parameters: Any, max_norm: float, norm_type: float = 2.0, **options: Any) -> Tensor:
    """The old name of `clip_grad_norm_`."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, **options)


def clip_grad_value_(parameters: Iterable[Any], clip_value: float, foreach: bool | None = None) -> None:
    """Clip every element of the gradients to [-clip_value, clip_value], in place.

    >>> import rushlight as torch
    >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> (w * torch.tensor([3.0, 4.0])).sum().backward()
    >>> torch.nn.utils.clip_grad_value_([w], 3.5)
    >>> w.grad
    tensor([3.0000, 3.5000])
    """
    limit = float(clip_value)
    with rushlight.no_grad():
        for param in [parameters] if isinstance(parameters, Tensor) else parameters:
            if param.grad is not None:
                param.grad.clamp_(min=-limit, max=limit)
