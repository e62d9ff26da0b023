"""Uniform numbers, and the distributions that are functions of one uniform number."""

from __future__ import annotations

from collections.abc import Callable

from rushlight._backends.cpu.random.mt19937 import ITEMSIZE, bfloat_bits, half_bits, put_float, take, unit24, unit53
from rushlight._host.random_state import HALF, SCRATCH, SCRATCH_AT
from rushlight._native import NativeFunction, ceil, extern, f32, fma, native, select

__all__ = ["make_transformed", "make_uniform", "to_cauchy", "to_exponential", "to_geometric"]

log = extern("log", "f64(f64)")
log1p = extern("log1p", "f64(f64)")
tan = extern("tan", "f64(f64)")


def make_uniform(kind: str) -> NativeFunction:
    """`uniform(state, out, n, low, high)`: [low, high); a number that rounds to `high` becomes `low`."""
    if kind == "f64":

        @native("void(ptr, ptr, i64, f64, f64)", name="rl_uniform_f64")
        def uniform(state, out, n, low, high):
            words = state + SCRATCH_AT
            span = high - low
            done = 0
            while done < n:
                m = min(n - done, HALF)
                take(state, words, m * 2)
                to = out + done * 8
                for i in range(m):
                    v = fma(unit53(words, i), span, low)
                    to.f64[i] = select(v == high, low, v)
                done += m

        return uniform
    if kind == "f32":

        @native("void(ptr, ptr, i64, f64, f64)", name="rl_uniform_f32")
        def uniform(state, out, n, low, high):
            words = state + SCRATCH_AT
            a = f32(low)
            b = f32(high)
            span = b - a
            done = 0
            while done < n:
                m = min(n - done, SCRATCH)
                take(state, words, m)
                to = out + done * 4
                for i in range(m):
                    v = fma(unit24(words, i), span, a)
                    to.f32[i] = select(v == b, a, v)
                done += m

        return uniform
    round_bits = {"f16": half_bits, "bf16": bfloat_bits}[kind]

    @native("void(ptr, ptr, i64, f64, f64)", name=f"rl_uniform_{kind}")  # type: ignore[no-redef]
    def uniform(state, out, n, low, high):
        words = state + SCRATCH_AT
        a = f32(low)
        span = f32(high) - a
        first = round_bits(a)
        last = round_bits(f32(high))
        done = 0
        while done < n:
            m = min(n - done, SCRATCH)
            take(state, words, m)
            to = out + done * 2
            for i in range(m):
                v = round_bits(fma(unit24(words, i), span, a))
                to.u16[i] = select(v == last, first, v)
            done += m

    return uniform


# ***** a float64 uniform each, transformed with the C library's functions *****


@native("f64(f64, f64, f64)", inline=True)
def to_exponential(u, scale, unused):
    """`scale` is -1 / lambda."""
    return scale * log1p(-u)


@native("f64(f64, f64, f64)", inline=True)
def to_cauchy(u, median, sigma):
    return fma(sigma, tan(3.141592653589793 * (u - 0.5)), median)


@native("f64(f64, f64, f64)", inline=True)
def to_geometric(u, log_failure, unused):
    """`log_failure` is log1p(-p)."""
    return ceil(log(u) / log_failure)


def make_transformed(name: str, transform: NativeFunction) -> Callable[[str], NativeFunction]:
    """`fill(state, out, n, a, b)`: transform(u, a, b) of a new u for each element."""

    def make(kind: str) -> NativeFunction:
        put, itemsize = put_float(kind), ITEMSIZE[kind]

        @native("void(ptr, ptr, i64, f64, f64)", name=f"rl_{name}_{kind}")
        def fill(state, out, n, a, b):
            words = state + SCRATCH_AT
            done = 0
            while done < n:
                m = min(n - done, HALF)
                take(state, words, m * 2)
                to = out + done * itemsize
                for i in range(m):
                    put(to, i, transform(unit53(words, i), a, b))
                done += m

        return fill

    return make
