"""Batches cut into pieces for devices, and joined again: for tensors that lie on accelerators alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight import Tensor

__all__ = ["gather", "no_cpu", "scatter", "scatter_kwargs"]


def no_cpu(devices: Sequence[Any]) -> None:
    """ValueError where the CPU is among the devices."""
    for device in devices:
        if str(device).startswith("cpu"):
            raise ValueError(f"Expected a non cpu device, but got: {device}")


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """Nested inputs for every device: tensors are cut along `dim`, everything else is repeated.

    ValueError for a tensor and the CPU, RuntimeError for a tensor and other devices, which there are not.

        >>> from rushlight.nn.parallel import scatter
        >>> scatter({"lr": 3}, ["cpu", "cpu"])
        [{'lr': 3}, {'lr': 3}]
    """
    devices = list(target_gpus)

    def cut(value: Any) -> list[Any]:
        if isinstance(value, Tensor):
            no_cpu(devices)
            raise RuntimeError(f"scatter: rushlight has no device among {devices}, only the CPU")
        if isinstance(value, (tuple, list)) and value:
            columns = list(zip(*map(cut, value), strict=True))
            if hasattr(value, "_fields"):
                return [type(value)(*items) for items in columns]
            return [type(value)(items) for items in columns]
        if isinstance(value, dict) and value:
            return [type(value)(pairs) for pairs in zip(*map(cut, value.items()), strict=True)]
        return [value for _ in devices]

    return cut(inputs)


def scatter_kwargs(inputs: Any, kwargs: Any, target_gpus: Sequence[Any], dim: int = 0) -> tuple[Any, Any]:
    """`scatter` of positional and named arguments, filled up to the same length."""
    given = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    given += [()] * (len(named) - len(given))
    named += [{}] * (len(given) - len(named))
    return tuple(given), tuple(named)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """Joins nested outputs of several accelerators; AssertionError for tensors on the CPU, as in PyTorch."""
    first = outputs[0]
    while isinstance(first, (tuple, list)) and first:
        first = first[0]
    if isinstance(first, dict) and first:
        first = next(iter(first.values()))
    if first is None:
        return None
    if isinstance(first, Tensor):
        raise AssertionError("Gather function not implemented for CPU tensors")
    raise TypeError(
        f"'{type(first).__name__}' object is not iterable: gather joins tensors, nested in tuples, lists and dicts"
    )
