"""Normal numbers: in blocks of 16, as PyTorch fills contiguous tensors, and one by one."""

from __future__ import annotations

from rushlight._backends.cpu.random.mt19937 import bfloat_bits, draw_unit, half_bits, put_float, take, unit24, unit53
from rushlight._host.random_state import DOUBLE_NORMAL, DOUBLE_VALID, HALF, SCRATCH_AT
from rushlight._native import (
    NativeFunction,
    bitcast,
    bits,
    extern,
    f32,
    fma,
    i32,
    memcpy,
    native,
    select,
    sqrt,
    stack,
    u32,
)

__all__ = ["draw_normal", "make_normal", "make_normal_serial"]

log = extern("log", "f64(f64)")
log1p = extern("log1p", "f64(f64)")
exp = extern("exp", "f64(f64)")
sincos = extern("sincos", "void(f64, ptr, ptr)")


# ***** blocks of 16 *****


@native("f32(f32)", inline=True)
def log_f32(x):
    """The natural logarithm of a float32 in (0, 1], after Cephes' logf, fused where PyTorch's AVX2 build fuses."""
    b = bits(x)
    e = f32(i32(b >> 23) - 127) + f32(1.0)
    m = bitcast(f32, (b & u32(0x807FFFFF)) | 0x3F000000)
    small = m < f32(0.707106781186547524)
    extra = select(small, m, f32(0.0))
    e = e - select(small, f32(1.0), f32(0.0))
    m = (m - f32(1.0)) + extra
    z = m * m
    y = fma(f32(7.0376836292e-2), m, f32(-1.1514610310e-1))
    y = fma(y, m, f32(1.1676998740e-1))
    y = fma(y, m, f32(-1.2420140846e-1))
    y = fma(y, m, f32(1.4249322787e-1))
    y = fma(y, m, f32(-1.6668057665e-1))
    y = fma(y, m, f32(2.0000714765e-1))
    y = fma(y, m, f32(-2.4999993993e-1))
    y = fma(y, m, f32(3.3333331174e-1))
    y = fma(m * y, z, e * f32(-2.12194440e-4))
    y = fma(z, f32(-0.5), y)
    return fma(e, f32(0.693359375), m + y)


@native("void(ptr, ptr, i64, f32, f32)")
def box_muller_f32(a, b, n, mean, std):
    """Transform pairs of uniforms (a[i], b[i]) to pairs of normals.  Sine and cosine are Cephes', after a reduction in
    three steps."""
    for i in range(n):
        u = f32(1.0) - a.f32[i]
        radius = sqrt(f32(-2.0) * log_f32(u))
        x = f32(6.283185307179586) * b.f32[i]
        j = (i32(x * f32(1.27323954473516)) + 1) & i32(-2)
        k = f32(j)
        x = fma(k, f32(-0.78515625), x)
        x = fma(k, f32(-2.4187564849853515625e-4), x)
        x = fma(k, f32(-3.77489497744594108e-8), x)
        z = x * x
        c = fma(fma(f32(2.443315711809948e-5), z, f32(-1.388731625493765e-3)), z, f32(4.166664568298827e-2))
        c = fma(z, z * c, f32(-0.5) * z) + f32(1.0)
        s = fma(fma(f32(-1.9515295891e-4), z, f32(8.3321608736e-3)), z, f32(-1.6666654611e-1))
        s = fma(x, z * s, x)
        swap = (j & 2) != 0
        sine_sign = u32(j & 4) << 29
        cosine_sign = u32(~(j - 2) & 4) << 29
        sine = bitcast(f32, bits(select(swap, c, s)) ^ sine_sign)
        cosine = bitcast(f32, bits(select(swap, s, c)) ^ cosine_sign)
        a.f32[i] = fma(radius * cosine, std, mean)
        b.f32[i] = fma(radius * sine, std, mean)


