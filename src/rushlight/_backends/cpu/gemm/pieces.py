"""Pieces of large products that were searched for: rows and columns of C, for a product of certain sizes.

`options={"autotune": True}` (which `mode="max-autotune"` sets) measures a few of them for each large product of a
program and keeps the fastest on disk; later processes use it, eager calls too.  The pieces do not decide in which order
the steps of a sum are added, so results keep every bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from struct import error, pack, unpack

from rushlight._backends.cpu.gemm.gemm_form import Form
from rushlight._backends.cpu.runtime.threads import get_num_threads
from rushlight._base.log import log
from rushlight._native.cache import default_cache
from rushlight._native.sources import generator_files, sources_digest

__all__ = ["CANDIDATES", "fastest", "known", "search"]

CANDIDATES = ((64, 128), (128, 128), (64, 256), (128, 512), (192, 256), (256, 256), (256, 512), (96, 384))
GAIN = 1.02  # times faster than the usual pieces
ROUNDS = 5
SECONDS = 0.05  # for a candidate, about
_SOURCES = ("_backends/cpu/gemm/gemm_blocks_native.py", "_backends/cpu/gemm/gemm_form.py", "_backends/cpu/gemm/gemm_shared_native.py", "_backends/cpu/gemm/product_choice.py")  # fmt: skip

Pair = tuple[int, int]
Sizes = tuple[int, int, int]
_KNOWN: dict[tuple[str, Sizes, int], Pair | None] = {}
_ANY: list[bool] = []  # whether anything was ever searched for on this machine

clock = time.perf_counter


def known(form: Form, sizes: Sizes) -> Pair | None:
    """The pieces that were found for a product, about; None where the usual ones are used."""
    if not _ANY:
        _ANY.append(bool(default_cache().directory) and default_cache().get(_any_key()) is not None)
    if not _ANY[0]:
        return None
    key = form.key, sizes, get_num_threads()
    if key not in _KNOWN:
        data = default_cache().get(_key(key))
        _KNOWN[key] = None if data is None else _read(data)
    return _KNOWN[key]


def search(form: Form, sizes: Sizes, seconds_of: Callable[[], float]) -> Pair | None:
    """Measure all candidates, unless that was done before; the pieces that are used from now on."""
    key = form.key, sizes, get_num_threads()
    cache = default_cache()
    stored = cache.get(_key(key)) if cache.directory else None
    if stored is None and key in _KNOWN and _ANY == [True]:
        return _KNOWN[key]
    if stored is None:
        chosen = fastest(lambda pieces: _timed(key, pieces, seconds_of))
        stored = pack("<2q", *(chosen or (0, 0)))
        if cache.directory:
            stored = cache.keep(_key(key), stored)
            cache.keep(_any_key(), b"searched")
    _ANY[:] = [True]
    _KNOWN[key] = _read(stored)
    log("plan", f"pieces of {sizes}: {_KNOWN[key] or 'as usual'}")
    return _KNOWN[key]


def fastest(seconds_of: Callable[[Pair | None], float]) -> Pair | None:
    """The candidate that is clearly faster than the usual pieces (None), in two measurements."""
    usual = seconds_of(None)
    best, chosen = min((seconds_of(pieces), pieces) for pieces in CANDIDATES)
    if best * GAIN >= usual:
        return None
    return chosen if seconds_of(chosen) * GAIN < seconds_of(None) else None


def _timed(key: tuple[str, Sizes, int], pieces: Pair | None, seconds_of: Callable[[], float]) -> float:
    """The seconds of a product with these pieces."""
    before, any_before = _KNOWN.get(key), list(_ANY)
    _KNOWN[key], _ANY[:] = pieces, [True]
    try:
        return seconds_of()
    finally:
        _KNOWN[key], _ANY[:] = before, any_before


def _read(data: bytes) -> Pair | None:
    try:
        rows, columns = unpack("<2q", data)
    except error:
        return None
    return (rows, columns) if 0 < rows <= 4096 and 0 < columns <= 4096 else None


def _key(key: tuple[str, Sizes, int]) -> bytes:
    return default_cache().key("pieces", sources_digest((*generator_files(), *_SOURCES)), *map(repr, key))


def _any_key() -> bytes:
    return default_cache().key("pieces", "any")
