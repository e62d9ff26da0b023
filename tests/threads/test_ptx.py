"""PTX of the flagship and unit kernels: what it may contain, what it costs, and that a change of it is seen."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from bench.cuda_kernels import FLAGSHIPS, UNITS, Case, wide
from tests.threads import stored
from tests.threads.twins import run_twin

from rushlight._codegen.blocks import Pointer, Tile
from rushlight._codegen.blocks.expressions import TermBuilder
from rushlight._codegen.threads import lower, nvptx_text
from rushlight._native.nvidia.nvptx import ptx_of
from rushlight._native.nvidia.ptxas import assemble, disassemble, find_tool
from rushlight._types.dtype import FLOAT32

# what LLVM makes of arithmetic on registers: the twin runs the same LLVM instructions on x86
PLAIN = (
    "abs and bfe bfi bfind bra brev clz cnot copysign cvt div ex2 exit fma ld.local ld.param lg2 mad madc max min mov mul neg not or popc prmt "
    "rcp rem ret selp setp shf shl shr slct sqrt sub st.local testp xor add addc subc szext sad bmsk lop3 cvta call st.param trap"
).split()


def opcodes(ptx: str) -> set[str]:
    """The instructions of a text, with `@%p` before those under a predicate."""
    found = set()
    for predicate, opcode in re.findall(r"^\s+(@!?%p\d+\s+)?([a-z][a-z0-9_]*(?:\.[a-zA-Z0-9_:]+)*)\s", ptx, re.M):
        found.add(("@%p " if predicate else "") + opcode)
    return {o for o in found if not o.startswith(("reg", "callseq"))}


def is_plain(opcode: str) -> bool:
    bare = opcode.removeprefix("@%p ")
    return bare.split(".")[0] in PLAIN or bare.rsplit(".", 1)[0] in PLAIN


def is_covered(opcode: str) -> bool:
    """Whether a unit kernel names an instruction."""
    return any(opcode.startswith(begin) for _, names in UNITS.values() for begin in names)


def run(case: Case) -> None:
    """The twin gives what the case expects."""
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in case.arguments]
    run_twin(case.kernel, case.grid, given)
    for a, b in zip(case.expected(), given, strict=True):
        if isinstance(a, np.ndarray):
            a, b = (wide(x) if x.dtype == np.uint16 else x for x in (a, b))
            np.testing.assert_allclose(b.astype(np.float64), a.astype(np.float64), rtol=case.rtol, atol=case.atol)


# intrinsics of NVPTX that LLVM 20 has, the oldest that llvmlite may bring; it takes others for functions that are elsewhere
OLDEST = re.compile(
    r"llvm\.nvvm\.(barrier0?|bar\.warp\.sync|read\.ptx\.sreg\.(tid|ctaid|nctaid)\.[xyz]|shfl\.sync\.(bfly|idx)\.i32|ex2\.approx\.ftz\.f"
    r"|cp\.async\.(commit|wait)\.group|ldmatrix\.sync\.aligned\.m8n8\.x[124](\.trans)?\.b16\.p3"
    r"|mma\.m16n8k16\.row\.col\.(f32\.f32|bf16)|mma\.m16n8k8\.row\.col\.tf32|mma\.m16n8k32\.row\.col\.s8)"
)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_texts_ask_nothing_that_the_oldest_llvm_has_not(architecture: str) -> None:
    for build in (*[unit for unit, _ in UNITS.values()], *[lambda f=f: f(True) for f in FLAGSHIPS.values()]):
        try:
            text = nvptx_text(lower(build().kernel, architecture))
        except NotImplementedError:  # of an instruction that an older architecture has not
            continue
        names = set(re.findall(r"@(llvm\.nvvm\.[\w.]+)", text))
        assert all(OLDEST.fullmatch(name) for name in names), names
        assert '"nvvm.' not in text, "an attribute that it does not read"


def test_an_intrinsic_that_llvm_has_not_is_an_error() -> None:
    text = """target triple = "nvptx64-nvidia-cuda"
    declare i32 @llvm.nvvm.some.day(i32)
    define ptx_kernel void @k(ptr %p) {
      %x = call i32 @llvm.nvvm.some.day(i32 1)
      store i32 %x, ptr %p
      ret void
    }"""
    with pytest.raises(RuntimeError, match=r"has no llvm\.nvvm\.some\.day: another version of llvmlite"):
        ptx_of(text, "sm_90a")


def test_kernels_say_how_they_are_launched() -> None:
    """Without it the assembler may give a thread more registers than a launch of so many threads has."""
    for name, kernel in (
        ("softmax", FLAGSHIPS["softmax"](True).kernel),
        ("wide", FLAGSHIPS["wgmma_bf16_wide"](True).kernel),
    ):
        form = lower(kernel, "sm_90a")
        ptx = ptx_of(nvptx_text(form), "sm_90a")
        assert re.search(rf"\.reqntid {form.threads}\b", ptx)
        assert (".maxnreg 168" in ptx) == (name == "wide")


_OFTEN = ("softmax", "cross_entropy", "transpose", "attention")


@pytest.mark.parametrize("name", [n if n in _OFTEN else pytest.param(n, marks=pytest.mark.slow) for n in FLAGSHIPS])
def test_twins_of_flagship_kernels(name: str) -> None:
    run(FLAGSHIPS[name](True))


@pytest.mark.parametrize("name", UNITS)
def test_twins_of_unit_kernels(name: str) -> None:
    run(UNITS[name][0]())


@pytest.mark.parametrize("name", stored.KERNELS)
def test_a_change_of_a_kernel_is_seen(name: str) -> None:
    """`python -m tests.threads.stored` writes the table anew; read what changed before."""
    table = stored.stored()["kernels"]
    assert stored.digest(stored.text_of(name, "sm_90a")[0]) == table[name]["text"]


@pytest.mark.parametrize("name", ["mma_bf16", "shuffles", "masked_accesses", "atomics"])
def test_unit_kernels_emit_what_they_prove(name: str) -> None:
    build, names = UNITS[name]
    found = opcodes(ptx_of(nvptx_text(lower(build().kernel, "sm_90a")), "sm_90a"))
    assert any(o.startswith(names) for o in found), found


@pytest.mark.slow
def test_every_instruction_is_plain_or_has_a_unit_kernel() -> None:
    cases: list[Any] = [FLAGSHIPS[n](True).kernel for n in FLAGSHIPS] + [build().kernel for build, _ in UNITS.values()]
    for kernel in cases:
        for architecture in stored.ARCHITECTURES:
            found = opcodes(ptx_of(nvptx_text(lower(kernel, architecture)), architecture))
            missing = {o for o in found if not is_plain(o) and not is_covered(o)}
            assert not missing, f"{kernel.name} on {architecture}: {sorted(missing)}"


@pytest.mark.parametrize("name", ["add", "softmax", "matmul_f16"])
def test_nothing_is_contracted_approximated_or_flushed(name: str) -> None:
    ptx = ptx_of(stored.text_of(name, "sm_80")[0], "sm_80")
    assert not re.search(r"\.ftz|\.approx|\.full|div\.f|\b(add|mul|sub)\.f(32|64)\b", ptx)


@pytest.mark.slow
@pytest.mark.parametrize("name", stored.KERNELS)
def test_budgets(name: str) -> None:
    """Hashes of PTX where LLVM is the one that they were made with; registers, spills and shared memory by ptxas."""
    table = stored.stored()
    for architecture in stored.ARCHITECTURES:
        row = table["kernels"][name][architecture]
        text, shared = stored.text_of(name, architecture)
        ptx = ptx_of(text, architecture)
        assert shared <= row["shared"]
        if table["llvm"] == stored.llvm_version():
            assert stored.digest(ptx) == row["ptx"], architecture
        if find_tool("ptxas"):
            made = assemble(ptx, architecture)
            assert made.registers <= row["registers"] * 1.1 + 2, architecture
            assert made.spills <= row["spills"] and made.stack <= row["stack"], architecture


@pytest.mark.slow
@pytest.mark.parametrize("name", UNITS)
def test_unit_kernels_assemble(name: str) -> None:
    if find_tool("ptxas") is None:
        pytest.skip("ptxas is not installed: pip install rushlight[ptxas]")
    for architecture in stored.ARCHITECTURES:
        assert assemble(
            ptx_of(nvptx_text(lower(UNITS[name][0]().kernel, architecture)), architecture), architecture
        ).cubin


@pytest.mark.slow
def test_matrix_instructions_reach_the_machine_code() -> None:
    if find_tool("ptxas") is None or find_tool("nvdisasm") is None:
        pytest.skip("ptxas and nvdisasm are not installed: pip install rushlight[ptxas]")
    for name, mnemonic in (("mma_f16", "HMMA"), ("mma_bf16", "HMMA"), ("mma_tf32", "HMMA"), ("mma_int8", "IMMA")):
        ptx = ptx_of(nvptx_text(lower(UNITS[name][0]().kernel, "sm_90a")), "sm_90a")
        assert mnemonic in disassemble(assemble(ptx, "sm_90a").cubin)


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(ValueError, match="no code is made for 'sm_60'; known architectures: sm_75"):
        ptx_of("", "sm_60")
    with pytest.raises(ValueError, match="an architecture is named like 'sm_90a', not 'hopper'"):
        lower(FLAGSHIPS["add"](True).kernel, "hopper")


def test_messages_are_the_drivers() -> None:
    b = TermBuilder("says", [Tile(Pointer(FLOAT32))], line=("user.py", 8))
    tile = (b.terms[0] + b.index(4)).load()
    b.emit("print", tile.value, prefix="x")
    b.emit("assert", (tile < 3.0).value, message="below three")
    ptx = ptx_of(nvptx_text(lower(b.finish(warps=1))), "sm_80")
    assert "vprintf, (" in ptx and "__assertfail, (" in ptx
