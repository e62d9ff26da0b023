"""LLVM text for NVPTX to PTX, by LLVM's own back end."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from rushlight._base.lazy import llvm

__all__ = ["ARCHITECTURES", "ptx_of"]

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120", "sm_120a")


@cache
def _machine(architecture: str, features: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # The compiler for the host sets this for the whole process: a kernel's PTX must not depend on which came first.
    llvm.set_option("rushlight", "-disable-lsr")
    llvm.set_option("rushlight", "-nvptx-short-ptr")  # addresses of shared memory take one register, not two
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    return target.create_target_machine(cpu=architecture, features=features, opt=3)


def _features(text: str, architecture: str) -> str:
    """LLVM writes the first version of PTX that has an architecture (8.6 for sm_100); a text may need a newer one."""
    needs = re.match(r"; needs PTX (\d+)\.(\d)\n", text)
    return f"+ptx{needs[1]}{needs[2]}" if needs and len(architecture.rstrip("a")) < len("sm_100") else ""


def ptx_of(text: str, architecture: str) -> str:
    """The PTX of LLVM text for one architecture, such as "sm_90a".

    ValueError for an architecture that is not in ARCHITECTURES; RuntimeError with LLVM's message for malformed text.
    """
    if architecture not in ARCHITECTURES:
        raise ValueError(f"no code is made for {architecture!r}; known architectures: {', '.join(ARCHITECTURES)}")
    machine = _machine(architecture, _features(text, architecture))
    module = llvm.parse_assembly(text)
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    ptx: str = machine.emit_assembly(module)
    unknown = sorted(set(re.findall(r"\.extern \.func\s+(?:\([^)]*\)\s*)?(llvm\.[\w.]+)", ptx)))
    if unknown:  # it took an intrinsic for a function of somebody else
        version = ".".join(map(str, llvm.llvm_version_info))
        raise RuntimeError(f"LLVM {version} has no {', '.join(unknown)}: another version of llvmlite is needed")
    return ptx
