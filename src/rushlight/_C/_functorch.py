"""Questions about tensors inside of transforms, as `torch._C._functorch`."""

from __future__ import annotations

from typing import Any

from rushlight._functorch.vmap import _add_batch_dim, _remove_batch_dim
from rushlight._interface.functorch import BatchedTensor

__all__ = ["_add_batch_dim", "_remove_batch_dim", "get_unwrapped", "is_batchedtensor"]


def is_batchedtensor(tensor: Any) -> bool:
    """Whether a tensor is one item of a batch that `vmap` goes over."""
    return isinstance(tensor, BatchedTensor)


def get_unwrapped(tensor: Any) -> Any:
    """The tensor of the level below: of a batch its values, with the batch's dim."""
    if not isinstance(tensor, BatchedTensor):
        raise RuntimeError("get_unwrapped: no wrapper to remove: the tensor is not inside of a transform")
    return tensor.value
