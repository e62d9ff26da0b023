"""Count the instructions of a call of each overhead row, in one tree or beside another, with Valgrind.

    python bench/instructions.py                               # this tree
    python bench/instructions.py BEFORE AFTER --limit 2        # two checkouts; exits with 1 where a row grew by over 2 %

Times of such rows vary by several percent from run to run, counts by some hundredths.  A count is the difference of two run
lengths, so that what surrounds the calls does not take part.  Rows are those of this file's folder in both trees, each
process has one thread, and vectors have 32 bytes (Valgrind knows no wider ones): kernels take part as they would be there.
Needs `valgrind` on x86-64.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

from rows import ROWS

ROOT = Path(__file__).resolve().parents[1]
# Calls until plans are made and what happens once (classes that get slots, tables that grow) is over, and in the two lengths.
WARM, SHORT, LONG = 400, 100, 500
# Valgrind's manual, "The Client Request mechanism": rotations that change nothing, then an exchange of a register with itself.
# rax: address of the six words of a request, rdx: the result.
_REQUEST = bytes.fromhex("4889f8 31d2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3")
_TOOL = (ord("C") << 24) | (ord("T") << 16)
_ZERO, _DUMP_AT, _START, _STOP = _TOOL + 1, _TOOL + 3, _TOOL + 4, _TOOL + 5


def requester() -> Callable[..., None]:
    """A function that sends a request to Valgrind, with a text where the request takes one."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(_REQUEST)
    first = ctypes.c_char.from_buffer(code)  # holds the memory
    call = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(ctypes.addressof(first))

    def request(number: int, text: bytes = b"") -> None:
        kept = first, ctypes.create_string_buffer(text)
        call((ctypes.c_uint64 * 6)(number, ctypes.addressof(kept[1]), 0, 0, 0, 0))

    return request


def work(names: list[str]) -> None:
    """The process that Valgrind runs: a dump for each row and length."""
    import rushlight

    request = requester()
    rushlight.set_num_threads(1)
    for name in names:
        rushlight.manual_seed(0)
        call = ROWS[name].make(rushlight)
        for _ in repeat(None, WARM):
            call()
        for length in (SHORT, LONG):
            gc.collect()
            gc.disable()
            request(_START)
            request(_ZERO)
            for _ in repeat(None, length):
                call()
            request(_DUMP_AT, f"{name} {length}".encode())
            request(_STOP)
            gc.enable()


def counted(tree: Path, names: list[str], cache: str) -> dict[str, float]:
    """Instructions per call of each row, with the package of a checkout."""
    if shutil.which("valgrind") is None:
        raise OSError("counting instructions needs Valgrind: install the system's package `valgrind`")
    if not (tree / "src" / "rushlight").is_dir():
        raise FileNotFoundError(f"{tree} is no checkout: it has no src/rushlight")
    settings = {
        "PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0", "RUSHLIGHT_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
        "RUSHLIGHT_VECTOR_BYTES": "32", "RUSHLIGHT_CACHE_DIR": cache, "RUSHLIGHT_GEMM": "fixed",
    }  # fmt: skip
    program = [sys.executable, __file__, "--work", json.dumps(names)]
    with tempfile.TemporaryDirectory() as folder:
        tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out"]
        done = subprocess.run([*tool, *program], env={**os.environ, **settings}, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"Valgrind ended with {done.returncode}:\n{done.stderr[-3000:]}")
        totals: dict[str, int] = {}
        for path in Path(folder).glob("out.*"):
            text = path.read_text()
            label = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
            total = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
            if label and total:
                totals[label[1]] = int(total[1])
    return {name: (totals[f"{name} {LONG}"] - totals[f"{name} {SHORT}"]) / (LONG - SHORT) for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", nargs="*", type=Path, default=[ROOT], help="one checkout or two")
    parser.add_argument("--only", default="^overhead/", help="rows whose name matches this regular expression")
    parser.add_argument("--limit", type=float, default=2.0, help="percent by which a row may grow")
    parser.add_argument("--json", type=Path, help="write the counts into this file")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(json.loads(options.work))
        return 0
    names = [name for name in ROWS if re.search(options.only, name)]
    counts = []
    for tree in options.trees[:2]:
        with tempfile.TemporaryDirectory() as cache:
            counted(tree.resolve(), names[:1], cache)  # compiles the runtime: not under one count and outside another
            counts.append(counted(tree.resolve(), names, cache))
    grown = 0
    for name in names:
        cells = [f"{count[name]:12.0f}" for count in counts]
        percent = 100 * (counts[-1][name] / counts[0][name] - 1)
        grown += percent > options.limit
        print(f"{name:36s}" + "".join(cells) + (f" {percent:+8.2f} %" if len(counts) > 1 else ""))
    if options.json:
        options.json.write_text(json.dumps(counts[-1], indent=1) + "\n")
    return int(grown > 0)


if __name__ == "__main__":
    sys.exit(main())
