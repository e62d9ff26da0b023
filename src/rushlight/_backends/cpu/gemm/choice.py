"""The choice between our own kernels and the BLAS library for float32, float64 and complex products, measured once for
each machine.

An entry is for a class of products: dtype, layout of each operand, whether the product is large.  It is measured when
the class first occurs and both ways exist.  Each multiplies a few times in turn, a few milliseconds in all, and a few
times more where they are close; the shortest time of each counts.  Both results are checked: a wrong one is never
chosen.  Both run on one thread: with more, a program that takes another core for a moment would slow down one and not
the other.  The library must be faster by `MARGIN` to be chosen where our own kernels are the usual choice, and vice
versa.

The matrix tiles of Intel's AMX are chosen the same way, but tried in a process of their own first (`amx_works`): one
that crashes or gives a wrong result is not used.

**Results are reproducible**: the first process writes an entry, which then holds for every process that shares the
kernel cache, until the generator, the library or the machine changes.  Only where both ways were close does a process
measure the class once more when it ends (the first look may have been disturbed): nobody waits for a program then.  The
better times of both count, and that choice is final, for later processes.  No other timing changes it.  Without a cache
directory, and with `RUSHLIGHT_GEMM=fixed`, nothing is measured: the width of the machine's vectors decides.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable
from struct import error, pack, unpack

from rushlight._backends.cpu.gemm.blas import GEMM, blas, library_for, usually_own
from rushlight._backends.cpu.gemm.exact_products import LAYOUTS, PERIOD, exact_product
from rushlight._backends.cpu.launches import Launch, joined
from rushlight._backends.cpu.runtime.threads import alone
from rushlight._base.lazy import require
from rushlight._base.log import log
from rushlight._native.cache import default_cache
from rushlight._native.sources import generator_files, sources_digest
from rushlight._native.target import host_target

__all__ = ["CLASSES", "Entry", "amx_works", "entry", "known", "look_again", "name_of", "tried"]

_AMX_FLAGS = {"amx_bf16": ("amx_tile", "amx_bf16"), "amx_i8": ("amx_tile", "amx_int8")}
# Linux on x86-64: permission to use tile state (Documentation/arch/x86/xstate.rst)
_ASK_TILES, _TILE_DATA, _ARCH_PRCTL = (0x1023, 18, 158)
FEW = 32  # rows, columns or steps below which a product is thin
# rows, columns and steps of the measured product of each size, in periods
SIZES = {
    "medium": (13, 13, 13),
    "large": (25, 25, 25),  # both ways compare as they do for 35 periods, in a third of the time
    "few rows": (1, 35, 35),
    "few columns": (35, 1, 35),
    "few steps": (35, 35, 1),
}
LARGE = 1 << 24  # least multiplications of a large product
KINDS = ("f32", "f64", "c64", "c128")  # kinds that the library supports
CLASSES = tuple(f"{kind}, {layout}, {size}" for kind in KINDS for layout in LAYOUTS for size in SIZES)
AMX_CLASSES = tuple(f"{kind}, nn, large" for kind in _AMX_FLAGS)
MARGIN = 1.1
CLOSE = 1.25  # factor around the rate where the choice changes, within which a second look may find otherwise
ROUNDS, MORE_ROUNDS = 3, 21  # turns of both ways; more where they are close,
MORE_SECONDS, LATER_SECONDS = 0.008, 0.02  # within this many seconds: while a program waits, when the process ends
clock = time.thread_time  # the pieces run on this thread: others on the same cores change nothing
_SOURCES = (
    "_backends/cpu/gemm/blas.py", "_backends/cpu/gemm/blas_native.py", "_backends/cpu/gemm/choice.py", "_backends/cpu/gemm/gemm_blocks_native.py",
    "_backends/cpu/gemm/gemm_form.py", "_backends/cpu/gemm/gemm_native.py", "_backends/cpu/gemm/gemm_shared_native.py", "_backends/cpu/gemm/pack_native.py",
    "_backends/cpu/gemm/product_choice.py", "_backends/cpu/scratch_native.py", "_native/jit.py", "_backends/cpu/gemm/exact_products.py",
)  # fmt: skip
_FORM = "<?2d?"
_KNOWN: dict[str, Entry] = {}
_CLOSE: dict[str, tuple[int, Maker]] = {}  # classes to be measured once more, with the process that does

Pair = tuple[int, int]
Maker = Callable[[str, tuple[int, int, int], Pair, Pair, bool], list[Launch]]


class Entry:
    """One line of the table: whether our own kernels compute a class of products, and the rates of both ways in GFLOP/s
    (0: not measured).

    `sure`: no second measurement is needed.
    """

    __slots__ = ("library", "own", "own_rate", "sure")

    def __init__(self, own: bool, own_rate: float = 0.0, library: float = 0.0, sure: bool = True) -> None:
        self.own, self.own_rate, self.library, self.sure = own, own_rate, library, sure

    def packed(self) -> bytes:
        """The entry as bytes for the cache."""
        return pack(_FORM, self.own, self.own_rate, self.library, self.sure)

    def __str__(self) -> str:
        rates = (
            f"{self.own_rate:.0f} GFLOP/s generated, {self.library:.0f} by the library"
            if self.own_rate
            else "not measured"
        )
        return f"{'generated' if self.own else 'blas'} ({rates})"


def name_of(kind: str, sizes: tuple[int, int, int], a_strides: Pair, b_strides: Pair) -> str:
    """The class of a product of `sizes` (rows, columns, steps)."""
    layout = ["t" if row == 1 and column != 1 else "n" for row, column in (a_strides, b_strides)]
    least = min(sizes)
    size = "large" if sizes[0] * sizes[1] * sizes[2] >= LARGE else "medium"
    if least < FEW:
        size = ("few rows", "few columns", "few steps")[sizes.index(least)]
    return f"{kind}, {''.join(layout)}, {size}"


def entry(name: str, maker: Maker) -> Entry:
    """The entry of a class of products.  `maker(kind, sizes, a_strides, b_strides, own)` makes a product's kernels."""
    wanted = GEMM.get()
    if wanted not in ("auto", "fixed", "blas", "generated"):
        raise ValueError(f"RUSHLIGHT_GEMM must be auto, fixed, blas or generated, not {wanted!r}")
    library = library_for(name.split(",")[0])
    if library.path is None or wanted in ("blas", "generated"):
        return Entry(library.path is None or wanted == "generated")
    if wanted == "fixed" or not default_cache().directory:
        return Entry(usually_own())
    known_entry = known(name)
    if known_entry is None:
        measured = _measured(name, maker)
        known_entry = _keep(_key(name), name, measured)
    if not known_entry.sure:
        if not _CLOSE:
            atexit.register(look_again)
        _CLOSE[name] = os.getpid(), maker
    return known_entry


