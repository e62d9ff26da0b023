"""`triton.language.extra.cuda`: what concerns NVIDIA's devices; the waiting between grids is nothing on others."""

from __future__ import annotations

from ...._semantics.ambient import builtin, compilation
from . import libdevice

__all__ = ["gdc_launch_dependents", "gdc_wait", "libdevice", "num_threads", "num_warps"]


@builtin
def gdc_wait() -> None:
    """Waits for the grids that this one depends on; here, grids run one after another."""


@builtin
def gdc_launch_dependents() -> None:
    """Lets dependent grids start; here, grids run one after another."""


@builtin
def num_warps() -> int:
    """Warps of a program."""
    return int(compilation().options.num_warps)


@builtin
def num_threads() -> int:
    """Threads of a program."""
    return 32 * int(compilation().options.num_warps)
