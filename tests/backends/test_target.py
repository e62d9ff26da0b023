"""The description of the machine, and code for other machines than this one."""

from __future__ import annotations

import pytest

from rushlight._backends.cpu import jit, runtime
from rushlight._backends.cpu.target import VECTOR_BYTES, TargetDescription, host_target, usable_cores
from rushlight._backends.native.compiler import compile_unit
from rushlight._base.lazy import llvm

WIDE = """
define void @add(ptr %o, ptr %a) nounwind {
  %x = load <16 x float>, ptr %a, align 4
  %y = fadd <16 x float> %x, %x
  store <16 x float> %y, ptr %o, align 4
  ret void
}
"""


def test_this_machine():
    target = host_target()
    assert target is host_target()
    assert target.vector_bytes in (16, 32, 64)
    assert target.vector_bytes <= target.native_vector_bytes or VECTOR_BYTES.get()
    assert 1 << 12 <= target.l1_bytes <= target.l2_bytes
    assert target.cores == usable_cores() >= 1
    assert target.page_bytes >= 4096
    assert target.memory_bytes > 1 << 27
    assert target.arch in repr(target)


@pytest.mark.parametrize(("width", "registers"), [(64, "zmm"), (32, "ymm"), (16, "xmm")])
def test_narrower_vectors_switch_wider_instructions_off(width, registers):
    if host_target().arch != "x86_64":
        pytest.skip("x86-64 registers")
    with VECTOR_BYTES.scoped(width):
        target = TargetDescription()
    if target.vector_bytes != width:
        pytest.skip("this machine has no such vectors")
    compiler = jit._Compiler(target)
    text = compiler.machine.emit_assembly(compiler.optimise(WIDE, "kernel"))
    assert registers in text
    assert not any(wider in text for wider in {"zmm": (), "ymm": ("zmm",), "xmm": ("zmm", "ymm")}[registers])
    if width < host_target().native_vector_bytes:
        assert target.fingerprint != host_target().fingerprint or host_target().vector_bytes == width


def test_wrong_width():
    with VECTOR_BYTES.scoped(48), pytest.raises(ValueError, match="16, 32 or 64"):
        TargetDescription()


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "arm64-apple-macosx", "x86_64-unknown-linux-gnu"])
def test_the_runtime_compiles_for_other_machines(triple):
    """Its LLVM text is well formed everywhere, and turns into code where this LLVM can make it."""
    module = llvm.parse_assembly(compile_unit(runtime._ROOTS, triple.partition("-")[0]))
    module.verify()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        machine = llvm.Target.from_triple(triple).create_target_machine(reloc="pic", codemodel="small")
    except RuntimeError:
        pytest.skip("this LLVM does not know the machine")
    module.triple = triple
    assert len(machine.emit_object(module)) > 1000
