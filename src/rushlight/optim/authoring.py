"""Names of `torch.optim.optimizer` for optimizers of other packages, written in the manner of PyTorch's own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.nn.parameter import Parameter

__all__ = ["CAPTURING_DEVICES", "default_to_fused_or_foreach", "group_tensors", "use_grad_for_differentiable"]

CAPTURING_DEVICES = ("cuda", "xpu", "hpu", "privateuseone", "xla")


def use_grad_for_differentiable(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a `step`: it runs with gradients where the optimizer's defaults say `differentiable`, and without
    them elsewhere.
    """

    @functools.wraps(func)
    def stepped(self: Any, *args: Any, **kwargs: Any) -> Any:
        with rushlight.set_grad_enabled(self.defaults["differentiable"]):
            return func(self, *args, **kwargs)

    stepped.__signature__ = inspect.signature(func)  # type: ignore[attr-defined]
    return stepped


def default_to_fused_or_foreach(
    params: Sequence[Any], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """(fused, foreach): which way to step an optimizer takes that was told neither.

    Lists of operations (`torch._foreach_*`) are chosen on accelerators only: on the CPU both are False, unless
    `use_fused` asks for the first and all parameters are floating-point.
    """
    if differentiable:
        return False, False
    fused = use_fused and all(p is None or type(p) in (Tensor, Parameter) and p.is_floating_point() for p in params)
    foreach = not fused and all(
        p is None or type(p) in (Tensor, Parameter) and p.device.type in ("cuda", "xpu") for p in params
    )
    return fused, foreach


def group_tensors(
    tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
    """Lists that belong together element by element, cut by the device and dtype of the first list's tensors.

    Returns (device, dtype) -> (the lists of that group, the places of its elements; [] unless `with_indices`).

    >>> a, b = rushlight.ones(2), rushlight.ones(2, dtype=rushlight.float64)
    >>> {dtype: places for (_, dtype), (_, places) in group_tensors([[a, b, a]], with_indices=True).items()}
    {torch.float32: [0, 2], torch.float64: [1]}
    """
    places: dict[tuple[Any, Any], list[int]] = {}
    for place, tensor in enumerate(tensorlistlist[0]):
        places.setdefault((tensor.device, tensor.dtype), []).append(place)
    return {
        key: (
            [[each[place] for place in found] if each else [] for each in tensorlistlist],
            found if with_indices else [],
        )
        for key, found in places.items()
    }
