"""Modules called side by side, one on each device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.nn.modules.module import Module

__all__ = ["parallel_apply"]


def parallel_apply(
    modules: Sequence[Module], inputs: Sequence[Any], kwargs_tup: Any = None, devices: Any = None
) -> list[Any]:
    """Each module on its inputs, each on an accelerator of its own.

    AssertionError unless there are as many inputs as modules; RuntimeError without accelerators, ValueError for a
    device that is none.
    """
    if len(modules) != len(inputs):
        raise AssertionError(f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}")
    if not modules:
        raise AssertionError("No available accelerator found.")
    named = [d for d in devices or () if d is not None]
    if named:
        raise ValueError(f"Expected a cuda device, but got: {named[0]}")
    raise RuntimeError("Cannot access accelerator device when none is available.")
