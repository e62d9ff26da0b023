"""Routines whose text the CPU's generators write, as object code."""

from __future__ import annotations

from collections.abc import Callable

from rushlight._native.jit import COMPILER_SOURCES
from rushlight._native.objectcode import ahead, obtain, wanted
from rushlight._native.sources import generator_files, sources_digest

__all__ = ["compile_made", "made_ahead"]


def compile_made(name: str, make: Callable[[], str], opt: str = "kernel") -> bytes:
    """Object code of the text that the generator's sources, and `name`, determine: a hit in the disk cache needs no
    text.  `opt` is one of `llvm_compiler.OPT_LEVELS`.
    """
    return obtain(opt, make, *_parts(name, opt))


def made_ahead(name: str, make: Callable[[], str], opt: str = "kernel") -> None:
    """Let a worker do what `compile_made` will be asked for."""
    if wanted():
        ahead(opt, make, *_parts(name, opt))


def _parts(name: str, opt: str) -> tuple[str | bytes, ...]:
    return "made", opt, sources_digest((*generator_files(), *COMPILER_SOURCES)), name
