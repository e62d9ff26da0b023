"""Random numbers on the CPU: the distributions, as native kernels over the engine of `mt19937`.

The streams are PyTorch's, bit for bit: how many words of the engine an element takes, in which order they are taken,
and how each result is rounded is part of what these kernels promise (`tests/random` holds them to it).

A kernel takes the words it needs in chunks into the scratch memory of the generator and transforms them in a loop of its
own, so that state and words stay in the first-level cache.  Results are rounded into the dtype as they are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._backends.cpu.mt19937 import (
    ITEMSIZE,
    bfloat_bits,
    draw,
    draw_unit,
    half_bits,
    int53,
    mt_take,
    put_float,
    put_int,
    take,
    unit24,
    unit53,
)  # fmt: skip
from rushlight._backends.cpu.random_state import DOUBLE_NORMAL, DOUBLE_VALID, HALF, SCRATCH, SCRATCH_AT
from rushlight._backends.native import (
    NativeFunction,
    bitcast,
    bits,
    ceil,
    extern,
    f32,
    f64,
    floor,
    fma,
    i32,
    i64,
    load,
    memcpy,
    mulhi,
    native,
    select,
    sqrt,
    stack,
    store,
    u8,
    u16,
    u32,
    u64,
)  # fmt: skip

__all__ = ["kernel", "native_kernel", "take_address"]

log = extern("log", "f64(f64)")
log1p = extern("log1p", "f64(f64)")
exp = extern("exp", "f64(f64)")
tan = extern("tan", "f64(f64)")
lgamma = extern("lgamma", "f64(f64)")
sincos = extern("sincos", "void(f64, ptr, ptr)")
power = extern("pow", "f64(f64, f64)")


# ***** uniform *****


def _uniform(kind: str) -> NativeFunction:
    """`uniform(state, out, n, low, high)`: [low, high); what rounding lifts to `high` becomes `low`."""
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
        def uniform(state, out, n, low, high):  # type: ignore[no-redef]
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
    def uniform(state, out, n, low, high):  # type: ignore[no-redef]
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


# ***** normal: blocks of 16 *****


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
    """Pairs of uniforms (a[i], b[i]) become pairs of normals.  Sine and cosine are Cephes', after a reduction in three steps."""
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
    """`groups` (at most 64) times 16 words become normals, in place.

    In a group of 16 numbers the first 8 and the last 8 make pairs; they are sorted apart so that the transform is one long loop.
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


def _normal(kind: str) -> NativeFunction:
    """`normal(state, out, n, mean, std)` for n >= 16: whole groups of 16, then the last 16 numbers once more, from new words.

    float32 and float64 have by then used up the words of the incomplete group as well; float16 and bfloat16 have not.
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
    """16 uniforms in place; logarithm, sine and cosine are the C library's, as in PyTorch."""
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


# ***** normal: one by one *****


@native("f64(ptr)")
def draw_normal(state):
    """A standard normal number in float64.  Two come at a time; the second waits in the state."""
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


def _normal_serial(kind: str, exponential: bool) -> NativeFunction:
    """`normal(state, out, n, mean, std)` as PyTorch fills what is small or not contiguous; or the exponential of that."""
    put = put_float(kind)

    @native("void(ptr, ptr, i64, f64, f64)", name=f"rl_{'log_normal' if exponential else 'normal_serial'}_{kind}")
    def normal(state, out, n, mean, std):
        take(state, state, 0)  # makes sure that the state is seeded
        for i in range(n):
            v = fma(draw_normal(state), std, mean)
            if exponential:
                put(out, i, exp(v))
            else:
                put(out, i, v)

    return normal


# ***** other continuous distributions: a float64 uniform each, transformed with the C library's functions *****


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


def _transformed(name: str, transform: NativeFunction) -> Callable[[str], NativeFunction]:
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


# ***** Bernoulli: the pattern `one` or zero in elements of 1, 2, 4 or 8 bytes *****

_OF_SIZE = {1: u8, 2: u16, 4: u32, 8: u64}


