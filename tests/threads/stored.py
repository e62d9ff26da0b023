"""What is known of the flagship kernels: hashes of their text, and registers, spills and shared memory by architecture.

`python -m tests.threads.stored` writes `kernels.json` anew; budgets need ptxas (`pip install rushlight[ptxas]`).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from bench.cuda_kernels import FLAGSHIPS

from rushlight._base.lazy import llvm
from rushlight._codegen.threads import lower, nvptx_text
from rushlight._native.nvptx import ptx_of
from rushlight._native.ptxas import assemble, find_tool

FILE = Path(__file__).with_name("kernels.json")
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a")


def stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def llvm_version() -> str:
    return ".".join(map(str, llvm.llvm_version_info[:2]))


def text_of(name: str, architecture: str) -> tuple[str, int]:
    """The LLVM text of a flagship kernel in its small form, and its bytes of shared memory."""
    made = lower(FLAGSHIPS[name](True).kernel, architecture)
    return nvptx_text(made), made.shared


def _write() -> None:
    table: dict[str, Any] = {"llvm": llvm_version(), "kernels": {}}
    for name in FLAGSHIPS:
        row: dict[str, Any] = {"text": digest(text_of(name, "sm_90a")[0])}
        for architecture in ARCHITECTURES:
            text, shared = text_of(name, architecture)
            ptx = ptx_of(text, architecture)
            row[architecture] = {"ptx": digest(ptx), "shared": shared}
            if find_tool("ptxas"):
                made = assemble(ptx, architecture)
                row[architecture] |= {"registers": made.registers, "spills": made.spills, "stack": made.stack}
        table["kernels"][name] = row
    FILE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    _write()
