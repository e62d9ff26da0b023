"""The memory of a launch: the storages of its tensors; kernels by the reference interpreter on it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from rushlight._interface.base import numpy as np
from rushlight._interface.blocks import BlockMemory, Kernel, interpret, kernel_text

__all__ = ["Interpreted", "memory_of"]


def memory_of(values: Sequence[Any]) -> list[tuple[int, int]]:
    """(first, end) of the storage of each tensor among the arguments of a launch."""
    found = {}
    for value in values:
        tensor = getattr(value, "base", value)
        if hasattr(tensor, "untyped_storage"):
            storage = tensor.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return [(first, first + size) for first, size in found.items() if size]


class Interpreted:
    """A kernel that the reference interpreter runs (TRITON_INTERPRET=1): slowly, every access held against the tensors."""

    checked = True

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def launch(self, grid: Sequence[int], arguments: Sequence[Any], ranges: Sequence[tuple[int, int]] = ()) -> None:
        memory = BlockMemory()
        for first, end in ranges:
            memory.add(np.frombuffer((ctypes.c_uint8 * (end - first)).from_address(first), np.uint8), first)
        interpret(self.kernel, grid, arguments, memory)

    def texts(self) -> dict[str, str]:
        return {"blocks": kernel_text(self.kernel)}

    def report(self) -> str:
        return "run by the interpreter"