def _bernoulli(size: str) -> NativeFunction:
    """`bernoulli(state, out, n, p, one)`: `one` where a float64 uniform is below p.

    With another `one` than 1 it makes the scaled mask of a dropout.  The comparison is made between integers: u < p exactly
    where the 53 bits of u are below ceil(p * 2**53).
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


def _bernoulli_each(size_and_p: str) -> NativeFunction:
    """`bernoulli(state, out, n, p, one)` with a probability for each element, float32 or float64 (uniforms of the same dtype)."""
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


def _outside_unit(p_kind: str) -> NativeFunction:
    """`outside(p, n)`: how many of n probabilities are not in [0, 1] (NaN is not)."""
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


def _integers(kind: str) -> NativeFunction:
    """`integers(state, out, n, range, base, wide)`: base + word % range, as the dtype.

    `wide` says what a word is: 0 one of 32 bits, 1 one of 64, 2 one of 64 without a remainder taken.  The 32-bit remainder is
    two products (Lemire, Kaser, Kurz: Faster remainder by direct computation).
    """
    put, itemsize = put_int(kind), ITEMSIZE[kind]

    @native("void(ptr, ptr, i64, i64, i64, i64)", name=f"rl_integers_{kind}")
    def integers(state, out, n, span, base, wide):
        words = state + SCRATCH_AT
        d = u64(span)
        magic = u64(0)
        if wide == 0:
            magic = u64(0xFFFFFFFFFFFFFFFF) // d + 1
        done = 0
        while done < n:
            to = out + done * itemsize
            m = min(n - done, HALF)
            if wide == 0:
                take(state, words, m)
                for i in range(m):
                    put(to, i, i64(mulhi(magic * u64(words.u32[i]), d)) + base)
            else:
                take(state, words, m * 2)
                for i in range(m):
                    pair = words.u64[i]
                    word = (pair << 32) | (pair >> 32)
                    if wide == 1:
                        word = word % d
                    put(to, i, i64(word) + base)
            done += m

    return integers


def _permutation(kind: str) -> NativeFunction:
    """`permutation(state, out, n)` of the integers 0 .. n-1 held as `kind`.

    Below 2**32 / 20 elements: each place from the first on is swapped with a later one, by a 32-bit remainder.  Above: the
    list grows by swapping the new number with an earlier one, by a 64-bit remainder.
    """
    T, put = _OF_SIZE[ITEMSIZE[kind]], put_int(kind)

    @native("void(ptr, ptr, i64)", name=f"rl_permutation_{kind}")
    def permutation(state, out, n):
        words = state + SCRATCH_AT
        take(state, words, 0)  # makes sure that the state is seeded
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


# ***** choices and counts *****


def _weights_status(p_kind: str) -> NativeFunction:
    """0 for good weights, 1 if one is negative, infinite or NaN, 2 if a row has no weight."""
    P = f64 if p_kind == "f64" else f32

    @native("i64(ptr, i64, i64)", name=f"rl_weights_status_{p_kind}")
    def status(p, rows, categories):
        found = 0
        for row in range(rows):
            total = P(0.0)
            for j in range(categories):
                v = load(P, p, row * categories + j)
                if not (v >= P(0.0)) or v - v != P(0.0):
                    return 1
                total = total + v
            if not (total > P(0.0)):
                found = 2
        return found

    return status


def _multinomial(p_kind: str) -> NativeFunction:
    """`multinomial(state, out, p, rows, categories, samples, sums)`: indices drawn with replacement by the weights of each row.

    `sums` is room for one row.  A running sum in the dtype, divided by the last one; a float64 uniform each; the first
    category whose sum is not below it.  Returns the weights' status (see above), and draws nothing unless that is 0.
    """
    P, check = f64 if p_kind == "f64" else f32, _weights_status(p_kind)
    p_size = P.itemsize

    @native("i64(ptr, ptr, ptr, i64, i64, i64, ptr)", name=f"rl_multinomial_{p_kind}")
    def multinomial(state, out, p, rows, categories, samples, sums):
        status = check(p, rows, categories)
        if status != 0:
            return status
        take(state, state, 0)  # makes sure that the state is seeded
        for row in range(rows):
            weights = p + row * categories * p_size
            total = P(0.0)
            for j in range(categories):
                total = total + load(P, weights, j)
                store(P, sums, j, total)
            for j in range(categories):
                store(P, sums, j, load(P, sums, j) / total)
            store(P, sums, categories - 1, P(1.0))
            for s in range(samples):
                u = draw_unit(state)
                low = 0
                high = categories
                while low < high:
                    middle = low + ((high - low) >> 1)
                    if f64(load(P, sums, middle)) < u:
                        low = middle + 1
                    else:
                        high = middle
                out.i64[row * samples + s] = low
        return 0

    return multinomial


def _choice(p_kind: str) -> NativeFunction:
    """`choice(state, out, p, rows, categories)`: one index for each row, by its weights.

    The first largest of p / t, where t are exponential numbers; NaN (0 / 0) counts as largest.  Returns the weights' status,
    and draws nothing unless that is 0.
    """
    P, check = f64 if p_kind == "f64" else f32, _weights_status(p_kind)

    @native("i64(ptr, ptr, ptr, i64, i64)", name=f"rl_choice_{p_kind}")
    def choice(state, out, p, rows, categories):
        status = check(p, rows, categories)
        if status != 0:
            return status
        take(state, state, 0)  # makes sure that the state is seeded
        for row in range(rows):
            best = P(-1.0)
            place = 0
            for j in range(categories):
                key = load(P, p, row * categories + j) / P(to_exponential(draw_unit(state), -1.0, 0.0))
                if key > best or (key != key and best == best):
                    best = key
                    place = j
            out.i64[row] = place
        return 0

    return choice


@native("f64(ptr, f64)")
def draw_poisson(state, rate):
    """One Poisson number: products of uniforms below 10, Hoermann's transformed rejection from there."""
    if rate == 0.0:
        return 0.0
    if rate < 10.0:
        limit = exp(-rate)
        count = 0.0
        product = draw_unit(state)
        while product > limit:
            count += 1.0
            product = product * draw_unit(state)
        return count
    log_rate = log(rate)
    b = 0.931 + 2.53 * sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    accept = 0.9277 - 3.6224 / (b - 2.0)
    while True:
        u = draw_unit(state) - 0.5
        v = draw_unit(state)
        us = 0.5 - abs(u)
        k = floor((2.0 * a / us + b) * u + rate + 0.43)
        if us >= 0.07 and v <= accept:
            return k
        if not (k < 0.0 or (us < 0.013 and v > us)):
            if log(v) + log(inverse_alpha) - log(a / (us * us) + b) <= k * log_rate - rate - lgamma(k + 1.0):
                return k
    return 0.0