def look_again() -> None:
    """Measure what was close once more, for the processes after this one."""
    while _CLOSE:
        name, (process, maker) = _CLOSE.popitem()
        first = known(name)
        if process == os.getpid() and first is not None and _noted(name, "again") is None:
            better = _better(first, _measured(name, maker, LATER_SECONDS), name)
            default_cache().keep(_key(name, "again"), better.packed())
            log("plan", f"products {name}, once more: {better}")


def _keep(key: bytes, name: str, measured: Entry) -> Entry:
    """Store a measured entry and return the valid one: another process may have been first."""
    kept = _KNOWN[name] = _read(default_cache().keep(key, measured.packed())) or measured
    log("plan", f"products {name}: {kept}")
    return kept


def _better(first: Entry, second: Entry, name: str) -> Entry:
    """The best times of two measurements of a class; the second alone where it found wrong results."""
    if (
        second.sure
        and not _close(name, second.own_rate, second.library)
        and second.own != _prefers_own(name, second.own_rate, second.library)
    ):
        return second
    own_rate, library = max(first.own_rate, second.own_rate), max(first.library, second.library)
    return Entry(_prefers_own(name, own_rate, library), own_rate, library)


def _threshold(name: str) -> float:
    """The factor by which the library must be faster to be chosen."""
    usual = usually_own() or name.split(",")[0] not in KINDS
    return MARGIN if usual else 1 / MARGIN


def _prefers_own(name: str, own_rate: float, library: float) -> bool:
    return library <= own_rate * _threshold(name)


def _close(name: str, own_rate: float, library: float) -> bool:
    """Whether the choice could change in a second measurement."""
    return own_rate / CLOSE < library / _threshold(name) < own_rate * CLOSE


