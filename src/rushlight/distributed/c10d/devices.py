"""The groups that work between devices, by NCCL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight import device as device_of_name
from rushlight._interface.devices import backends
from rushlight._interface.distributed import backend_of, find_library, nccl_group, nccl_library
from rushlight.distributed.c10d.options import Backend, BackendConfig
from rushlight.distributed.c10d.world import WORLD

__all__ = ["device_groups", "is_nccl_available", "require_nccl"]

_DEVICE = "cuda"  # the type of device that NCCL serves


def is_nccl_available() -> bool:
    """Whether NCCL's library is installed; whether there is a GPU is another question."""
    return find_library() is not None


def require_nccl() -> None:
    """RuntimeError where there is no GPU; ImportError that names the extra where NCCL is missing."""
    if _DEVICE not in backends() or _backend().device_count() == 0:
        raise RuntimeError("ProcessGroupNCCL is only supported with GPUs, no GPUs found!")
    nccl_library()


def _backend() -> Any:
    return backend_of(device_of_name(_DEVICE))


def device_groups(
    config: BackendConfig, name: str, ranks: Sequence[int], seconds: float, beside: Any
) -> dict[str, Any]:
    """Type of device -> the group of this process and others, for those that `config` gives to NCCL; `beside` is the group
    between their CPUs, or None.
    """
    if config.get_device_backend_map().get(_DEVICE) != Backend.NCCL:
        return {}
    place = tuple(ranks).index(WORLD.rank)
    unique = f"{name}/{_DEVICE}" if WORLD.rounds < 2 else f"{name}/{_DEVICE}/{WORLD.rounds}"
    return {_DEVICE: nccl_group(unique, ranks, place, WORLD.store, seconds, _backend, beside)}