def _poisson(kind: str) -> NativeFunction:
    """`poisson(state, out, n, rates)`: a count for each rate (float64); returns 1, drawing nothing, if one is not >= 0."""
    put = put_float(kind)

    @native("i64(ptr, ptr, i64, ptr)", name=f"rl_poisson_{kind}")
    def poisson(state, out, n, rates):
        take(state, state, 0)  # makes sure that the state is seeded
        for i in range(n):
            if not (rates.f64[i] >= 0.0):
                return 1
        for i in range(n):
            put(out, i, draw_poisson(state, rates.f64[i]))
        return 0

    return poisson


def _leaks(kind: str) -> NativeFunction:
    """`leaks(state, out, n, x, low, high)`: a float64 uniform of [low, high) where x <= 0 (drawn there only), 1 elsewhere.

    These are the slopes of the randomised leaky rectifier.
    """
    P = f64 if kind == "f64" else f32

    @native("void(ptr, ptr, i64, ptr, f64, f64)", name=f"rl_leaks_{kind}")
    def leaks(state, out, n, x, low, high):
        take(state, state, 0)  # makes sure that the state is seeded
        for i in range(n):
            if load(P, x, i) <= P(0.0):
                store(P, out, i, P(draw_unit(state) * (high - low) + low))
            else:
                store(P, out, i, P(1.0))

    return leaks


