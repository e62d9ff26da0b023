"""A plain loop kernel around one pointwise primitive, built with llvmlite alone: what the tests of `_codegen.scalar` run."""

from __future__ import annotations

import ctypes
import functools
import platform

import llvmlite.binding as llvm
import numpy as np

from rushlight._codegen.scalar import Emitter, ModuleText
from rushlight._types.dtype import BY_NAME

WIDTH = 16
AVX2_ONLY = (
    ",-avx512f,-avx512vl,-avx512dq,-avx512bw,-avx512cd,-avx512vnni,-avx512bf16,-avx512vbmi,-avx512vbmi2,-avx512ifma"
)
NO_FMA = AVX2_ONLY + ",-fma,-avx2,-avx,-f16c"
# this machine, then lesser ones of its kind
FEATURES = ["", AVX2_ONLY, NO_FMA] if platform.machine() in ("x86_64", "AMD64") else [""]
_ENGINES = []  # keep the machine code alive


@functools.cache
def _machine(features=""):
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    cpu = llvm.get_host_cpu_name() if not features else "x86-64"
    host = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=cpu, features=host + features, opt=2)


def kernel_text(prim, in_dtypes, out_dtype, params, width, fma=True, byte_dots=False):
    """`void @k(ptr out, ptr in0, ..., i64 n)`; n is a multiple of the width."""
    module = ModuleText(byte_dots)
    em = Emitter(width, module, fma=fma)
    args = []
    for k, dtype in enumerate(in_dtypes):
        vt = em.mem_vt(dtype)
        size = width * dtype.itemsize
        em.lines.append(f"  %o{k} = mul i64 %i, {size}\n  %p{k} = getelementptr i8, ptr %in{k}, i64 %o{k}")
        em.lines.append(f"  %x{k} = load {vt}, ptr %p{k}, align 1")
        args.append(em.from_memory(f"%x{k}", dtype))
    value = em.op(prim, args, in_dtypes, out_dtype, params)
    stored = em.to_memory(value, out_dtype)
    body = "\n".join(em.lines)
    ins = ", ".join(f"ptr noalias %in{k}" for k in range(len(in_dtypes)))
    return f"""{module}
define void @k(ptr noalias %out, {ins}, i64 %n) "prefer-vector-width"="512" "min-legal-vector-width"="512" {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i1, %loop]
{body}
  %oo = mul i64 %i, {width * out_dtype.itemsize}
  %po = getelementptr i8, ptr %out, i64 %oo
  store {em.mem_vt(out_dtype)} {stored}, ptr %po, align 1
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


def compile_text(text, features=""):
    """The address of @k."""
    machine = _machine(features)
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _ENGINES.append(engine)
    return engine.get_function_address("k")


@functools.cache
def kernel(prim, in_names, out_name, params=(), width=WIDTH, features="", byte_dots=False):
    in_dtypes = [BY_NAME[n] for n in in_names]
    text = kernel_text(prim, in_dtypes, BY_NAME[out_name], dict(params), width, "-fma" not in features, byte_dots)
    address = compile_text(text, features)
    types = [ctypes.c_void_p] * (1 + len(in_names)) + [ctypes.c_int64]
    return ctypes.CFUNCTYPE(None, *types)(address)


def numpy_dtype(name):
    return np.dtype("uint16" if name == "bfloat16" else name)


def run(prim, *arrays, out=None, in_names=None, params=(), width=WIDTH, features="", byte_dots=False):
    """The primitive on NumPy arrays of one shape; bfloat16 is held as its uint16 bits (give `in_names`)."""
    arrays = [np.ascontiguousarray(a) for a in arrays]
    in_names = in_names or tuple(a.dtype.name for a in arrays)
    out = out or in_names[0]
    size = arrays[0].size
    padded = -(-max(size, 1) // width) * width
    inputs = []
    for a in arrays:
        p = np.ones(padded, a.dtype)
        p[:size] = a.reshape(-1)
        inputs.append(p)
    result = np.empty(padded, numpy_dtype(out))
    f = kernel(prim, tuple(in_names), out, tuple(params), width, features, byte_dots)
    f(result.ctypes.data, *(p.ctypes.data for p in inputs), padded // width)
    return result[:size].reshape(arrays[0].shape)
