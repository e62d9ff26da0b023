"""Policies of `fully_shard`: dtypes, and where parameters are between uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["CPUOffloadPolicy", "DataParallelMeshDims", "MixedPrecisionPolicy", "OffloadPolicy"]


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Dtypes of a sharded module: `param_dtype` of the parameters that it computes with, `reduce_dtype` of gradients while
    they are reduced (by default `param_dtype`), `output_dtype` of its outputs; None leaves a dtype as it is.

    Parts that are kept, and their gradients, have the parameters' own dtype.  With `cast_forward_inputs` floating inputs
    become `param_dtype`.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Parts of parameters stay on their device."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parts of parameters, gradients and optimizer states are in the host's memory, where those of a CPU are anyway."""

    pin_memory: bool = True


@dataclass(frozen=True)
class DataParallelMeshDims:
    """Which axes of a mesh of all kinds of parallelism divide parameters (`shard`), and along which they are replicas.

    ValueError where neither is named.  `fully_shard` takes meshes of the data parallel axes alone, and refuses this.
    """

    shard: str | tuple[str, ...] | None = None
    replicate: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.shard is None and self.replicate is None:
            raise ValueError("At least one of shard or replicate must be set in DataParallelMeshDims")

    @property
    def shard_names(self) -> tuple[str, ...]:
        """The names of the axes that divide."""
        return _names(self.shard)

    @property
    def replicate_names(self) -> tuple[str, ...]:
        """The names of the axes of replicas."""
        return _names(self.replicate)


def _names(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)
