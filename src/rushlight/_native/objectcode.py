"""Object code, wherever it comes from: the disk cache, the objects that the package ships, a worker that was asked
ahead of need, or LLVM here.
"""

from __future__ import annotations

from collections.abc import Callable

from rushlight._base.digest import DIGEST_BYTES
from rushlight._native import jit, workers
from rushlight._native.cache import default_cache
from rushlight._native.shipped import shipped_pack
from rushlight._native.workers import wanted

__all__ = ["FILE_BYTES", "ahead", "begins_empty", "expect_half", "file_of", "in_file", "obtain", "wanted"]

FILE_BYTES = 2 * DIGEST_BYTES


def obtain(opt: str, make: Callable[[], str], *parts: str | bytes) -> bytes:
    """The object of the LLVM text that `make` returns, which `parts` determine; `opt` is one of
    `llvm_compiler.OPT_LEVELS`.

    The text is made only where the object has to be compiled.  RuntimeError when LLVM does not accept it.
    """
    cache = default_cache()
    key = cache.key(*parts)
    data = cache.get(key)
    if data is not None:
        return data
    pack = shipped_pack()
    data = pack.get(parts) if pack is not None else None
    if data is None:
        data, text = workers.take(key, jit.compile_object)
        if data is None:
            workers.compiled_here()
            data = jit.compile_object(make() if text is None else text, opt)
        cache.put(key, data)
    return data


def begins_empty() -> bool:
    """Whether nothing at all is compiled yet: no process kept anything for this machine, and the package brings
    nothing.

    Then workers may begin at once with what every program needs.
    """
    pack = shipped_pack()
    if not default_cache().fresh or (pack is not None and pack.rows):
        return False
    workers.expect_many()
    return workers.wanted()


def expect_half() -> None:
    """Say that code of half types will be needed: the package brings none, so where no process kept anything either,
    workers may begin at once.
    """
    if default_cache().fresh:
        workers.expect_many()


def ahead(opt: str, make: Callable[[], str], *parts: str | bytes) -> None:
    """Let a worker compile what `obtain` will soon be asked for with the same arguments, unless it is there already."""
    if not wanted():
        return
    cache = default_cache()
    key = cache.key(*parts)
    pack = shipped_pack()
    if not (workers.knows(key) or cache.has(key) or (pack is not None and pack.has(parts))):
        workers.send(key, opt, make(), jit.processor)


def file_of(*parts: str | bytes) -> bytes:
    """Where the object of these parts is on disk: its keys in the cache and in the pack, for `in_file`."""
    pack = shipped_pack()
    return default_cache().key(*parts) + (pack.key(parts) if pack is not None else bytes(DIGEST_BYTES))


def in_file(file: bytes) -> bytes | None:
    """The object that `file_of` tells of, None where neither the cache nor the pack has it any longer."""
    data = default_cache().get(file[:DIGEST_BYTES])
    pack = shipped_pack() if data is None else None
    return data if pack is None else pack.under(file[DIGEST_BYTES:])
