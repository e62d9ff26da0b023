"""`torch.numa.binding`: settings that bind workers to cores. A launcher that is given them refuses: nothing is bound."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["AffinityMode", "NumaOptions"]


class AffinityMode(str, Enum):  # noqa: UP042  (its text is PyTorch's)
    """To which cores a worker is bound: those of a node, of a socket, to itself alone, or around one cache."""

    NODE = "node"
    SOCKET = "socket"
    EXCLUSIVE = "exclusive"
    CORE_COMPLEX = "core-complex"


@dataclass(frozen=True)
class NumaOptions:
    """How workers are bound, and whether they start unbound where that fails."""

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = False
