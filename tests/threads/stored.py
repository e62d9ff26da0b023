"""What is known of the flagship kernels: hashes of their text, and registers, spills and shared memory by architecture.

`python -m tests.threads.stored` writes `kernels.json` anew, or the rows of kernels that are named; budgets need ptxas
(`pip install rushlight[ptxas]`).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from bench.cuda_kernels import FLAGSHIPS

from rushlight._backends.cuda.arguments import dense_operand
from rushlight._backends.cuda.attention.attention import attention_steps, gradient_steps
from rushlight._backends.cuda.attention.scores import AttentionForm
from rushlight._backends.cuda.gemm.warpgroups import PRODUCTS
from rushlight._backends.cuda.program.steps import Launch, Memory
from rushlight._base.lazy import llvm
from rushlight._codegen.blocks import Kernel
from rushlight._codegen.threads import lower, nvptx_text
from rushlight._native.nvidia.nvptx import ptx_of
from rushlight._native.nvidia.ptxas import assemble, find_tool
from rushlight._types.dtype import BFLOAT16, FLOAT32

FILE = Path(__file__).with_name("kernels.json")
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a")


def attention_kernel(which: int, width: int, way: str = "mma") -> Kernel:
    """Of causal attention over heads of bfloat16: forward, the queries' derivative, that of keys and values."""
    with PRODUCTS.scoped(way):
        return _attention_kernel(which, width)


def _attention_kernel(which: int, width: int) -> Kernel:
    wide = [dense_operand(Memory(0), BFLOAT16, (4, 16, 4096, width)) for _ in range(8)]
    q, k, v, out, ct, *to = wide
    norm, delta = (dense_operand(Memory(0), FLOAT32, (4, 16, 4096)) for _ in range(2))
    form = AttentionForm(width**-0.5, causal=True)
    steps = [*attention_steps(form, [q, k, v], [out, norm]), *gradient_steps(form, [ct, q, k, v, norm, delta], to)]
    step = steps[which]
    assert isinstance(step, Launch)
    return step.kernel


KERNELS: dict[str, Callable[[], Kernel]] = {
    **{name: lambda build=build: build(True).kernel for name, build in FLAGSHIPS.items()},  # type: ignore[misc]
    **{
        f"attention_{name}_{width}": partial(attention_kernel, which, width)
        for which, name in enumerate(("forward", "to_queries", "to_keys"))
        for width in (64, 128)
    },
    **{
        f"attention_wgmma_{name}_{width}": partial(attention_kernel, which, width, "wgmma")
        for which, name in enumerate(("forward", "to_queries", "to_keys"))
        for width in ((64, 128) if which else (64, 128, 256))
    },
}


def stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def llvm_version() -> str:
    return ".".join(map(str, llvm.llvm_version_info[:2]))


def text_of(name: str, architecture: str) -> tuple[str, int]:
    """The LLVM text of a kernel (flagships in their small form), and its bytes of shared memory."""
    made = lower(KERNELS[name](), architecture)
    return nvptx_text(made), made.shared


def _write(names: Iterable[str]) -> None:
    table: dict[str, Any] = stored() if names else {"llvm": llvm_version(), "kernels": {}}
    for name in names or KERNELS:
        row: dict[str, Any] = {"text": digest(text_of(name, "sm_90a")[0])}
        for architecture in ARCHITECTURES:
            text, shared = text_of(name, architecture)
            ptx = ptx_of(text, architecture)
            row[architecture] = {"ptx": digest(ptx), "shared": shared}
            if find_tool("ptxas"):
                made = assemble(ptx, architecture)
                row[architecture] |= {"registers": made.registers, "spills": made.spills, "stack": made.stack}
        table["kernels"][name] = row
    table["kernels"] = {name: table["kernels"][name] for name in KERNELS if name in table["kernels"]}
    FILE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    _write(sys.argv[1:])