@native("void(ptr, i64, f32, f32)")
def normal_groups(words, groups, mean, std):
    """Transform `groups` (at most 64) times 16 words to normals, in place.

    In a group of 16 numbers the first 8 and the last 8 make pairs; they are separated so that the transform is one long
    loop.
    """
    a = stack(4 * HALF // 2)
    b = stack(4 * HALF // 2)
    for i in range(groups * 16):
        words.f32[i] = unit24(words, i)
    for g in range(groups):
        memcpy(a + g * 32, words + g * 64, 32)
        memcpy(b + g * 32, words + g * 64 + 32, 32)
    box_muller_f32(a, b, groups * 8, mean, std)
    for g in range(groups):
        memcpy(words + g * 64, a + g * 32, 32)
        memcpy(words + g * 64 + 32, b + g * 32, 32)


@native("void(ptr, ptr, i64)", inline=True)
def copy_f32(out, values, n):
    memcpy(out, values, n * 4)


def _copy_rounded(kind: str) -> NativeFunction:
    round_bits = {"f16": half_bits, "bf16": bfloat_bits}[kind]

    @native("void(ptr, ptr, i64)", name=f"copy_{kind}", inline=True)
    def copy(out, values, n):
        for i in range(n):
            out.u16[i] = round_bits(values.f32[i])

    return copy


def make_normal(kind: str) -> NativeFunction:
    """`normal(state, out, n, mean, std)` for n >= 16: whole groups of 16, then the last 16 numbers once more, from new
    words.

    By then float32 and float64 have consumed the words of the incomplete group as well; float16 and bfloat16 have not.
    """
    if kind == "f64":
        return normal_f64
    copy, itemsize, drops_rest = (copy_f32, 4, 1) if kind == "f32" else (_copy_rounded(kind), 2, 0)

    @native("void(ptr, ptr, i64, f64, f64)", name=f"rl_normal_{kind}")
    def normal(state, out, n, mean, std):
        words = state + SCRATCH_AT
        m = f32(mean)
        s = f32(std)
        rest = n & 15
        whole = n - rest
        done = 0
        while done < whole:
            k = min(whole - done, HALF)
            take(state, words, k)
            normal_groups(words, k >> 4, m, s)
            copy(out + done * itemsize, words, k)
            done += k
        if rest:
            if drops_rest:
                take(state, words, rest)
            take(state, words, 16)
            normal_groups(words, 1, m, s)
            copy(out + (n - 16) * itemsize, words, 16)

    return normal


@native("void(ptr, f64, f64)")
def normal_group_f64(values, mean, std):
    """Transform 16 uniforms in place; logarithm, sine and cosine are the C library's, as in PyTorch."""
    pair = stack(16)
    for j in range(8):
        radius = sqrt(-2.0 * log(1.0 - values.f64[j]))
        sincos(6.283185307179586 * values.f64[j + 8], pair, pair + 8)
        values.f64[j] = fma(radius * pair.f64[1], std, mean)
        values.f64[j + 8] = fma(radius * pair.f64[0], std, mean)


@native("void(ptr, ptr, i64, f64, f64)", name="rl_normal_f64")
def normal_f64(state, out, n, mean, std):
    words = state + SCRATCH_AT
    rest = n & 15
    for g in range(n >> 4):
        to = out + g * 128
        take(state, words, 32)
        for i in range(16):
            to.f64[i] = unit53(words, i)
        normal_group_f64(to, mean, std)
    if rest:
        take(state, words, rest * 2)
        take(state, words, 32)
        to = out + (n - 16) * 8
        for i in range(16):
            to.f64[i] = unit53(words, i)
        normal_group_f64(to, mean, std)


# ***** one by one *****


@native("f64(ptr)")
def draw_normal(state):
    """Draw a standard normal number in float64.  They come in pairs; the state keeps the second."""
    if state.u32[DOUBLE_VALID] != 0:
        state.u32[DOUBLE_VALID] = 0
        return state.f64[DOUBLE_NORMAL]
    pair = stack(16)
    u = draw_unit(state)
    radius = sqrt(-2.0 * log1p(-draw_unit(state)))
    sincos(6.283185307179586 * u, pair, pair + 8)
    state.f64[DOUBLE_NORMAL] = radius * pair.f64[0]
    state.u32[DOUBLE_VALID] = 1
    return radius * pair.f64[1]


def make_normal_serial(kind: str, exponential: bool) -> NativeFunction:
    """`normal(state, out, n, mean, std)` as PyTorch fills small or strided tensors; or the exponential of that."""
    put = put_float(kind)

    @native("void(ptr, ptr, i64, f64, f64)", name=f"rl_{'log_normal' if exponential else 'normal_serial'}_{kind}")
    def normal(state, out, n, mean, std):
        take(state, state, 0)  # seeds the state if needed
        for i in range(n):
            v = fma(draw_normal(state), std, mean)
            if exponential:
                put(out, i, exp(v))
            else:
                put(out, i, v)

    return normal
