"""A block of threads while it runs: registers, where each thread is, what it waits for."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arithmetic import DTYPES
from .memory import LocalMemory, SharedMemory
from .parser import PtxError

__all__ = ["AT_BARRIER", "ASLEEP", "CONVERGING", "DONE", "READY", "WARP", "Block", "Lanes"]

Array = Any
Lanes = Any  # a slice of threads, or an array of their numbers

WARP = 32
READY, CONVERGING, AT_BARRIER, ASLEEP, DONE = range(5)
_WORDS = {1: (np.uint8, 0xA5), 2: (np.uint16, 0xA5A5), 4: (np.uint32, 0xA5A5A5A5), 8: (np.uint64, 0xA5A5A5A5_A5A5A5A5)}


class Registers:
    """The registers of all threads of a block: an array for each name, kept as unsigned words (predicates as truth values)."""

    def __init__(self, threads: int, types: dict[str, str]) -> None:
        self.threads = threads
        self.of: dict[str, Array] = {}
        for name, type in types.items():
            dtype = DTYPES[type]
            self.of[name] = np.zeros(threads, dtype if type == "pred" else f"u{np.dtype(dtype).itemsize}")

    def spoil(self) -> None:
        """Nothing may depend on what a register holds before it is written."""
        for array in self.of.values():
            array.fill(_WORDS[array.dtype.itemsize][1] if array.dtype != np.bool_ else 1)


class Block:
    """One block: `pc` is the number of each thread's next instruction."""

    def __init__(self, threads: int, registers: Registers, shared: int, local: int) -> None:
        self.threads, self.registers = threads, registers
        self.ids = np.arange(threads)
        self.pc = np.zeros(threads, np.int64)
        self.status = np.full(threads, READY, np.int8)
        self.shared = SharedMemory(shared, threads)
        self.local = LocalMemory(threads, local)
        self.returns: list[Array] = []  # return addresses of calls, the innermost last
        self.depth = np.zeros(threads, np.int64)
        self.open: dict[str, set[int]] = {}  # registers that products in the background write: the warpgroups
        self.products: dict[int, Any] = {}  # what warpgroups multiply in the background
        self.arrived: dict[int, tuple[Array, int]] = {}  # by barrier: who waits, how many it takes
        self.group_registers: dict[int, int] = {}  # of a thread, by warpgroup, where setmaxnreg changed it
        self.asked: dict[int, tuple[int, int]] = {}  # by thread: the same that it was told not to be over
        self.sleeping: dict[int, tuple[int, int]] = {}  # by thread: the mbarrier and the phase that it waits for

    @property
    def watched(self) -> bool:
        """Whether it matters which registers an instruction uses."""
        return bool(self.products)

    # ***** threads *****

    def numbers(self, lanes: Lanes) -> Array:
        return self.ids[lanes]

    def whole_warps(self, lanes: Lanes) -> bool:
        """Whether lanes are all threads of some warps."""
        if isinstance(lanes, slice):
            start, stop, _ = lanes.indices(self.threads)
            return start % WARP == 0 and stop % WARP == 0
        if len(lanes) % WARP:
            return False
        rows = lanes.reshape(-1, WARP)
        return bool((rows[:, 0] % WARP == 0).all() and (rows[:, -1] - rows[:, 0] == WARP - 1).all())

    def whole_groups(self, lanes: Lanes) -> Array:
        """The numbers of the warpgroups that lanes are; PtxError if one is incomplete."""
        numbers = self.numbers(lanes)
        if len(numbers) % 128 or (numbers.reshape(-1, 128)[:, 0] % 128).any():
            raise PtxError("an instruction of a warpgroup is executed by some of its threads")
        return numbers.reshape(-1, 128)[:, 0] // 128

    def compact(self, numbers: Array) -> Lanes:
        """Numbers in increasing order, as a slice if they are neighbours."""
        if len(numbers) and numbers[-1] - numbers[0] + 1 == len(numbers):
            return slice(int(numbers[0]), int(numbers[-1]) + 1)
        return numbers

    # ***** calls *****

    def call(self, lanes: Lanes, back: int) -> None:
        depth = self.depth[lanes]
        if len(depth) and depth.max() >= len(self.returns):
            self.returns.append(np.full(self.threads, -1, np.int64))
        for level in np.unique(depth):
            numbers = self.numbers(lanes)[depth == level]
            self.returns[level][numbers] = back
        self.depth[lanes] += 1

    def back(self, lanes: Lanes) -> Array:
        """Where these threads return to."""
        self.depth[lanes] -= 1
        numbers = self.numbers(lanes)
        return np.array([self.returns[self.depth[t]][t] for t in numbers], np.int64)
