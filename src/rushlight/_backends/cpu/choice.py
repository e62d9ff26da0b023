"""Who computes products of float32 and float64: our own kernels or the BLAS library, by a table that is measured once for a machine.

An entry stands for a class of products: dtype, how each operand lies, whether the product is large.  It is measured when the class first occurs
and both ways exist: a product of each way, a few times in turn, some milliseconds in all; both results are checked, and a wrong one is never
chosen.  The library must be faster by `MARGIN` to be chosen where our own kernels are the usual choice, and the other way round.

The matrix tiles of Intel's AMX are chosen the same way, but tried in a process of their own first (`amx_works`): one that crashes, or gives a
wrong result, is not used.

**Results are reproducible**: an entry is written once, by whoever is first, and then holds for every process that shares the kernel cache,
until the generator, the library or the machine changes; no later timing alters it.  Without a cache directory, and with
`RUSHLIGHT_GEMM=fixed`, nothing is measured: the width of the machine's vectors decides.
"""

from __future__ import annotations

import os
import sys
import time
from array import array
from collections.abc import Callable
from struct import error, pack, unpack
from typing import Any

from rushlight._backends.cpu.blas import GEMM, blas, usually_own
from rushlight._backends.cpu.cache import default_cache
from rushlight._backends.cpu.sources import files_below, sources_digest
from rushlight._backends.cpu.target import host_target
from rushlight._base.log import log

__all__ = ["CLASSES", "Entry", "amx_works", "entry", "known", "name_of", "tried"]

# what is measured: type codes of operands and results, as those of `array`; bfloat16 is held in 16 bits
_CODES = {"f32": ("f", "f"), "f64": ("d", "d"), "amx_bf16": ("H", "f"), "amx_i8": ("b", "i")}
_AMX_FLAGS = {"amx_bf16": ("amx_tile", "amx_bf16"), "amx_i8": ("amx_tile", "amx_int8")}
_ASK_TILES, _TILE_DATA, _ARCH_PRCTL = 0x1023, 18, 158  # Linux on x86-64: permission for the state of tiles (Documentation/arch/x86/xstate.rst)
PERIOD = 13  # matrices that are measured repeat after so many rows and columns: no tile has such a side
FEW = 32  # rows, columns or steps below which a product is thin
# rows, columns and steps of what is measured for each size, in periods
SIZES = {"medium": (13, 13, 13), "large": (35, 35, 35), "few rows": (1, 35, 35), "few columns": (35, 1, 35), "few steps": (35, 35, 1)}
LARGE = 1 << 24  # multiplications from which a product is large
LAYOUTS = ("nn", "nt", "tn", "tt")  # A, then B; t: neighbours lie in a column
CLASSES = tuple(f"{kind}, {layout}, {size}" for kind in ("f32", "f64") for layout in LAYOUTS for size in SIZES)
AMX_CLASSES = tuple(f"{kind}, nn, large" for kind in _AMX_FLAGS)
MARGIN = 1.1
ROUNDS = 6
_SOURCES = (
    "_backends/cpu/blas.py", "_backends/cpu/blas_native.py", "_backends/cpu/choice.py", "_backends/cpu/gemm_native.py",
    "_backends/cpu/pack_native.py", "_backends/cpu/products.py", "_backends/cpu/scratch_native.py", "_backends/cpu/jit.py",
)  # fmt: skip
_KNOWN: dict[str, Entry] = {}

Pair = tuple[int, int]
Maker = Callable[[str, tuple[int, int, int], Pair, Pair, bool], tuple[Callable[..., Any], list[int]]]


class Entry:
    """One line of the table: whether our own kernels compute a class of products, and the rates of both ways in GFLOP/s (0: not measured)."""

    __slots__ = ("library", "own", "own_rate")

    def __init__(self, own: bool, own_rate: float = 0.0, library: float = 0.0) -> None:
        self.own, self.own_rate, self.library = own, own_rate, library

    def __str__(self) -> str:
        rates = f"{self.own_rate:.0f} GFLOP/s generated, {self.library:.0f} by the library" if self.own_rate else "not measured"
        return f"{'generated' if self.own else 'blas'} ({rates})"


def name_of(kind: str, sizes: tuple[int, int, int], a_strides: Pair, b_strides: Pair) -> str:
    """The class of a product of `sizes` (rows, columns, steps)."""
    turned = ["t" if row == 1 and column != 1 else "n" for row, column in (a_strides, b_strides)]
    least = min(sizes)
    size = "large" if sizes[0] * sizes[1] * sizes[2] >= LARGE else "medium"
    if least < FEW:
        size = ("few rows", "few columns", "few steps")[sizes.index(least)]
    return f"{kind}, {''.join(turned)}, {size}"


def entry(name: str, maker: Maker) -> Entry:
    """Who computes a class of products.  `maker(kind, sizes, a_strides, b_strides, own)` gives a kernel and its constants."""
    wanted = GEMM.get()
    if wanted not in ("auto", "fixed", "blas", "generated"):
        raise ValueError(f"RUSHLIGHT_GEMM must be auto, fixed, blas or generated, not {wanted!r}")
    library = blas()
    if library.path is None or wanted in ("blas", "generated"):
        return Entry(library.path is None or wanted == "generated")
    if wanted == "fixed" or not default_cache().directory:
        return Entry(usually_own())
    found = known(name)
    if found is None:
        measured = _measured(name, maker)
        kept = default_cache().keep(_key(name), pack("<?2d", measured.own, measured.own_rate, measured.library))
        found = _KNOWN[name] = _read(kept) or measured
        log("plan", f"products {name}: {found}")
    return found


