"""Bernoulli numbers, integers and permutations."""

from __future__ import annotations

from rushlight._backends.cpu.random.mt19937 import ITEMSIZE, draw, int53, put_int, take, unit24, unit53
from rushlight._host.random_state import HALF, SCRATCH, SCRATCH_AT
from rushlight._native import NativeFunction, ceil, f32, f64, i64, load, mulhi, native, select, store, u8, u16, u32, u64

__all__ = ["make_bernoulli", "make_bernoulli_each", "make_integers", "make_outside_unit", "make_permutation"]


# ***** Bernoulli: the pattern `one` or zero in elements of 1, 2, 4 or 8 bytes *****

_OF_SIZE = {1: u8, 2: u16, 4: u32, 8: u64}


def make_bernoulli(size: str) -> NativeFunction:
    """`bernoulli(state, out, n, p, one)`: `one` where a float64 uniform is below p.

    With `one` other than 1 it makes the scaled mask of a dropout.  Integers are compared: u < p exactly where the 53
    bits of u are below ceil(p * 2**53).
    """
    T = _OF_SIZE[int(size)]
    itemsize = T.itemsize

    @native("void(ptr, ptr, i64, f64, i64)", name=f"rl_bernoulli_{size}")
    def bernoulli(state, out, n, p, one):
        words = state + SCRATCH_AT
        limit = i64(ceil(p * 9007199254740992.0))
        pattern = T(one)
        done = 0
        while done < n:
            m = min(n - done, HALF)
            take(state, words, m * 2)
            to = out + done * itemsize
            for i in range(m):
                store(T, to, i, select(int53(words, i) < limit, pattern, T(0)))
            done += m

    return bernoulli


def make_bernoulli_each(size_and_p: str) -> NativeFunction:
    """`bernoulli(state, out, n, p, one)` with a probability for each element, float32 or float64 (uniforms of the same
    dtype)."""
    size, _, p_kind = size_and_p.partition("_")
    T, P = _OF_SIZE[int(size)], f64 if p_kind == "f64" else f32
    itemsize, p_size, per_element = T.itemsize, P.itemsize, P.itemsize // 4
    unit, chunk = (unit53, HALF) if P is f64 else (unit24, SCRATCH)

    @native("void(ptr, ptr, i64, ptr, i64)", name=f"rl_bernoulli_each_{size_and_p}")
    def bernoulli(state, out, n, p, one):
        words = state + SCRATCH_AT
        pattern = T(one)
        done = 0
        while done < n:
            m = min(n - done, chunk)
            take(state, words, m * per_element)
            to = out + done * itemsize
            source = p + done * p_size
            for i in range(m):
                store(T, to, i, select(unit(words, i) < load(P, source, i), pattern, T(0)))
            done += m

    return bernoulli


def make_outside_unit(p_kind: str) -> NativeFunction:
    """`outside(p, n)`: the number of n probabilities that are not in [0, 1] (NaN is not)."""
    P = f64 if p_kind == "f64" else f32

    @native("i64(ptr, i64)", name=f"rl_outside_unit_{p_kind}")
    def outside(p, n):
        good = 0
        for i in range(n):
            v = load(P, p, i)
            good += select((v >= P(0.0)) & (v <= P(1.0)), i64(1), i64(0))
        return n - good

    return outside


# ***** integers *****

# Values of `wide`: the word of a number; the last one takes no remainder.
WORD32, WORD64, WHOLE64 = range(3)


def make_integers(kind: str) -> NativeFunction:
    """`integers(state, out, n, range, base, wide)`: base + word % range, as the dtype.

    `wide` selects the word: WORD32, WORD64, or WHOLE64 (without a remainder).  The 32-bit remainder is
    two products (Lemire, Kaser, Kurz: Faster remainder by direct computation).
    """
    put, itemsize = put_int(kind), ITEMSIZE[kind]

    @native("void(ptr, ptr, i64, i64, i64, i64)", name=f"rl_integers_{kind}")
    def integers(state, out, n, span, base, wide):
        words = state + SCRATCH_AT
        d = u64(span)
        magic = u64(0)
        if wide == WORD32:
            magic = u64(0xFFFFFFFFFFFFFFFF) // d + 1
        done = 0
        while done < n:
            to = out + done * itemsize
            m = min(n - done, HALF)
            if wide == WORD32:
                take(state, words, m)
                for i in range(m):
                    put(to, i, i64(mulhi(magic * u64(words.u32[i]), d)) + base)
            else:
                take(state, words, m * 2)
                for i in range(m):
                    pair = words.u64[i]
                    word = (pair << 32) | (pair >> 32)
                    if wide == WORD64:
                        word = word % d
                    put(to, i, i64(word) + base)
            done += m

    return integers


def make_permutation(kind: str) -> NativeFunction:
    """`permutation(state, out, n)` of the integers 0 .. n-1 as `kind`.

    Below 2**32 / 20 elements: each element from the first on is swapped with a later one, by a 32-bit remainder.
    Above: the list grows by swapping the new number with an earlier one, by a 64-bit remainder.
    """
    T, put = _OF_SIZE[ITEMSIZE[kind]], put_int(kind)

    @native("void(ptr, ptr, i64)", name=f"rl_permutation_{kind}")
    def permutation(state, out, n):
        words = state + SCRATCH_AT
        take(state, words, 0)  # seeds the state if needed
        for i in range(n):
            put(out, i, i)
        if n < 4294967295 // 20:
            done = 0
            while done < n - 1:
                m = min(n - 1 - done, SCRATCH)
                take(state, words, m)
                for k in range(m):
                    i = done + k
                    j = i + i64(words.u32[k] % u32(n - i))
                    a = load(T, out, i)
                    store(T, out, i, load(T, out, j))
                    store(T, out, j, a)
                done += m
        else:
            for i in range(n):
                high = u64(draw(state)) << 32
                j = i64((high | u64(draw(state))) % u64(i + 1))
                put(out, i, i)
                a = load(T, out, i)
                store(T, out, i, load(T, out, j))
                store(T, out, j, a)

    return permutation
