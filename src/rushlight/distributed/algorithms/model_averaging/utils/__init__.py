"""Averaging the parameters of a model or of an optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import rushlight
import rushlight.distributed as dist
from rushlight import Tensor, no_grad
from rushlight.distributed.c10d.collectives import all_reduce_mean
from rushlight.nn import Parameter

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]


def average_parameters(params: Iterator[Parameter], process_group: Any) -> None:
    """Replace parameters by their means over the processes, with one call for each dtype."""
    if dist._rank_not_in_group(process_group):
        return
    rows: dict[Any, list[Tensor]] = {}
    for parameter in params:
        rows.setdefault(parameter.dtype, []).append(parameter.detach())
    with no_grad():
        for row in rows.values():
            flat = rushlight.cat([x.reshape(-1) for x in row])
            all_reduce_mean(flat, process_group)
            start = 0
            for x in row:
                x.copy_(flat[start : start + x.numel()].view(x.shape))
                start += x.numel()


def get_params_to_average(params: Iterable[Parameter] | Iterable[dict[str, Any]]) -> list[Parameter]:
    """The parameters that have gradients, of a list of parameters or of groups of them."""
    found: list[Parameter] = []
    for one in params:
        found += [one] if isinstance(one, Tensor) else one["params"]
    return [parameter for parameter in found if parameter.grad is not None]


def average_parameters_or_parameter_groups(params: Any, process_group: Any) -> None:
    """`average_parameters` of those that have gradients."""
    average_parameters(iter(get_params_to_average(params)), process_group)
