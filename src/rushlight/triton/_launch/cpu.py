"""Kernels on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from rushlight._interface.base import numpy as np
from rushlight._interface.blocks import BlockMemory, Kernel, interpret

__all__ = ["run_interpreted"]


def run_interpreted(kernel: Kernel, grid: Sequence[int], values: Sequence[Any]) -> None:
    """Run a kernel by the reference interpreter: slow, every access is checked against the tensors that are passed."""
    memory, given = BlockMemory(), []
    seen: set[int] = set()
    for value in values:
        if hasattr(value, "data_ptr"):
            _show(memory, value, seen)
            given.append(value.data_ptr())
        else:
            given.append(value)
    interpret(kernel, grid, given, memory)


def _show(memory: BlockMemory, tensor: Any, seen: set[int]) -> None:
    """Let the interpreter reach the storage of a tensor."""
    storage = getattr(tensor, "base", tensor).untyped_storage()
    address, size = storage.data_ptr(), storage.nbytes()
    if not size or address in seen:
        return
    seen.add(address)
    memory.add(np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8), address)
