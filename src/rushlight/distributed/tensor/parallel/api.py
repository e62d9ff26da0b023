"""A plan for the parts of a module, applied."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch

from rushlight.distributed.device_mesh import DeviceMesh
from rushlight.distributed.tensor._api import _all_processes
from rushlight.distributed.tensor._calls import LOSS_PARALLEL
from rushlight.distributed.tensor.parallel.style import ParallelStyle
from rushlight.nn import Module

__all__ = ["loss_parallel", "parallelize_module"]


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """A module divided along a mesh of one axis: by a style, or by styles for the names of its parts.

    Names may have wildcards (`"layers.*.mlp.up"`).  Parameters of the process `src_data_rank` count; with None every
    process divides its own.

    >>> import rushlight as torch
    >>> import rushlight.distributed as dist
    >>> from rushlight.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> mesh = dist.init_device_mesh("cpu", (1,))
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> net = parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    >>> net[0].weight.placements, net[2].weight.placements, net(torch.ones(3, 4)).shape
    ((Shard(dim=0),), (Shard(dim=1),), torch.Size([3, 2]))
    >>> dist.destroy_process_group()
    """
    mesh = device_mesh or _all_processes()
    if mesh.ndim != 1:
        raise ValueError(f"a module is divided along a mesh of one axis, got {mesh}; take an axis by its name")
    if parallelize_plan is None:
        warnings.warn(
            "No parallelize_plan is provided and auto-parallel is not supported at the moment, so this parallelize_module call will do nothing.",
            stacklevel=2,
        )
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    for path, style in parallelize_plan.items():
        style.src_data_rank = src_data_rank
        for part in _parts(module, path):
            style._apply(part, mesh)
    return module


def _parts(module: Module, path: str) -> list[Module]:
    """The parts of a module whose names match; a warning where none does."""
    found, rest = [module], path.split(".") if path else []
    for word in rest:
        found = [child for part in found for name, child in part.named_children() if fnmatch(name, word)]
    if not found:
        warnings.warn(
            f"Parallelize plan key '{path}' could not be resolved: no submodule matching token '{path}' in module {type(module).__name__}, skipping this plan key.",
            stacklevel=3,
        )
    return found


@contextmanager
def loss_parallel() -> Iterator[None]:
    """A block in which a cross entropy of logits that are divided along their classes gathers nothing, and takes targets
    (and weights) that are plain tensors, the same on all processes; backward belongs into it as well.

    That nothing is gathered holds everywhere here: processes exchange each row's maximum and sum, because the operator's
    graph needs no more.
    """
    LOSS_PARALLEL.append(None)
    try:
        yield
    finally:
        LOSS_PARALLEL.pop()
