"""Batches cut into pieces for devices, and joined again: for tensors that lie on accelerators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight import Tensor
from rushlight._interface.base import LazyModule

__all__ = ["gather", "scatter", "scatter_kwargs"]

_functions: Any = LazyModule("rushlight.nn.parallel._functions")  # loads `torch.cuda`


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """Nested inputs for every device: tensors are cut along `dim`, everything else is repeated.

    Fewer results than devices where a tensor has fewer pieces.  ValueError for a tensor and the CPU, RuntimeError for a
    tensor and a device that there is not.

        >>> from rushlight.nn.parallel import scatter
        >>> scatter({"lr": 3}, ["cpu", "cpu"])
        [{'lr': 3}, {'lr': 3}]
    """
    devices = list(target_gpus)

    def cut(value: Any) -> Any:
        if isinstance(value, Tensor):
            return _functions.Scatter.apply(devices, None, dim, value)
        if isinstance(value, (tuple, list)) and value:
            columns = list(zip(*map(cut, value), strict=False))
            if hasattr(value, "_fields"):
                return [type(value)(*items) for items in columns]
            return [type(value)(items) for items in columns]
        if isinstance(value, dict) and value:
            return [type(value)(pairs) for pairs in zip(*map(cut, value.items()), strict=False)]
        return [value for _ in devices]

    return cut(inputs)


def scatter_kwargs(inputs: Any, kwargs: Any, target_gpus: Sequence[Any], dim: int = 0) -> tuple[Any, Any]:
    """`scatter` of positional and named arguments, filled up to the same length."""
    given = list(scatter(inputs, target_gpus, dim)) if inputs else []
    named = list(scatter(kwargs, target_gpus, dim)) if kwargs else []
    given += [()] * (len(named) - len(given))
    named += [{}] * (len(given) - len(named))
    return tuple(given), tuple(named)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """Joins nested outputs of several accelerators on one device ("cpu", or -1, is the CPU).

    AssertionError for tensors on the CPU, as in PyTorch, ValueError for dicts of several sizes.
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        return _functions.Gather.apply(target_device, dim, *outputs)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(len(each) != len(first) for each in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((key, gather([each[key] for each in outputs], target_device, dim)) for key in first)
    if not isinstance(first, (tuple, list)):
        raise TypeError(
            f"'{type(first).__name__}' object is not iterable: gather joins tensors, nested in tuples, lists and dicts"
        )
    columns = [gather(column, target_device, dim) for column in zip(*outputs, strict=True)]
    return type(first)(*columns) if hasattr(first, "_fields") else type(first)(columns)
