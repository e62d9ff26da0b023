"""Kernels of the Triton language with inputs, whose results real Triton's interpreter has given (`stored.json`).

`python -m tests.triton_language.programs` in an environment with real Triton writes that file anew.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

import rushlight

WRITING = __name__ == "__main__"
if WRITING:
    os.environ["TRITON_INTERPRET"] = "1"
    sys.modules["torch"] = rushlight
    import triton
    import triton.language as tl
else:
    from rushlight import triton
    from rushlight.triton import language as tl

STORED = Path(__file__).with_name("stored.json")
CASES = {}
SIZE = 16
draw = np.random.default_rng(0)
X = draw.normal(size=SIZE).astype(np.float32)
Y = draw.normal(size=SIZE).astype(np.float32)
POSITIVE = np.abs(X) + 0.1
WHOLE = draw.integers(-50, 50, SIZE).astype(np.int32)
J = draw.integers(1, 9, SIZE).astype(np.int32) * np.where(np.arange(SIZE) % 2, 1, -1).astype(np.int32)
U = draw.integers(0, 2**32, SIZE, dtype=np.uint64).astype(np.uint32)
BYTES = draw.integers(-128, 128, SIZE).astype(np.int8)
HALF = X.astype(np.float16)
M = draw.normal(size=(16, 16)).astype(np.float32)
N = draw.normal(size=(16, 16)).astype(np.float32)


def case(*inputs, out=SIZE, dtype="float32", grid=(1,), **constants):
    """Register a kernel: its pointers are the inputs, then the output."""

    def register(function):
        CASES[function.__name__] = (function, inputs, out, dtype, grid, constants)
        return function

    return register


def run(name, device="cpu"):
    """The output of a kernel as an array."""
    function, inputs, out, dtype, grid, constants = CASES[name]
    tensors = [rushlight.tensor(x, device=device) if isinstance(x, np.ndarray) else x for x in inputs]
    result = rushlight.zeros(out, dtype=getattr(rushlight, dtype), device=device)
    function[grid](*tensors, result, **constants)
    result = result.cpu()
    return (result.float() if dtype in ("float16", "bfloat16") else result).numpy()


# ***** arithmetic and types *****


@case(X, Y)
@triton.jit
def float_operators(x, y, o):
    i = tl.arange(0, 16)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(o + i, (a + b) * a - b / (a + 3) + (-a) + 2 * b)


@case(WHOLE, J, out=(8, SIZE), dtype="int32")
@triton.jit
def integer_operators(x, y, o):
    i = tl.arange(0, 16)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(o + i, a // b)
    tl.store(o + 16 + i, a % b)
    tl.store(o + 32 + i, a & b)
    tl.store(o + 48 + i, a | b)
    tl.store(o + 64 + i, a ^ b)
    tl.store(o + 80 + i, a << (b & 3))
    tl.store(o + 96 + i, a >> (b & 3))
    tl.store(o + 112 + i, ~a)


@case(WHOLE, J)
@triton.jit
def true_division_of_integers(x, y, o):
    i = tl.arange(0, 16)
    tl.store(o + i, tl.load(x + i) / tl.load(y + i))


@case(X, Y)
@triton.jit
def float_remainder(x, y, o):
    i = tl.arange(0, 16)
    tl.store(o + i, tl.load(x + i) % tl.load(y + i))


@case(WHOLE, J, out=(6, SIZE), dtype="int32")
@triton.jit
def comparisons(x, y, o):
    i = tl.arange(0, 16)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(o + i, (a < b).to(tl.int32))
    tl.store(o + 16 + i, (a <= b).to(tl.int32))
    tl.store(o + 32 + i, (a > b).to(tl.int32))
    tl.store(o + 48 + i, (a >= b).to(tl.int32))
    tl.store(o + 64 + i, (a == b).to(tl.int32))
    tl.store(o + 80 + i, (a != 3).to(tl.int32))


@case(HALF, X, dtype="float32")
@triton.jit
def half_and_float(x, y, o):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    tl.static_assert((a * 2.5).dtype == tl.float16)
    tl.static_assert((a / 2.5).dtype == tl.float32)
    tl.static_assert((a + tl.load(y + i)).dtype == tl.float32)
    tl.store(o + i, a * 2.5 + tl.load(y + i))


@case(HALF, dtype="float16")
@triton.jit
def half_arithmetic(x, o):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    tl.store(o + i, a * a + a - 1.5)


@case(np.round(X * 8) / 8, dtype="bfloat16")
@triton.jit
def to_bfloat16(x, o):
    i = tl.arange(0, 16)
    a = tl.load(x + i).to(tl.bfloat16)
    tl.static_assert((a + a).dtype == tl.bfloat16)
    tl.store(o + i, a)  # the interpreter cuts bits off in place of rounding, and adds bits


@case(U, BYTES, out=(3, SIZE), dtype="int64")
@triton.jit
def mixed_integers(x, y, o):
    i = tl.arange(0, 16)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.static_assert((a + b).dtype == tl.uint32)
    tl.static_assert((b + 1).dtype == tl.int8)
    tl.store(o + i, (a + b).to(tl.int64))
    tl.store(o + 16 + i, (a >> 3).to(tl.int64))
    tl.store(o + 32 + i, (b * 2).to(tl.int64))


@case(X, dtype="int32")
@triton.jit
def float_to_integer(x, o):
    i = tl.arange(0, 16)
    tl.store(o + i, (tl.load(x + i) * 10).to(tl.int32))


@case(X, dtype="int32")
@triton.jit
def bits(x, o):
    i = tl.arange(0, 16)
    tl.store(o + i, tl.load(x + i).to(tl.int32, bitcast=True) & 0x7FFFFF)


@case(X, Y)
@triton.jit
def selections(x, y, o):
    i = tl.arange(0, 16)
    a, b = tl.load(x + i), tl.load(y + i)
    c = tl.where(a > b, tl.maximum(a, 0.1), tl.minimum(b, -0.1))
    tl.store(o + i, tl.clamp(c, -0.5, 0.5) + tl.where(i % 2 == 0, 1.0, 0.0))


# ***** functions *****


@case(POSITIVE, out=(8, SIZE))
@triton.jit
def elementary(x, o):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    tl.store(o + i, tl.exp(a))
    tl.store(o + 16 + i, tl.log(a))
    tl.store(o + 32 + i, tl.exp2(a) + tl.log2(a))
    tl.store(o + 48 + i, tl.sin(a) + tl.cos(a))
    tl.store(o + 64 + i, tl.sqrt(a) + tl.rsqrt(a))
    tl.store(o + 80 + i, tl.erf(a))
    tl.store(o + 96 + i, tl.floor(a * 4) + tl.ceil(a * 4))
    tl.store(o + 112 + i, tl.sigmoid(a) + tl.abs(a - 1) + tl.fma(a, a, a) + tl.fdiv(a, 3.0))


@case(U, out=(2, SIZE), dtype="int64")
@triton.jit
def high_product(x, o):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    tl.store(o + i, tl.umulhi(a, a).to(tl.int64))
    tl.store(o + 16 + i, tl.cdiv(a, 7).to(tl.int64))


# ***** shapes *****


@case(M, out=(16, 16))
@triton.jit
def transposed(x, o):
    r, c = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    a = tl.load(x + r * 16 + c)
    tl.store(o + r * 16 + c, tl.trans(a) + a.T * 2 + tl.permute(a, (1, 0)))


@case(M, out=(2, 8, 16))
@triton.jit
def reshaped(x, o):
    i = tl.arange(0, 256)
    a = tl.reshape(tl.load(x + i), (2, 8, 16))
    b = tl.permute(a, (0, 1, 2)) * tl.arange(0, 8)[None, :, None]
    tl.store(o + tl.reshape(i, (2, 8, 16)), b)


@case(X, Y, out=32)
@triton.jit
def joined(x, y, o):
    i = tl.arange(0, 16)
    a, b = tl.load(x + i), tl.load(y + i)
    c, d = tl.split(tl.join(a, b))
    tl.store(o + tl.arange(0, 32), tl.interleave(c + d, c - d))


@case(X, out=(4, SIZE))
@triton.jit
def broadcast_blocks(x, o):
    i = tl.arange(0, 16)
    a = tl.expand_dims(tl.load(x + i), 0)
    b = tl.broadcast_to(a, (4, 16)) + tl.full((4, 1), 2, tl.float32) + tl.zeros([4, 16], dtype=tl.float32)
    tl.store(o + tl.arange(0, 4)[:, None] * 16 + i[None, :], b + tl.zeros_like(b))


@case(X, WHOLE)
@triton.jit
def gathered(x, y, o):
    i = tl.arange(0, 16)
    tl.store(o + i, tl.gather(tl.load(x + i), tl.load(y + i) & 15, 0))


@case(X)
@triton.jit
def flipped(x, o):
    i = tl.arange(0, 16)
    tl.store(o + i, tl.flip(tl.load(x + i), 0))


# ***** reductions *****


@case(M, out=(6, SIZE))
@triton.jit
def reductions(x, o):
    r, c = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    a = tl.load(x + r * 16 + c)
    i = tl.arange(0, 16)
    tl.store(o + i, tl.sum(a, axis=1))
    tl.store(o + 16 + i, tl.max(a, 0))
    tl.store(o + 32 + i, tl.min(a, 1))
    tl.store(o + 48 + i, tl.argmax(a, 1).to(tl.float32))
    tl.store(o + 64 + i, tl.argmin(a, 0).to(tl.float32))
    tl.store(o + 80 + i, tl.sum(a) + tl.max(tl.max(a, 1), 0) + i)


@case(M, out=(16, 16))
@triton.jit
def softmax_block(x, o):
    r, c = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    tl.store(o + r * 16 + c, tl.softmax(tl.load(x + r * 16 + c), 1))


@case(M, out=(3, 16, 16))
@triton.jit
def scans(x, o):
    r, c = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    a = tl.load(x + r * 16 + c)
    tl.store(o + r * 16 + c, tl.cumsum(a, 1))
    tl.store(o + 256 + r * 16 + c, tl.cumsum(a, 0, reverse=True))
    tl.store(o + 512 + r * 16 + c, tl.cumprod(a, 1))


@triton.jit
def add_pairs(a, b, c, d):
    return a + c, tl.maximum(b, d)


@triton.jit
def linear(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@case(M, out=(2, SIZE))
@triton.jit
def reduced_pairs(x, o):
    r, c = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    a = tl.load(x + r * 16 + c)
    s, m = tl.reduce((a, a * 2), 1, add_pairs)
    tl.store(o + tl.arange(0, 16), s)
    tl.store(o + 16 + tl.arange(0, 16), m)


@case(X, Y)
@triton.jit
def scanned_pairs(x, y, o):
    i = tl.arange(0, 16)
    _, h = tl.associative_scan((tl.load(x + i), tl.load(y + i)), 0, linear)
    tl.store(o + i, h)


@case(X, out=(3, SIZE))
@triton.jit
def sorted_block(x, o):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    tl.store(o + i, tl.sort(a))
    tl.store(o + 16 + i, tl.sort(a, descending=True))
    tl.store(o + 32 + tl.arange(0, 4), tl.topk(a, 4))


@case(M, out=(16, 16))
@triton.jit
def sorted_rows(x, o):
    r, c = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    tl.store(o + r * 16 + c, tl.sort(tl.load(x + r * 16 + c), dim=1))


@case(WHOLE, out=(2, 8), dtype="int32")
@triton.jit
def counted(x, o):
    a = tl.load(x + tl.arange(0, 16)) & 7
    tl.store(o + tl.arange(0, 8), tl.histogram(a, 8))
    tl.store(o + 8 + tl.arange(0, 8), tl.xor_sum(a, 0) + tl.arange(0, 8))


# ***** products *****


@case(M, N, out=(16, 16))
@triton.jit
def products(x, y, o):
    r, c = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    a, b = tl.load(x + r * 16 + c), tl.load(y + r * 16 + c)
    d = tl.dot(a, b, input_precision="ieee")
    tl.store(o + r * 16 + c, tl.dot(b, a, acc=d, input_precision="ieee"))


@case(BYTES, out=(16, 16), dtype="int32")
@triton.jit
def integer_products(x, o):
    r, c = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    a = tl.load(x + ((r * 3 + c) % 16))
    tl.store(o + r * 16 + c, tl.dot(a, tl.trans(a), out_dtype=tl.int32))


# ***** memory *****


@case(X, out=(2, SIZE))
@triton.jit
def masks(x, o):
    i = tl.arange(0, 16)
    a = tl.load(x + i, mask=i < 5, other=7.0)
    tl.store(o + i, a, mask=i != 2)
    tl.store(o + 16 + i, tl.load(x + 3) + i)


@case(M, out=(16, 16))
@triton.jit
def descriptors(x, o):
    d = tl.make_tensor_descriptor(x, [16, 16], [16, 1], [8, 8])
    e = tl.make_tensor_descriptor(o, [16, 16], [16, 1], [8, 8])
    e.store([0, 8], d.load([4, 4]) + d.load([12, 12]))


@case(WHOLE, out=(6, 4), dtype="int32", grid=(3,))
@triton.jit
def atomics(x, o):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    tl.atomic_add(o + (i & 3), a, mask=i > 2)
    tl.atomic_max(o + 4 + (i & 3), a)
    tl.atomic_min(o + 8 + (i & 3), a)
    tl.atomic_or(o + 12 + (i & 3), a)
    tl.atomic_xor(o + 16 + (i & 3), a)
    tl.atomic_add(o + 20, 1)


@case(out=8, dtype="int32")
@triton.jit
def compare_and_swap(o):
    tl.atomic_cas(o, 0, 5)
    before = tl.atomic_cas(o, 0, 6)
    tl.store(o + 1, before)
    tl.store(o + 2, tl.atomic_xchg(o + 3, 9))


# ***** random numbers *****


@case(1234, out=(4, 64))
@triton.jit
def random_floats(seed, o):
    i = tl.arange(0, 64)
    tl.store(o + i, tl.rand(seed, i))
    tl.store(o + 64 + i, tl.randn(seed, i + 100))
    a, b, c, d = tl.rand4x(seed, i, 7)
    tl.store(o + 128 + i, a + b)
    tl.store(o + 192 + i, c - d)


@case(99, out=(4, 64), dtype="int64")
@triton.jit
def random_integers(seed, o):
    i = tl.arange(0, 64)
    a, b, c, d = tl.randint4x(seed, i.to(tl.int64) * 5000000000)
    tl.store(o + i, a.to(tl.int64))
    tl.store(o + 64 + i, b.to(tl.int64))
    tl.store(o + 128 + i, c.to(tl.int64) + d.to(tl.int64))
    tl.store(o + 192 + i, tl.randint(seed, i).to(tl.int64))


# ***** control flow *****


@case(X, 10)
@triton.jit
def loops(x, n, o):
    i = tl.arange(0, 16)
    a = tl.zeros([16], tl.float32)
    for k in range(n):
        a += tl.load(x + i) * k
    for k in tl.range(0, n, 3):
        a -= k
    for k in tl.static_range(4):
        a = a * 2 if k % 2 else a + k
    for k in range(5, 0, -2):
        a += k
    tl.store(o + i, a)


@case(WHOLE, dtype="int32", grid=(16,))
@triton.jit
def branches(x, o):
    pid = tl.program_id(0)
    a = tl.load(x + pid)
    b = 0
    if a > 10:
        b = a * 2
    elif a < -10:
        b = a * 3
        if pid > 8:
            b += 1000
    else:
        b = 7
    c = a if pid % 2 == 0 else -a
    tl.store(o + pid, b + c)


@case(WHOLE, dtype="int32", grid=(16,))
@triton.jit
def early_return(x, o):
    pid = tl.program_id(0)
    if pid == 3:
        return
    a = tl.load(x + pid)
    if a < 0:
        tl.store(o + pid, -1)
        return
    tl.store(o + pid, a)


@case(WHOLE, dtype="int32", grid=(16,))
@triton.jit
def while_loop(x, o):
    pid = tl.program_id(0)
    a = tl.load(x + pid)
    steps = 0
    while (a != 0) and (steps < 20):
        a = a // 2
        steps += 1
    tl.store(o + pid, steps)


@triton.jit
def helper(a, b, scale: tl.constexpr = 2, shift=0):
    if scale > 3:
        return a * scale, b
    return a + shift, b * scale


@case(X, Y)
@triton.jit
def nested_functions(x, y, o):
    i = tl.arange(0, 16)
    a, b = helper(tl.load(x + i), tl.load(y + i))
    c, d = helper(a, b, scale=5)
    e, _ = helper(c, d, shift=3)
    tl.store(o + i, c + d + e)


@case(X, FLAG=True, NAME="relu", LIST=(1, 2, 3))
@triton.jit
def constants(x, o, FLAG: tl.constexpr, NAME: tl.constexpr, LIST: tl.constexpr):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    if FLAG and NAME == "relu":
        a = tl.where(a > 0, a, 0)
    if not FLAG or NAME is None:
        a = a * 1000
    n: tl.constexpr = len(LIST)
    tl.static_assert(n == 3, f"there are {n}")
    for k in tl.static_range(n):
        a += LIST[k]
    tl.store(o + i, a)


@case(4, 1, out=(2, SIZE), dtype="int32", grid=(2, 2, 2))
@triton.jit
def grids(n, one, o):
    pid = tl.program_id(0) + 2 * tl.program_id(1) + 4 * tl.program_id(2)
    tl.store(o + pid, tl.num_programs(0) * 100 + pid * n + one)
    r, c = tl.swizzle2d(tl.program_id(0), tl.program_id(1), 2, 2, 2)
    tl.store(o + 16 + pid, r * 10 + c)


@case(X)
@triton.jit
def library(x, o):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    tl.store(o + i, tl.math.exp(a) + tl.math.abs(a))


def main():
    found = {}
    for name in CASES:
        array = run(name)
        found[name] = [float(v) if array.dtype.kind == "f" else int(v) for v in array.reshape(-1)]
        print(name, found[name][:4])
    STORED.write_text(json.dumps(found, separators=(",", ":")).replace('],"', '],\n"') + "\n")


if WRITING:
    main()