def amx_works(kind: str) -> bool:
    """Whether products of `kind` ("amx_bf16", "amx_i8") use matrix tiles: machine and system allow them, and a trial
    was correct."""
    target = host_target()
    if GEMM.get() == "fixed" or not default_cache().directory or target.vector_bytes != 64 or sys.platform != "linux":
        return False
    if target.arch != "x86_64" or not all(target.has(flag) for flag in _AMX_FLAGS[kind]) or not _tiles_allowed():
        return False
    name = f"{kind}, nn, large"
    known_entry = known(name)
    if known_entry is None:
        known_entry = _keep(_key(name), name, _apart(name))
    return known_entry.own


def _tiles_allowed() -> bool:
    """Ask the system for tile state; False if it refuses."""
    if not _ALLOWED:
        ctypes = require("ctypes")

        _ALLOWED.append(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ASK_TILES, _TILE_DATA) == 0)
    return _ALLOWED[0]


_ALLOWED: list[bool] = []
_TRIAL = """
import sys
sys.path[:] = {path!r}
from rushlight._backends.cpu.gemm import choice; from rushlight._backends.cpu.gemm import product_choice
print(*choice.tried({name!r}, product_choice.amx_maker))
"""


def _apart(name: str) -> Entry:
    """Measure and check matrix tiles in another process; they are not chosen if that fails."""
    import subprocess

    try:
        trial = _TRIAL.format(path=sys.path, name=name)
        done = subprocess.run([sys.executable, "-c", trial], capture_output=True, text=True, timeout=60, check=True)
        own, own_rate, library = done.stdout.split()
        return Entry(own == "True", float(own_rate), float(library))
    except (OSError, ValueError, TypeError, subprocess.SubprocessError):
        return Entry(False)


def tried(name: str, maker: Maker) -> tuple[bool, float, float]:
    """The measurement, in that process."""
    trial = _measured(name, maker) if _tiles_allowed() else Entry(False)
    return trial.own, trial.own_rate, trial.library


def known(name: str) -> Entry | None:
    """The entry of a class, or None if it is not measured yet."""
    if name not in _KNOWN:
        stored = _noted(name, "again") or _noted(name)
        if stored is None:
            return None
        _KNOWN[name] = stored
    return _KNOWN[name]


def _noted(name: str, *look: str) -> Entry | None:
    data = default_cache().get(_key(name, *look))
    return _read(data) if data is not None else None


def _read(data: bytes) -> Entry | None:
    try:
        return Entry(*unpack(_FORM, data))
    except error:
        return None


def _key(name: str, *look: str) -> bytes:
    path = blas().path or ""
    try:
        info = os.stat(path)
        path += f" {info.st_size}"
    except OSError:
        pass
    return default_cache().key("choice", sources_digest((*generator_files(), *_SOURCES)), path, name, *look)


def _measured(name: str, maker: Maker, more_seconds: float = MORE_SECONDS) -> Entry:
    """Time both ways, and check them on whole numbers, which either must multiply exactly."""
    ctypes = require("ctypes")

    kind, layout, size = name.split(", ")
    m, n, k = (PERIOD * s for s in SIZES[size])
    x, y, product = exact_product(kind, layout, SIZES[size])
    at, expected = [h.buffer_info()[0] for h in (x, y)], product.tobytes()
    strides = [
        (1, rows) if way == "t" else (columns, 1) for way, rows, columns in ((layout[0], m, k), (layout[1], k, n))
    ]
    calls = []
    for own in (True, False):
        calls.append(joined(maker(kind, (m, n, k), strides[0], strides[1], own)))
    times, right = [1e9, 1e9], [False, False]
    work, round_no, began = 2e-9 * m * n * k, 0, clock()
    with alone():
        while round_no <= ROUNDS or (
            round_no <= ROUNDS + MORE_ROUNDS
            and clock() - began < more_seconds
            and _close(name, work / times[0], work / times[1])
        ):
            for way, multiply in enumerate(calls):
                start = clock()
                result = multiply(*at)
                seconds = clock() - start
                if round_no == 0:
                    right[way] = ctypes.string_at(result.ptr, len(expected)) == expected
                else:
                    times[way] = min(times[way], seconds)
            round_no += 1
    own_rate, library = (round(work / t, 1) for t in times)
    if not all(right):
        log("plan", f"products {name}: wrong results (generated {right[0]}, library {right[1]})")
        return Entry(right[0] if any(right) else usually_own() and kind in KINDS, own_rate, library)
    return Entry(_prefers_own(name, own_rate, library), own_rate, library, not _close(name, own_rate, library))
