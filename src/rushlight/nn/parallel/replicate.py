"""Copies of a module, one on each device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.nn.modules.module import Module
from rushlight.nn.parallel.scatter_gather import no_cpu

__all__ = ["replicate"]


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """A copy of `network` for each device: none for no devices; ValueError for the CPU, AssertionError for
    accelerators, which there are not.
    """
    if not list(devices):
        return []
    no_cpu(devices)
    raise AssertionError("Broadcast function not implemented for CPU tensors")
