"""CPUs as the schedule and the code generator see them."""

from __future__ import annotations

from typing import Any

from rushlight._backends.cpu.library import CPU_LIBRARY
from rushlight._schedule.policy import Target

__all__ = ["cpu_target"]


def cpu_target(machine: Any) -> Target:
    """The target for a description of a machine (`arch`, `has(flag)`, `vector_bytes`, `l2_bytes`, `l3_bytes`)."""
    fma = machine.arch != "x86_64" or (machine.vector_bytes > 16 and machine.has("fma"))
    return Target(machine.vector_bytes, machine.l2_bytes, machine.l3_bytes, fma, CPU_LIBRARY)
