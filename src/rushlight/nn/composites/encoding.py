"""One-hot vectors."""

from __future__ import annotations

import rushlight
from rushlight import Tensor
from rushlight._interface.operators import only_tensors
from rushlight._interface.tensors import as_int

__all__ = ["one_hot"]


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """Integers (*) to vectors (*, num_classes) of zeros with a one at that place; -1 takes the largest value plus one.

    Raises `RuntimeError` for negative values, for values that are too large, and for other dtypes than int64.

    Example: `F.one_hot(torch.tensor([0, 2]), 3)`
    """
    only_tensors("one_hot", input=input)
    num_classes = as_int("one_hot", "num_classes", num_classes)
    if input.dtype is not rushlight.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if input.numel() == 0:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return rushlight.empty((*input.shape, num_classes), dtype=rushlight.int64, device=input.device)
    # Not on `meta`, nor a batch inside of `vmap`
    readable = num_classes == -1 or input._storage is not None and input.device.type != "meta"
    if readable and int(input.min()) < 0:
        raise RuntimeError("Class values must be non-negative.")
    largest = int(input.max()) if readable else 0
    if num_classes == -1:
        num_classes = largest + 1
    elif num_classes < 1:
        raise RuntimeError("num_classes should be positive")
    elif largest >= num_classes:
        raise RuntimeError(
            f"Class values must be smaller than num_classes. (one_hot() found {largest}, and num_classes is {num_classes})"
        )
    places = rushlight.arange(num_classes, device=input.device)
    return (input.contiguous().unsqueeze(-1) == places).to(rushlight.int64)
