"""NVIDIA's assembler and disassembler, where they are installed: PTX to machine code, its registers, its text.

They come with the wheels `nvidia-cuda-nvcc` and `nvidia-cuda-nvdisasm` (`pip install rushlight[ptxas]`), or with a CUDA toolkit.
Nothing needs them: a driver assembles PTX itself.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rushlight._base.errors import MissingExtraError

__all__ = ["Assembled", "assemble", "disassemble", "find_tool", "occupancy"]

_FOLDERS = ("nvidia/cu13/bin", "nvidia/cuda_nvcc/bin", "nvidia/cuda_nvdisasm/bin", "nvidia/cu12/bin")


class Assembled(NamedTuple):
    """Machine code of a kernel, the registers of a thread, and bytes of its stack, its spills and static shared memory."""

    cubin: bytes
    registers: int
    stack: int
    spills: int
    shared: int


@cache
def find_tool(name: str) -> str | None:
    """The path of "ptxas" or "nvdisasm": from a wheel of this environment, else from the path; None without it."""
    for folder in sys.path:
        for inner in _FOLDERS:
            found = Path(folder or ".", inner, name)
            if found.is_file():
                return str(found)
    return shutil.which(name)


def _needed(name: str) -> str:
    found = find_tool(name)
    if found is None:
        raise MissingExtraError(name, "ptxas")
    return found


def assemble(ptx: str, architecture: str) -> Assembled:
    """Machine code for an architecture such as "sm_90a".

    MissingExtraError without ptxas, RuntimeError with its message for text that it refuses.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [_needed("ptxas"), "-v", f"-arch={architecture}", str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(
                f"ptxas refuses the text for {architecture}: {done.stderr.strip() or done.stdout.strip()}"
            )
        told = done.stdout + done.stderr
        return Assembled(
            target.read_bytes(), _number(r"Used (\d+) registers", told), _number(r"(\d+) bytes stack frame", told),
            _number(r"(\d+) bytes spill stores", told), _number(r"(\d+) bytes smem", told),
        )  # fmt: skip


def _number(pattern: str, text: str) -> int:
    return max(map(int, re.findall(pattern, text)), default=0)


def disassemble(cubin: bytes) -> str:
    """SASS, the text of machine code.  MissingExtraError without nvdisasm."""
    tool = _needed("nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"nvdisasm: {done.stderr.strip()}")
    return done.stdout


# what a multiprocessor has: threads, blocks, bytes of shared memory, by compute capability; each has 65,536 registers
_LIMITS = {
    75: (1024, 16, 64),
    80: (2048, 32, 164),
    86: (1536, 16, 100),
    89: (1536, 24, 100),
    90: (2048, 32, 228),
    100: (2048, 32, 228),
    120: (1536, 24, 100),
}
_REGISTERS, _RESERVED = 65536, 1024


def occupancy(architecture: str, threads: int, registers: int, shared: int) -> tuple[int, float]:
    """Blocks that a multiprocessor runs at once, and the part of its threads that these are.

    >>> occupancy("sm_90a", 128, 64, 16384)
    (8, 0.5)
    """
    number = int(architecture.removeprefix("sm_").rstrip("af"))
    most, blocks, memory = _LIMITS[max(n for n in _LIMITS if n <= number)]
    warp_registers = -(-max(registers, 1) * 32 // 256) * 256
    reserved = _RESERVED if number >= 80 else 0
    by_shared = memory * 1024 // (shared + reserved) if shared + reserved else blocks
    by_registers = _REGISTERS // warp_registers // (threads // 32)
    found = min(blocks, most // threads, by_shared, by_registers)
    return found, found * threads / most