@native("f64(f64)", inline=True)
def stirling_tail(k):
    """What Stirling's formula leaves out of log(k!), for a whole k."""
    if k >= 10.0:
        square = (k + 1.0) * (k + 1.0)
        return (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0) / square) / square) / (k + 1.0)
    low = select(k < 1.0, 0.0810614667953272, select(k < 2.0, 0.0413406959554092, 0.0276779256849983))
    low = select(k < 3.0, low, select(k < 4.0, 0.02079067210376509, 0.0166446911898211))
    high = select(k < 6.0, 0.0138761288230707, select(k < 7.0, 0.0118967099458917, 0.0104112652619720))
    high = select(k < 8.0, high, select(k < 9.0, 0.00925546218271273, 0.00833056343336287))
    return select(k < 5.0, low, high)


def _binomial(kind: str) -> NativeFunction:
    """`binomial(state, out, n, counts, p)`: successes in counts[i] trials, each of chance p[i]; both in the dtype of the result.

    Few expected successes: trials until the next success, added up.  Ten and more: Hoermann's transformed rejection (BTRS).
    The parameters are computed in the dtype itself, the rest in float64, as PyTorch mixes them.
    """
    P = f64 if kind == "f64" else f32
    log1p_of = log1p if P is f64 else extern("log1pf", "f32(f32)")

    @native(f"{kind}(ptr, {kind}, {kind})", name=f"rl_binomial_few_{kind}")
    def few(state, count, p):
        log_failure = f64(log1p_of(-p))
        trials = 0.0
        successes = P(0.0)
        while True:
            trials += ceil(log(draw_unit(state)) / log_failure)
            if trials > f64(count):
                return successes
            successes += P(1.0)
        return successes

    @native(f"{kind}(ptr, {kind}, {kind})", name=f"rl_binomial_many_{kind}")
    def many(state, count, p):
        n = f64(count)
        spread = f64(sqrt(count * p * (P(1.0) - p)))
        b = 1.15 + 2.53 * spread
        a = -0.0873 + 0.0248 * b + 0.01 * f64(p)
        c = f64(count * p) + 0.5
        accept = 0.92 - 4.2 / b
        odds = f64(p / (P(1.0) - p))
        alpha = (2.83 + 5.1 / b) * spread
        mode = f64(floor((count + P(1.0)) * p))
        while True:
            u = draw_unit(state) - 0.5
            v = draw_unit(state)
            us = 0.5 - abs(u)
            k = P(floor((2.0 * a / us + b) * u + c))
            if k >= P(0.0) and k <= count:
                if us >= 0.07 and v <= accept:
                    return k
                rest = f64(count - k + P(1.0))
                bound = (mode + 0.5) * log((mode + 1.0) / (odds * (n - mode + 1.0)))
                bound = bound + f64(count + P(1.0)) * log((n - mode + 1.0) / rest)
                bound = bound + (f64(k) + 0.5) * log(odds * rest / f64(k + P(1.0)))
                bound = (
                    bound
                    + stirling_tail(mode)
                    + stirling_tail(n - mode)
                    - stirling_tail(f64(k))
                    - stirling_tail(f64(count - k))
                )
                if log(v * alpha / (a / (us * us) + b)) <= bound:
                    return k
        return P(0.0)

    @native("void(ptr, ptr, i64, ptr, ptr)", name=f"rl_binomial_{kind}")
    def binomial(state, out, n, counts, chances):
        take(state, state, 0)  # makes sure that the state is seeded
        for i in range(n):
            count = load(P, counts, i)
            p = load(P, chances, i)
            made = P(0.0)
            if count > P(0.0) and p > P(0.0):
                q = p
                if p > P(0.5):
                    q = P(1.0 - f64(p))
                if p >= P(1.0):
                    made = count
                elif f64(count * q) >= 10.0:
                    made = many(state, count, q)
                else:
                    made = few(state, count, q)
                if p > P(0.5) and p < P(1.0):
                    made = count - made
            store(P, out, i, made)

    return binomial


