"""Launches: arguments into memory, tensor maps by the backend's own routine, results out of memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from tests.threads.twins import _word

from rushlight._backends.cuda.tile_maps import TileMaps
from rushlight._codegen.blocks import Kernel
from rushlight._codegen.threads import ThreadKernel, lower, nvptx_text
from rushlight._native.nvidia.nvptx import ptx_of

from .bulk import MapDriver
from .machine import Machine
from .memory import GlobalMemory
from .parser import Instruction, Module, parse

__all__ = ["Ran", "launch", "run_kernel", "run_plain", "run_over", "run_text"]


@dataclass
class Ran:
    """What a launch did: the opcodes of its text, how many steps it took, moves of accumulators that were still written."""

    ptx: str
    opcodes: set[str] = field(default_factory=set)
    steps: int = 0
    moved: int = 0


@cache
def _parsed(ptx: str) -> Module:
    return parse(ptx)


def run_kernel(
    kernel: Kernel, architecture: str, grid: Sequence[int], arguments: Sequence[Any], landing: str = "late"
) -> Ran:
    """Run the PTX of a block kernel; arrays are changed in place."""
    made = lower(kernel, architecture)
    ptx = ptx_of(nvptx_text(made), architecture)
    return run_text(ptx, made, grid, arguments, landing)


def run_text(ptx: str, made: ThreadKernel, grid: Sequence[int], arguments: Sequence[Any], landing: str = "late") -> Ran:
    """The same for a text, and the thread form that tells its parameters."""
    memory = GlobalMemory([max(a.nbytes, 1) for a in arguments if isinstance(a, np.ndarray)] + _constants(_parsed(ptx)))
    places = [(a, memory.put(a)) if isinstance(a, np.ndarray) else (a, a) for a in arguments]
    ran = launch(ptx, made, grid, [word for _, word in places], memory, landing)
    for argument, address in places:
        if isinstance(argument, np.ndarray):
            memory.get(address, argument)
    return ran


def launch(
    ptx: str,
    made: ThreadKernel,
    grid: Sequence[int],
    arguments: Sequence[Any],
    memory: GlobalMemory,
    landing: str = "late",
) -> Ran:
    """Arguments are addresses in `memory` and numbers."""
    module = _parsed(ptx)
    machine = Machine(module, made.threads, made.shared, landing)
    machine.memory = memory
    words = [_word(a, p.dtype) for a, p in zip(arguments, made.params, strict=True)]
    with np.errstate(all="ignore"):
        machine.launch(memory, grid, _parameters(machine, made, words))
    return Ran(ptx, opcodes(module), machine.count, machine.moved)


def run_over(
    kernel: Kernel, grid: Sequence[int], given: Sequence[Any], buffers: Sequence[Any], architecture: str
) -> Ran:
    """A launch over buffers (`address`, `data`: bytes), whose addresses the arguments hold."""
    made = lower(kernel, architecture)
    ptx = ptx_of(nvptx_text(made), architecture)
    memory = GlobalMemory([max(b.data.size, 1) for b in buffers] + _constants(_parsed(ptx)))
    places = [memory.put(b.data) for b in buffers]

    def moved(address: int) -> int:
        for buffer, place in zip(buffers, places, strict=True):
            if buffer.address <= address < buffer.address + max(buffer.data.size, 1):
                return place + address - buffer.address
        return address  # of nothing: no thread may touch it

    arguments = [moved(a) if k in made.pointers else a for k, a in enumerate(given)]
    ran = launch(ptx, made, grid, arguments, memory)
    for buffer, place in zip(buffers, places, strict=True):
        memory.get(place, buffer.data)
    return ran


def _constants(module: Module) -> list[int]:
    return [v.size + 256 for v in module.variables.values() if v.space in ("global", "const")]


def _parameters(machine: Machine, made: ThreadKernel, words: Sequence[int]) -> list[bytes]:
    """Parameters one by one, the words of the table as one, tensor maps as the launch has the driver encode them."""
    signed = [w - (1 << 64) if w >> 63 else w for w in words]
    raw = (ctypes.c_int64 * len(words))(*signed)
    driver = MapDriver()
    encoded = bytes(TileMaps(driver, made.maps).appended(raw))[8 * len(words) :] if made.maps else b""
    machine.maps = driver.maps
    values = [(w & (1 << 64) - 1).to_bytes(8, "little") for w in words]
    table = [b"".join(values[made.table :])] if made.table < len(words) else []
    return [*values[: made.table], *table, *(encoded[128 * k : 128 * k + 128] for k in range(len(made.maps)))]


def opcodes(module: Module) -> set[str]:
    """The instructions of a module, with `@%p` before those under a predicate."""

    def name(i: Instruction) -> str:
        return ("@%p " if i.guard else "") + i.opcode

    return {name(i) for f in module.functions.values() for i in f.body}


def run_plain(ptx: str, threads: int, arguments: Sequence[Any], shared: int = 0, grid: Sequence[int] = (1,)) -> Ran:
    """Run a text that was written by hand: arrays are addresses of 64 bits, whole numbers have 32."""
    module = parse(ptx)
    machine = Machine(module, threads, shared)
    memory = GlobalMemory([max(a.nbytes, 1) for a in arguments if isinstance(a, np.ndarray)] + _constants(module))
    places = [(a, memory.put(a)) if isinstance(a, np.ndarray) else (a, a) for a in arguments]
    with np.errstate(all="ignore"):
        machine.launch(memory, grid, [int(word).to_bytes(8, "little") for _, word in places])
    for argument, address in places:
        if isinstance(argument, np.ndarray):
            memory.get(address, argument)
    return Ran(ptx, opcodes(module), machine.count)
