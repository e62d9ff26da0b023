"""`torch.onnx.operators`: shapes as tensors, so that classic exports keep the sizes of their inputs."""

from __future__ import annotations

from typing import Any

import rushlight as torch

__all__ = ["reshape_from_tensor_shape", "shape_as_tensor"]


def shape_as_tensor(x: Any) -> Any:
    """The sizes of a tensor, int64 [x.ndim].

    >>> import rushlight as torch
    >>> shape_as_tensor(torch.zeros(2, 3))
    tensor([2, 3])
    """
    return torch._shape_as_tensor(x)


def reshape_from_tensor_shape(x: Any, shape: Any) -> Any:
    """`x` with the sizes that an integer tensor [n] holds.  RuntimeError where the number of elements is another."""
    return torch._reshape_from_tensor(x, shape)