def amx_works(kind: str) -> bool:
    """Whether products of `kind` ("amx_bf16", "amx_i8") go to matrix tiles: the machine and the system allow it, and they were seen to be right."""
    target = host_target()
    if GEMM.get() == "fixed" or not default_cache().directory or target.vector_bytes != 64 or sys.platform != "linux":
        return False
    if target.arch != "x86_64" or not all(target.has(flag) for flag in _AMX_FLAGS[kind]) or not _tiles_allowed():
        return False
    name = f"{kind}, nn, large"
    found = known(name)
    if found is None:
        measured = _apart(name)
        kept = default_cache().keep(_key(name), pack("<?2d", measured.own, measured.own_rate, measured.library))
        found = _KNOWN[name] = _read(kept) or measured
        log("plan", f"products {name}: {found}")
    return found.own


def _tiles_allowed() -> bool:
    """Ask the system for the state that tiles need; False where it refuses."""
    if not _ALLOWED:
        import ctypes

        _ALLOWED.append(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ASK_TILES, _TILE_DATA) == 0)
    return _ALLOWED[0]


_ALLOWED: list[bool] = []
_TRIAL = """
import sys
sys.path[:] = {path!r}
from rushlight._backends.cpu import choice, products
print(*choice.tried({name!r}, products.amx_maker))
"""


def _apart(name: str) -> Entry:
    """Matrix tiles measured and checked by another process; not chosen where that fails."""
    import subprocess

    try:
        trial = _TRIAL.format(path=sys.path, name=name)
        done = subprocess.run([sys.executable, "-c", trial], capture_output=True, text=True, timeout=60, check=True)
        own, own_rate, library = done.stdout.split()
        return Entry(own == "True", float(own_rate), float(library))
    except (OSError, ValueError, TypeError, subprocess.SubprocessError):
        return Entry(False)


def tried(name: str, maker: Maker) -> tuple[bool, float, float]:
    """In that process: what was found."""
    found = _measured(name, maker) if _tiles_allowed() else Entry(False)
    return found.own, found.own_rate, found.library


def known(name: str) -> Entry | None:
    """The entry of a class, where it was measured already."""
    if name not in _KNOWN:
        data = default_cache().get(_key(name))
        found = _read(data) if data is not None else None
        if found is None:
            return None
        _KNOWN[name] = found
    return _KNOWN[name]


def _read(data: bytes) -> Entry | None:
    try:
        return Entry(*unpack("<?2d", data))
    except error:
        return None


def _key(name: str) -> bytes:
    path = blas().path or ""
    try:
        info = os.stat(path)
        path += f" {info.st_size}"
    except OSError:
        pass
    return default_cache().key("choice", sources_digest((*files_below("_kernels"), *_SOURCES)), path, name)


def _measured(name: str, maker: Maker) -> Entry:
    """Both ways timed, and checked on whole numbers, which either must multiply exactly."""
    import ctypes

    kind, layout, size = name.split(", ")
    m, n, k = (PERIOD * s for s in SIZES[size])
    code, result = _CODES[kind]
    x, y = ([[(i * i * a + i * k * b + k * k * c) % 17 - 8 for k in range(PERIOD)] for i in range(PERIOD)] for a, b, c in ((1, 3, 5), (2, 7, 4)))
    want = [[k // PERIOD * sum(x[i][p] * y[p][j] for p in range(PERIOD)) for j in range(PERIOD)] for i in range(PERIOD)]
    held, strides = [], []
    for block, rows, columns, way in ((x, m, k, layout[0]), (y, k, n, layout[1])):
        if way == "t":
            held.append(_repeated([list(row) for row in zip(*block, strict=True)], columns, rows, code))
        else:
            held.append(_repeated(block, rows, columns, code))
        strides.append((1, rows) if way == "t" else (columns, 1))
    at, expected = [h.buffer_info()[0] for h in held], _repeated(want, m, n, result).tobytes()
    calls = []
    for own in (True, False):
        kernel, ints = maker(kind, (m, n, k), strides[0], strides[1], own)
        calls.append((kernel, array("q", ints)))
    times, right = [1e9, 1e9], [False, False]
    for turn in range(ROUNDS + 1):
        for way, (kernel, words) in enumerate(calls):
            began = time.perf_counter()
            made = kernel(words.buffer_info()[0], *at)
            seconds = time.perf_counter() - began
            if turn == 0:
                right[way] = ctypes.string_at(made.ptr, len(expected)) == expected
            else:
                times[way] = min(times[way], seconds)
    usual = usually_own() or kind not in ("f32", "f64")
    own = times[0] <= times[1] * (MARGIN if usual else 1 / MARGIN)
    if not all(right):
        log("plan", f"products {name}: wrong results (generated {right[0]}, library {right[1]})")
        own = right[0] if any(right) else usually_own() and kind in ("f32", "f64")
    rates = [round(2e-9 * m * n * k / t, 1) for t in times]
    return Entry(own, *rates)


def _repeated(block: list[list[int]], rows: int, columns: int, code: str) -> array[Any]:
    """A matrix made of one block, row after row."""
    numbers = [v for row in block for v in row * (columns // PERIOD)]
    if code == "H":
        numbers = [unpack("<I", pack("<f", v))[0] >> 16 for v in numbers]
    return array(code, numbers) * (rows // PERIOD)
