"""Reports of a block kernel on a GPU: PTX, machine code where NVIDIA's tools are installed, registers, occupancy."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from rushlight._base.lazy import require
from rushlight._codegen.blocks import Kernel

__all__ = ["KernelReport", "inspect_kernel"]


class KernelReport(NamedTuple):
    """A kernel on one architecture.  Registers, spills (bytes), occupancy and SASS are None without ptxas and nvdisasm."""

    name: str
    architecture: str
    ptx: str
    threads: int
    shared: int
    registers: int | None
    spills: int | None
    blocks: int | None
    occupancy: float | None
    sass: str | None

    def counts(self) -> Mapping[str, int]:
        """How often each PTX instruction of memory, matrices, shuffles and barriers is written.

        >>> report = KernelReport("k", "sm_90a", " ld.global.v4.b32 {}, [];\\n bar.sync 0;\\n", 128, 0, None, None, None, None, None)
        >>> dict(report.counts())
        {'ld.global.v4.b32': 1, 'bar.sync': 1}
        """
        found = re.findall(
            r"^\s+(?:@!?%p\d+\s+)?((?:ld|st|atom|red|bar|shfl|mma|wgmma|cp)\.[a-z0-9_.:]+)", self.ptx, re.M
        )
        return Counter(name for name in found if not name.startswith("ld.param"))

    def text(self, asm: bool = False) -> str:
        """A few lines; with `asm` the PTX and the machine code, too."""
        lines = [
            f"{self.name} on {self.architecture}: {self.threads} threads a block, {self.shared} bytes of shared memory"
        ]
        if self.registers is not None:
            lines.append(f"  {self.registers} registers a thread, {self.spills} bytes spilled, {self.blocks} blocks a multiprocessor, occupancy {self.occupancy:.0%}")  # fmt: skip
        else:
            lines.append("  registers and occupancy: install rushlight[ptxas]")
        lines.append("  " + ", ".join(f"{n} {name}" for name, n in sorted(self.counts().items())))
        if asm:
            lines += [self.ptx.strip(), *([self.sass.strip()] if self.sass else [])]
        return "\n".join(lines)


def inspect_kernel(kernel: Kernel, architecture: str = "sm_90a") -> KernelReport:
    """Compile a kernel for an architecture, device or no device."""
    threads, tools = require("rushlight._codegen.threads"), require("rushlight._native.nvidia.ptxas")
    form = threads.lower(kernel, architecture)
    ptx = require("rushlight._native.nvidia.nvptx").ptx_of(threads.nvptx_text(form), architecture)
    if tools.find_tool("ptxas") is None:
        return KernelReport(kernel.name, architecture, ptx, form.threads, form.shared, None, None, None, None, None)
    made = tools.assemble(ptx, architecture)
    blocks, part = tools.occupancy(architecture, form.threads, made.registers, form.shared)
    sass = tools.disassemble(made.cubin) if tools.find_tool("nvdisasm") else None
    return KernelReport(
        kernel.name, architecture, ptx, form.threads, form.shared, made.registers, made.spills, blocks, part, sass
    )
