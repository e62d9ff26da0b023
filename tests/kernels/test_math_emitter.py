"""The emitter itself: literals, common subexpressions and their scopes, widths, memory forms, helper functions."""

from __future__ import annotations

import ctypes
import struct

import llvmlite.binding as llvm
import numpy as np
import pytest
from tests.kernels.scalar_harness import compile_text, kernel_text, run

from rushlight._codegen.scalar import Emitter, ModuleText, mem_lanes, mem_type, reg_type, supports
from rushlight._codegen.scalar.lowerings import BINARY, UNARY
from rushlight._prims.record import PRIMITIVES
from rushlight._types.dtype import (
    BFLOAT16,
    BOOL,
    BY_NAME,
    COMPLEX64,
    COMPLEX128,
    DTYPES,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    UINT8,
)  # fmt: skip


def test_identical_instructions_are_emitted_once():
    em = Emitter(8)
    x = em.wrap("%x", FLOAT32)
    assert (x * x + 1.0).name == (x * x + 1.0).name
    assert len(em.lines) == 2
    em.op("sin", [x], [FLOAT32], FLOAT32)
    count = len(em.lines)
    em.op("sin", [x], [FLOAT32], FLOAT32)
    assert len(em.lines) == count


def test_a_scope_ends():
    """What was emitted in a block that does not dominate the rest must not be used there."""
    em = Emitter(4)
    x = em.wrap("%x", FLOAT32)
    outside = x * 2.0
    with em.scope():
        assert (x * 2.0).name == outside.name
        inside = x * 3.0
    assert (x * 3.0).name != inside.name


def test_widths_share_names_and_module():
    em = Emitter(16, ModuleText())
    tail = em.at(1)
    assert em.at(1) is tail and tail.at(16) is em
    a = em.wrap("%x", FLOAT64).abs()
    b = tail.wrap("%y", FLOAT64).abs()
    assert a.name != b.name and em.lines is tail.lines
    assert set(em.module.declarations) == {"@llvm.fabs.v16f64", "@llvm.fabs.f64"}


def test_literals():
    em, scalar = Emitter(4), Emitter(1)
    assert str(scalar.const("float", 0.1)) == "0x3FB99999A0000000"  # rounded to float32 first
    assert str(em.const("double", -0.0)) == "splat (double 0x8000000000000000)"
    assert str(em.const("double", 0.0)) == "splat (double 0x0000000000000000)"
    assert str(scalar.const("i8", 255)) == "-1" and str(scalar.const("i1", True)) == "true"
    assert str(scalar.const("half", 1.0)) == "0xH3C00" and str(scalar.const("half", -1e6)) == "0xHFC00"
    assert str(scalar.const("float", 1e300)) == "0x7FF0000000000000"
    assert [str(p) for p in scalar.number(1 + 2j, COMPLEX64)] == ["0x3FF0000000000000", "0x4000000000000000"]
    assert str(scalar.number(1.0, BFLOAT16)) == str(0x3F80)
    assert str(scalar.number(True, INT64)) == "1"


def test_types_in_registers_and_memory():
    rows = [(BOOL, "i1", "i8", 1), (UINT8, "i8", "i8", 1), (FLOAT16, "half", "half", 1), (BFLOAT16, "i16", "i16", 1)]
    rows += [(COMPLEX64, "float", "float", 2), (COMPLEX128, "double", "double", 2), (INT64, "i64", "i64", 1)]
    for dtype, register, memory, lanes in rows:
        assert (reg_type(dtype), mem_type(dtype), mem_lanes(dtype)) == (register, memory, lanes)
    em = Emitter(4)
    assert (
        em.mem_vt(COMPLEX64) == "<8 x float>"
        and em.at(1).mem_vt(COMPLEX64) == "<2 x float>"
        and em.at(1).mem_vt(INT8) == "i8"
    )


@pytest.mark.parametrize("width", [1, 2, 16])
@pytest.mark.parametrize("name", ["bool", "complex64", "complex128", "float16", "int64"])
def test_memory_round_trip(name, width):
    x = np.arange(32).astype(name)
    if name.startswith("complex"):
        x = x * (1 - 2j)
    x = x.astype(name)
    np.testing.assert_array_equal(run("convert", x, width=width), x)


@pytest.mark.parametrize("width", [1, 2, 8, 16])
@pytest.mark.parametrize(("prim", "start"), [("add", 0), ("mul", 1), ("maximum", -9)])
def test_reduce_combines_all_lanes(width, prim, start):
    em = Emitter(width)
    total = em.reduce(prim, em.wrap("%x", FLOAT32), FLOAT32)
    assert total.em.width == 1
    body = "\n".join(em.lines)
    text = f"""{em.module}
define float @k(ptr %p) {{
  %x = load {em.vt("float")}, ptr %p, align 4
{body}
  ret float {total}
}}"""
    function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p)(compile_text(text))
    x = (np.arange(width) % 5 + 0.5).astype("float32")
    expected = {"add": x.sum(), "mul": x.prod(), "maximum": x.max()}[prim]
    assert function(x.ctypes.data) == pytest.approx(float(expected), rel=1e-6)


