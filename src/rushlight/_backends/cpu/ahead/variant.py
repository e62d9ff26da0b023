"""The code and the tables of a program for one kind of processor, made in a process of its own.

That process compiles for a generic machine, without BLAS and without measuring which kernels are faster, so what it makes
depends on the program and the level alone (see `snapshot`).
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from rushlight._backends.ahead import Request
from rushlight._base.errors import PACKAGE, PackageError

__all__ = ["Code", "Front", "Table", "Variant", "Zeros", "make_variants"]


class Code(NamedTuple):
    """A reference to a function in an object."""

    number: int
    symbol: str


class Front(NamedTuple):
    """A reference to a function that all variants share."""

    symbol: str


class Table(NamedTuple):
    """A reference to a table, and bytes from where it begins."""

    number: int
    offset: int = 0


class Zeros(NamedTuple):
    """A reference to memory that is zero at the beginning."""

    number: int


class Variant(NamedTuple):
    """`objects` are (object code, what its undefined symbols are); `tables` (words or references, whether they are
    written to); `zeros` sizes of memory; `linked` are the tables LINKED, for each choice of sizes, `pins` (table of a
    PINNED, offset of its weight, bytes that it takes packed).
    """

    level: str
    objects: list[tuple[bytes, dict[str, Any]]]
    tables: list[tuple[list[Any], bool]]
    zeros: list[int]
    linked: list[int]
    pins: list[tuple[int, int, int]]


def make_variants(requests: Sequence[Request], levels: Sequence[str]) -> list[Variant]:
    """The variants for some levels of a program, which is given for each choice of sizes, each made by a process of its own, side by side.

    PackageError where a process cannot make one, with its reason.
    """
    environment = {**os.environ, "RUSHLIGHT_GEMM": "fixed", "RUSHLIGHT_BLAS_LIBRARY": "none"}
    path = os.path.dirname(os.path.dirname(PACKAGE))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH", "")]))
    data = pickle.dumps(list(requests))
    running = []
    try:
        for level in levels:
            process = subprocess.Popen(
                [sys.executable, "-c", f"from rushlight._backends.cpu.ahead.snapshot import main; main({level!r})"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
            )  # fmt: skip
            running.append(process)
        answers = _answers(running, data)
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    made = []
    for level, process, (out, err) in zip(levels, running, answers, strict=True):
        if process.returncode != 0:
            lines = err.decode("utf-8", "replace").strip().splitlines()
            raise PackageError(f"no code for {level}: {lines[-1] if lines else f'status {process.returncode}'}")
        status, value = pickle.loads(out)
        if status != "made":
            raise PackageError(f"no code for {level}: {value}")
        made.append(value._replace(level=level))
    return made


def _answers(running: Sequence[Any], data: bytes) -> list[tuple[bytes, bytes]]:
    """Send `data` to all processes, which work at the same time, and return their answers."""
    with ThreadPoolExecutor(len(running) or 1) as pool:
        return list(pool.map(lambda process: process.communicate(data), running))
