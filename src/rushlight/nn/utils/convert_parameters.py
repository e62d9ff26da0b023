"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rushlight
from rushlight import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def _same_device(device: Any, param: Any) -> Any:
    if device is not None and device != param.device:
        raise TypeError("Found two parameters on different devices, this is currently not supported.")
    return param.device


def parameters_to_vector(parameters: Iterable[Any]) -> Tensor:
    """All parameters, flattened, in one vector.

    >>> import rushlight as torch
    >>> torch.nn.utils.parameters_to_vector([torch.ones(2), torch.zeros(1, 2)])
    tensor([1., 1., 0., 0.])
    """
    device = None
    parts = []
    for param in parameters:
        device = _same_device(device, param)
        parts.append(param.view(-1))
    return rushlight.cat(parts)


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Give the parameters the values of a vector made by `parameters_to_vector`.

    >>> import rushlight as torch
    >>> weight, bias = torch.zeros(2, 2), torch.zeros(1)
    >>> torch.nn.utils.vector_to_parameters(torch.arange(5.0), [weight, bias])
    >>> weight, bias
    (tensor([[0., 1.],
            [2., 3.]]), tensor([4.]))
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    values: Any = vec
    device = None
    start = 0
    for param in parameters:
        device = _same_device(device, param)
        size = param.numel()
        param.data = values[start : start + size].view_as(param).data
        start += size
