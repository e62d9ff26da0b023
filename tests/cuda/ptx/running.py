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

__all__ = ["Ran", "run_kernel", "run_plain", "run_text"]


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
    module = _parsed(ptx)
    machine = Machine(module, made.threads, made.shared, landing)
    machine.memory = memory = GlobalMemory([max(a.nbytes, 1) for a in arguments if isinstance(a, np.ndarray)] + _constants(module))
    words, places = [], []
    for argument, param in zip(arguments, made.params, strict=True):
        if isinstance(argument, np.ndarray):
            places.append((argument, memory.put(argument)))
            words.append(places[-1][1])
        else:
            words.append(_word(argument, param.dtype))
    with np.errstate(all="ignore"):
        machine.launch(memory, grid, _parameters(machine, made, words))
    for argument, address in places:
        memory.get(address, argument)
    return Ran(ptx, opcodes(module), machine.count, machine.moved)


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
