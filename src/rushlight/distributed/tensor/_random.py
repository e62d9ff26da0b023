"""Random numbers of sharded tensors: every process draws those of the first process of the mesh."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import rushlight
from rushlight._interface.base import trace_marks
from rushlight._interface.devices import generator_of
from rushlight.distributed import distributed_c10d as dist

__all__ = ["is_rng_supported_mesh", "manual_seed", "stream_of_the_first"]


def is_rng_supported_mesh(device_mesh: Any) -> bool:
    """Whether sharded tensors over a mesh have random numbers that do not depend on it: they do on every mesh here."""
    return True


@trace_marks.changes_later_calls
def manual_seed(seed: int, device_mesh: Any) -> None:
    """Set the seed of this process's random numbers, of which sharded tensors take those of their mesh's first process.

    - `device_mesh`: the mesh; RuntimeError where this process is not in it

    Processes of other meshes, as the other stages of a pipeline, may have other seeds.
    """
    if device_mesh.get_coordinate() is None:
        raise RuntimeError("manual_seed requires the current rank to be a part of the device mesh")
    rushlight.manual_seed(seed)


@contextmanager
def stream_of_the_first(mesh: Any, devices: Iterable[Any] = ()) -> Iterator[None]:
    """A block in which the default generators of the CPU, the mesh's device and `devices` are where those of the mesh's
    first process are.

    Afterwards the first process goes on from there, and the others have the streams they had, which may be their own.
    """
    if mesh.size() == 1:
        yield
        return
    here = rushlight.empty(0, device=mesh.device_type).device
    # in one order on all processes, whose devices have numbers of their own
    used = sorted({here, rushlight.device("cpu"), *devices} - {rushlight.device("meta")}, key=lambda d: d.type)
    generators = [generator_of(device) for device in used]
    own = [generator.get_state() for generator in generators]
    state = rushlight.cat(own)
    for axis in range(mesh.ndim):
        group = mesh.get_group(axis)
        state = state.to("cpu" if rushlight.device("cpu") in group._device_types else here)
        dist.broadcast(state, dist.get_process_group_ranks(group)[0], group=group)
    first = state.cpu().split([len(before) for before in own])
    for generator, begin in zip(generators, first, strict=True):
        generator.set_state(begin)
    try:
        yield
    finally:
        if any(mesh.get_coordinate()):
            for generator, before in zip(generators, own, strict=True):
                generator.set_state(before)
