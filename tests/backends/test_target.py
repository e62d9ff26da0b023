"""The description of the machine, and code for other machines than this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rushlight._backends.cpu.runtime import runtime
from rushlight._base.lazy import llvm
from rushlight._native import jit
from rushlight._native.compiler import compile_unit
from rushlight._native.target import VECTOR_BYTES, TargetDescription, host_target, usable_cores

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
    compiler = jit._Process(target).compiler
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


# What a machine with NEON would run: its shapes, tiles and loops, computed here with 16-byte vectors and compared with NumPy, while every piece of
# code is compiled for AArch64 too, and laid out as the loader would.
_NEON = """
import numpy as np
from rushlight._native import jit; from rushlight._native.objectfiles import loader
from rushlight._native.target import host_target
from rushlight._native import compiler
from rushlight._base.lazy import llvm

here = host_target()
native = here.arch
here.arch, here.flags, here.vector_bytes, here.native_vector_bytes = "aarch64", frozenset({"asimd"}), 16, 16
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
arm = llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(cpu="generic", opt=2, reloc="pic", codemodel="small")
compile_unit, compile_object, made = compiler.compile_unit, jit.compile_object, []
loader._SYSTEM.append(loader._System())

class Anything(dict):
    def get(self, name, default=None):
        return 0x5500001234

def compiled_for_arm(text):
    module = llvm.parse_assembly(text)
    module.triple = "aarch64-unknown-linux-gnu"
    module.verify()
    plan = loader._Plan(arm.emit_object(module), Anything())
    assert isinstance(plan.machine, loader._Arm64)
    made.append(len(plan.build(0x7F0000000000)))

def unit(functions, arch, imported=()):
    compiled_for_arm(compile_unit(functions, "aarch64", imported))
    return compile_unit(functions, native, imported)

def both(text, opt="kernel"):
    if "llvm.x86." not in text:
        compiled_for_arm(text)
    return compile_object(text, opt)

compiler.compile_unit, jit.compile_object = unit, both

import rushlight as torch
from rushlight.nn import functional as F

torch.manual_seed(0)
def close(found, wanted, bound=1e-4):
    found, wanted = np.asarray(found.detach().double()), np.asarray(wanted, np.float64)
    assert found.shape == wanted.shape and np.abs(found - wanted).max() <= bound * max(1.0, np.abs(wanted).max()), np.abs(found - wanted).max()

a, b = torch.randn(70, 90), torch.randn(90, 110)
exact = np.asarray(a.double()) @ np.asarray(b.double())
close(a @ b, exact)
close(a.double() @ b.double(), exact)
close(a.bfloat16() @ b.bfloat16(), np.asarray(a.bfloat16().double()) @ np.asarray(b.bfloat16().double()), 1e-2)
close(a.half() @ b.half(), np.asarray(a.half().double()) @ np.asarray(b.half().double()), 1e-2)
ints = torch.randint(-128, 128, (32, 64), dtype=torch.int8), torch.randint(-128, 128, (64, 32), dtype=torch.int8)
close(torch._int_mm(*ints) if hasattr(torch, "_int_mm") else ints[0].int() @ ints[1].int(), np.asarray(ints[0], np.int64) @ np.asarray(ints[1], np.int64), 0)
for groups, size, stride in ((1, 3, 1), (8, 3, 1), (1, 1, 1), (1, 5, 2)):
    x, w = torch.randn(2, 8, 12, 12, requires_grad=True), torch.randn(16, 8 // groups, size, size, requires_grad=True)
    y = F.conv2d(x, w, stride=stride, padding=size // 2, groups=groups)
    y.square().sum().backward()
    patches = F.unfold(x.detach().double(), size, padding=size // 2, stride=stride).reshape(2, groups, -1, y.shape[2] * y.shape[3])
    close(y, np.einsum("gok,ngkp->ngop", np.asarray(w.detach().double()).reshape(groups, 16 // groups, -1), np.asarray(patches)).reshape(y.shape))
    assert x.grad.isfinite().all() and w.grad.isfinite().all()
q, k, v = (torch.randn(1, 2, 40, 32, requires_grad=True) for _ in range(3))
z = F.scaled_dot_product_attention(q, k, v)
z.sum().backward()
scores = np.asarray(q.detach().double()) @ np.asarray(k.detach().double()).swapaxes(-1, -2) / np.sqrt(32)
scores = np.exp(scores - scores.max(-1, keepdims=True))
close(z, scores / scores.sum(-1, keepdims=True) @ np.asarray(v.detach().double()))
for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
    net = kind(12, 20)
    out = net(torch.randn(5, 3, 12))[0]
    out.sum().backward()
    assert out.isfinite().all()
picture = torch.arange(64.0).reshape(1, 1, 8, 8)
close(F.interpolate(picture, scale_factor=0.5, mode="bilinear"), np.asarray(picture).reshape(1, 1, 4, 2, 4, 2).mean((3, 5)))
F.interpolate(picture, size=(13, 9), mode="bicubic", antialias=True)
for x in (torch.randn(3000), torch.randint(0, 100, (40, 50))):
    close(torch.sort(x).values, np.sort(np.asarray(x)))
    torch.topk(x.flatten(), 5), torch.argsort(x), torch.unique(x), torch.median(x)
torch.rand(1000), torch.randperm(50), torch.bernoulli(torch.full((9,), 0.5)), torch.multinomial(torch.ones(9), 4)
close(torch.cumsum(a, 1), np.cumsum(np.asarray(a.double()), 1))
close(torch.softmax(a, -1).sum(-1), np.ones(70))
close(torch.fft.fft(a).abs(), np.abs(np.fft.fft(np.asarray(a))), 1e-3)
model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.BatchNorm1d(30), torch.nn.GELU(), torch.nn.LayerNorm(30), torch.nn.Linear(30, 4))
for name in ("SGD", "Adam", "AdamW", "Adafactor", "RMSprop", "Adagrad", "NAdam"):
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=1e-3)
    optimizer.zero_grad()
    F.cross_entropy(model(torch.randn(16, 20)), torch.arange(16) % 4).backward()
    optimizer.step()
    assert all(p.isfinite().all() for p in model.parameters()), name
from tests.engine.test_same_bits import PROGRAMS

for program in PROGRAMS.values():
    program()
print(len(made), "pieces of code")
"""


@pytest.mark.slow
def test_all_kinds_of_kernels_as_on_a_machine_with_neon(run_python, tmp_path):
    env = {
        **os.environ,
        "RUSHLIGHT_CACHE_DIR": str(tmp_path),
        "RUSHLIGHT_GEMM": "generated",
        "RUSHLIGHT_VECTOR_BYTES": "0",
    }
    done = run_python("-c", _NEON, env=env, timeout=1200, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 500
