"""Peak rates of the machine, measured by routines that do nothing else: arithmetic in registers, copies of memory.

The routines take the same pool of threads as kernels do; the figures are the best of many short runs.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from rushlight._backends.cpu.gemm.blas import host_tiles
from rushlight._backends.cpu.gemm.choice import amx_works
from rushlight._backends.cpu.gemm.gemm_form import SUMS, WORDS
from rushlight._backends.cpu.microkernels.amx_tile import AmxTile
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._backends.cpu.runtime import stubs
from rushlight._backends.cpu.runtime.limits import wanted_threads
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._native import extern, jit, memcpy, native
from rushlight._native.compiled import compile_native, compile_text

__all__ = ["FOOTPRINTS", "Peak", "best", "copy_rates", "flop_rate", "peak_of_machine"]

FOOTPRINTS = (1 << 18, 1 << 22, 1 << 24, 1 << 26, 1 << 29)  # bytes that are read and written together
_PANELS = 1 << 15  # bytes of the panels of matrix tiles: they stay in the first cache
_DEPTH = 256  # words of the panels of other tiles
_ROUNDS = 400
_KINDS = {"float64": "f64", "bfloat16": "bf16"}  # the others are computed in float32
_KNOWN: dict[int, Peak] = {}


@dataclass(frozen=True)
class Peak:
    """`flops[dtype]` a second, `copy[footprint]` bytes a second."""

    flops: dict[str, float]
    copy: dict[int, float]

    def seconds(self, operations: float, moved: float, dtype: str = "float32") -> float:
        """The least time for so much work: arithmetic or memory, whichever takes longer."""
        footprint = next((f for f in self.copy if f >= moved), max(self.copy))
        rate = self.flops.get(dtype) or self.flops["float32"]
        return max(operations / rate, moved / self.copy[footprint])


def peak_of_machine() -> Peak:
    """The limits for the threads in use, measured by the first call (about a second)."""
    threads = wanted_threads()
    found = _KNOWN.get(threads)
    if found is None:
        flops = {"float32": flop_rate(threads, "f32", 0.1)}
        flops |= {name: flop_rate(threads, kind, 0.1) for name, kind in _KINDS.items()}
        found = _KNOWN[threads] = Peak(flops, copy_rates(threads, FOOTPRINTS[:-1], 0.1))
    return found


def best(run: Callable[[], Any], seconds: float = 0.3) -> float:
    """The shortest of the runs that fit into a while."""
    run()
    shortest, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        run()
        shortest = min(shortest, time.perf_counter() - began)
    return shortest


def _loaded(function: Any, symbol: str, imports: dict[str, int]) -> Any:
    image = jit.load(compile_native([function]), [symbol], {**runtime().symbols, **imports})
    return stubs.make_kernel_callable(image[symbol], symbol), image


def _constants(pieces: int, *words: int) -> Any:
    return (ctypes.c_int64 * (8 + len(words)))(pieces, 0, 0, 0, 0, 0, 0, 0, *words)


def flop_rate(threads: int, kind: str, seconds: float = 0.3) -> float:
    """Floating point operations a second of a kind's tile on panels that stay in the first cache."""
    tile = _tile(kind)
    cell, sums = WORDS[tile.kind]
    sides = tile.rows + tile.columns
    depth = _DEPTH if isinstance(tile, RegisterTile) else _PANELS // (cell * sides)
    step = extern(tile.symbol, "void(ptr, ptr, ptr, i64, i64, i64)")
    panels = cell * depth * sides

    @native("i32(ptr, ptr, i64)", name="peak_flops")
    def peak_flops(bufs, ints, piece):
        a = bufs.ptr[0] + piece * ints.i64[8]
        for _ in range(ints.i64[9]):
            step(a, a + ints.i64[10], a + ints.i64[11], ints.i64[12], ints.i64[13], 0)
        return 0

    image = jit.load(compile_text(tile.text), (tile.symbol,))
    kernel, kept = _loaded(peak_flops, "peak_flops", {tile.symbol: image[tile.symbol]})
    each = panels + SUMS[sums].itemsize * tile.rows * tile.columns + 4096
    memory = _zeros(each * threads + 4096)
    ints = _constants(threads, each, _ROUNDS, cell * depth * tile.rows, panels, tile.columns, depth)
    took = best(lambda: kernel(ctypes.addressof(ints), memory.ptr), seconds)
    assert kept is not None  # the code that runs
    return 2.0 * tile.group * threads * _ROUNDS * depth * tile.rows * tile.columns / took


def _tile(kind: str) -> RegisterTile | AmxTile:
    """The tile that multiplies fastest here."""
    if kind == "bf16" and amx_works("amx_bf16"):
        return AmxTile("amx_bf16", "tdpbf16ps")
    return host_tiles(kind)[0]


def copy_rates(threads: int, footprints: tuple[int, ...] = FOOTPRINTS, seconds: float = 0.3) -> dict[int, float]:
    """Bytes read and written a second, for each footprint."""

    @native("i32(ptr, ptr, i64)", name="peak_copy")
    def peak_copy(bufs, ints, piece):
        n = ints.i64[8]
        for _ in range(ints.i64[9]):
            memcpy(bufs.ptr[0] + piece * n, bufs.ptr[1] + piece * n, n)
        return 0

    kernel, kept = _loaded(peak_copy, "peak_copy", {})
    found = {}
    for footprint in footprints:
        each = footprint // 2 // threads
        to, source = (_zeros(footprint // 2 + 4096) for _ in range(2))
        rounds = max(1, (1 << 24) // footprint)
        ints = _constants(threads, each, rounds)
        took = best(partial(kernel, ctypes.addressof(ints), to.ptr, source.ptr), seconds)
        found[footprint] = 2.0 * each * threads * rounds / took
    assert kept is not None
    return found


def _zeros(nbytes: int) -> Any:
    """A storage of zeros, whose pages were all touched."""
    storage = runtime().alloc(nbytes)
    ctypes.memset(storage.ptr, 0, nbytes)
    return storage