def _gamma(kind: str) -> NativeFunction:
    """`gamma(state, out, n, shapes, smallest)`: gamma numbers of rate 1 for shapes in the dtype of the result, at least `smallest`.

    Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); a shape below 1 is raised by 1 and the number
    multiplied by a power of a uniform one.  Shapes are prepared in the dtype itself, with float32 constants, as PyTorch mixes them.
    """
    P = f64 if kind == "f64" else f32
    third = 0.3333333432674408  # the float32 nearest to 1/3

    @native(f"f64(ptr, {kind})", name=f"rl_gamma_one_{kind}")
    def one(state, shape):
        scale = 1.0
        alpha = shape
        if shape < P(1.0):
            if shape == P(0.0):
                return 0.0
            scale = power(1.0 - draw_unit(state), f64(P(1.0) / shape))
            alpha = shape + P(1.0)
        d = f64(alpha - P(third))
        c = 1.0 / sqrt(9.0 * d)
        while True:
            x = draw_normal(state)
            y = 1.0 + c * x
            while y <= 0.0:
                x = draw_normal(state)
                y = 1.0 + c * x
            v = y * y * y
            u = 1.0 - draw_unit(state)
            square = x * x
            if u < 1.0 - 0.033100001513957977 * square * square:
                return scale * d * v
            if log(u) < 0.5 * square + d * (1.0 - v + log(v)):
                return scale * d * v
        return 0.0

    @native("void(ptr, ptr, i64, ptr, f64)", name=f"rl_gamma_{kind}")
    def gamma(state, out, n, shapes, smallest):
        take(state, state, 0)  # makes sure that the state is seeded
        for i in range(n):
            made = P(one(state, load(P, shapes, i)))
            store(P, out, i, select(made > P(smallest), made, P(smallest)))

    return gamma


# ***** the table *****

_MAKERS: dict[str, Callable[[str], NativeFunction]] = {
    "uniform": _uniform,
    "normal": _normal,
    "normal_serial": lambda kind: _normal_serial(kind, False),
    "log_normal": lambda kind: _normal_serial(kind, True),
    "exponential": _transformed("exponential", to_exponential),
    "cauchy": _transformed("cauchy", to_cauchy),
    "geometric": _transformed("geometric", to_geometric),
    "bernoulli": _bernoulli,
    "bernoulli_each": _bernoulli_each,
    "outside_unit": _outside_unit,
    "integers": _integers,
    "permutation": _permutation,
    "multinomial": _multinomial,
    "choice": _choice,
    "weights_status": _weights_status,
    "poisson": _poisson,
    "leaks": _leaks,
    "binomial": _binomial,
    "gamma": _gamma,
}
_made: dict[tuple[str, str], NativeFunction] = {}
_bound: dict[tuple[str, str], Callable[..., Any]] = {}


def native_kernel(name: str, kind: str = "") -> NativeFunction:
    """The kernel `name` for a kind of element (`f32`, `bf16`, `i64`..., or what the maker's docstring says), not compiled."""
    key = (name, kind)
    if key not in _made:
        _made[key] = _MAKERS[name](kind)
    return _made[key]


def kernel(name: str, kind: str = "") -> Callable[..., Any]:
    """The same, compiled: a function of integers (addresses and sizes) and floats that releases the GIL."""
    key = (name, kind)
    bound = _bound.get(key)
    if bound is None:
        from rushlight._backends.cpu.stubs import bind

        bound = _bound[key] = bind(native_kernel(name, kind), nogil=True)
    return bound


def take_address() -> int:
    """The address of the compiled `mt_take`, which a generator's block must hold before a kernel draws from it."""
    from rushlight._backends.cpu.stubs import native_address

    return native_address(mt_take)