def test_reduce_of_pairs_and_odd_widths():
    em = Emitter(4)
    pair = (em.wrap("%a", COMPLEX64), em.wrap("%b", COMPLEX64))
    re, im = em.reduce("add", pair, COMPLEX64)
    assert re.em.width == im.em.width == 1
    with pytest.raises(ValueError, match="width 3"):
        Emitter(3).reduce("add", Emitter(3).wrap("%x", FLOAT32), FLOAT32)


def test_helper_functions_appear_once():
    text = kernel_text("lgamma", [FLOAT64], FLOAT64, {}, 8)
    assert text.count("define internal <8 x double> @rl.lgamma.v8f64(") == 1
    module = ModuleText()
    for prefix in ("a", "b"):
        em = Emitter(8, module, prefix=prefix)
        em.op("sin", [em.wrap("%x", FLOAT32)], [FLOAT32], FLOAT32)
    assert str(module).count("define internal <8 x float> @rl.sin.beyond.v8f32(") == 1


@pytest.mark.parametrize("width", [1, 4, 16])
def test_every_lowering_is_valid_llvm(width):
    """Parsed and verified, not run; LLVM itself says when a type is wrong."""
    llvm.initialize_native_target()
    for dtype in (FLOAT32, FLOAT64, INT32, BOOL, COMPLEX64, BFLOAT16):
        for prim in sorted({*UNARY, *BINARY, "bitwise_and", "shift_left", "div_trunc"}):
            if not supports(prim, dtype):
                continue
            out = BOOL if prim in ("eq", "ne", "lt", "le", "signbit") else dtype
            out = FLOAT32 if (prim, dtype) == ("abs", COMPLEX64) else out
            unary = prim in UNARY
            chosen = {"polynomial": {"family": "hermite_h"}}.get(prim, {})
            module = llvm.parse_assembly(
                kernel_text(prim, [dtype] * (1 if unary else 2), out, chosen, width, fma=width != 4)
            )
            module.verify()


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"])
def test_object_code_for_other_machines(triple):
    """The text names no machine: plain AArch64 and plain x86-64 compile it, vectors wider than theirs included."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError:
        pytest.skip("this build of LLVM lacks the target")
    machine = target.create_target_machine(opt=1)
    for prim, dtype in (
        ("exp", FLOAT32),
        ("sin", FLOAT32),
        ("log", FLOAT64),
        ("div_trunc", INT32),
        ("convert", FLOAT16),
    ):
        out = FLOAT32 if prim == "convert" else dtype
        fma = triple.startswith("aarch64")
        text = kernel_text(prim, [dtype] * (2 if prim == "div_trunc" else 1), out, {}, 16, fma=fma)
        module = llvm.parse_assembly(text)
        module.triple = triple
        assert len(machine.emit_object(module)) > 500


def test_without_fused_hardware_nothing_calls_fma():
    """The library's fma is slow; only the remainder of doubles, which must be exact, needs it."""
    for prim in ("exp", "sin", "tan", "log2", "log10", "erfc", "lgamma"):
        for dtype in (FLOAT32, FLOAT64):
            text = kernel_text(prim, [dtype], dtype, {}, 4, fma=False)
            assert "llvm.fmuladd" in text and "@llvm.fma." not in text
    assert "@llvm.fma." in kernel_text("rem_trunc", [FLOAT64] * 2, FLOAT64, {}, 4, fma=False)


def test_no_fast_math_flags():
    flags = {"fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc"}
    for name in ("exp", "erf", "pow", "lgamma"):
        assert not flags & set(kernel_text(name, [FLOAT32] * (2 if name == "pow" else 1), FLOAT32, {}, 8).split())


def test_full_and_lane_index():
    em = Emitter(4)
    value = em.op("full", [], [], FLOAT32, {"value": 2.5})
    bits = struct.unpack("<Q", struct.pack("<d", 2.5))[0]
    assert str(value) == f"splat (float 0x{bits:016X})"
    assert str(em.lane_index("i64")) == "<i64 0, i64 1, i64 2, i64 3>"
    assert str(em.at(1).lane_index("i32")) == "0"


def test_supports():
    assert (
        supports("exp", FLOAT32) and supports("exp", COMPLEX64) and supports("add", BOOL) and supports("convert", UINT8)
    )
    assert not supports("exp", INT32) and not supports("sub", BOOL) and not supports("lt", COMPLEX64)
    assert supports("tanh", BY_NAME["bfloat16"])


def test_16_bit_floats_have_neighbours_of_their_own():
    em = Emitter(4)
    with pytest.raises(NotImplementedError, match="nextafter has no lowering for bfloat16"):
        em.op("nextafter", [em.wrap("%x", BFLOAT16)] * 2, [BFLOAT16, BFLOAT16], BFLOAT16)


# of several dtypes, each with a test of its own
MIXED = ("select", "convert", "bitcast", "complex", "real", "imag", "conj")


def test_whatever_a_primitive_accepts_is_lowered():
    """Each pointwise primitive, for each dtype that its own rule admits."""
    for name, primitive in PRIMITIVES.items():
        if primitive.family not in ("pointwise", "comparison") or name in MIXED:
            continue
        for dtype in DTYPES:
            if any(accepts(primitive, [Operand(dtype)] * arity) for arity in (1, 2)):
                assert supports(name, dtype), f"{name} accepts {dtype.name}"


class Operand:
    shape = ()

    def __init__(self, dtype):
        self.dtype = dtype


def accepts(primitive, operands):
    try:
        primitive.spec(*operands)
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        return False
    return True
