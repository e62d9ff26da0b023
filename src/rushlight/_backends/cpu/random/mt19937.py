"""The random engine of the CPU, the Mersenne twister mt19937, and the conversion of its words to numbers.

    one number of 32 bits    one word                                   float32 uniforms use its low 24 bits
    one number of 64 bits    two words, the first is the upper half     float64 uniforms use its low 53 bits

A generator is one block of memory, laid out in `random_state`; every native function takes its address first.
`mt_take` makes words in bulk, in two vector loops (a new block of state, tempering); it is compiled once, and the
distributions call it through the pointer `TAKE` of the block.
"""

from __future__ import annotations

from rushlight._host.random_state import (
    DOUBLE_NORMAL,
    DOUBLE_VALID,
    FLOAT_NORMAL,
    FLOAT_VALID,
    LEFT,
    NEXT,
    SEED,
    SEEDED,
    TAKE,
    WORDS,
)
from rushlight._native import (
    NativeFunction,
    bitcast,
    bits,
    call_ptr,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    memset,
    native,
    select,
    stack,
    store,
    u8,
    u16,
    u32,
    u64,
    unlikely,
)

__all__ = [
    "ITEMSIZE", "bfloat_bits", "draw", "draw_unit", "half_bits", "int53", "mt_restore", "mt_save", "mt_take", "put_float", "put_int", "take", "unit24", "unit53",
]  # fmt: skip

SHIFT = 397
UPPER = 0x80000000
LOWER = 0x7FFFFFFF
MATRIX = 0x9908B0DF


# ***** the engine *****


@native("void(ptr)")
def mt_seed(state):
    """Initialise the words from the seed (Knuth's generator, as in the authors' init_genrand)."""
    x = u32(state.u64[SEED])
    state.u32[0] = x
    for j in range(1, WORDS):
        x = u32(1812433253) * (x ^ (x >> 30)) + u32(j)
        state.u32[j] = x
    state.u32[LEFT] = 1
    state.u32[NEXT] = 0
    state.u32[SEEDED] = 1


@native("u32(u32, u32)", inline=True)
def mt_twist(u, v):
    return (((u & u32(UPPER)) | (v & u32(LOWER))) >> 1) ^ (u32(MATRIX) & (u32(0) - (v & 1)))


@native("void(ptr)")
def mt_block(state):
    """Compute the next 624 words.  Two loops, because the second reads what the first wrote: each has no dependence
    closer than 227."""
    for j in range(WORDS - SHIFT):
        state.u32[j] = state.u32[j + SHIFT] ^ mt_twist(state.u32[j], state.u32[j + 1])
    for j in range(WORDS - SHIFT, WORDS - 1):
        state.u32[j] = state.u32[j - (WORDS - SHIFT)] ^ mt_twist(state.u32[j], state.u32[j + 1])
    state.u32[WORDS - 1] = state.u32[SHIFT - 1] ^ mt_twist(state.u32[WORDS - 1], state.u32[0])


@native("u32(u32)", inline=True)
def mt_temper(y):
    y = y ^ (y >> 11)
    y = y ^ ((y << 7) & u32(0x9D2C5680))
    y = y ^ ((y << 15) & u32(0xEFC60000))
    return y ^ (y >> 18)


@native("void(ptr, ptr, i64)")
def mt_take(state, out, n):
    """Write the next n words of the stream to `out`."""
    if unlikely(state.u32[SEEDED] == 0):
        mt_seed(state)
    left = i64(state.u32[LEFT])
    at = i64(state.u32[NEXT])
    while n > 0:
        if left == 1:
            mt_block(state)
            left = WORDS + 1
            at = 0
        k = min(n, left - 1)
        source = state + at * 4
        for i in range(k):
            out.u32[i] = mt_temper(source.u32[i])
        out = out + k * 4
        at += k
        left -= k
        n -= k
    state.u32[LEFT] = u32(left)
    state.u32[NEXT] = u32(at)


# A saved state in PyTorch's format: seed (64 bits), left, seeded, next (64 bits), the words (64 bits each), a float64
# normal between two unused numbers, whether it is valid, a float32 normal, whether that is valid (a byte).
SAVED_BYTES = 5056
# In elements of their own sizes
SAVED_WORDS, SAVED_DOUBLE, SAVED_VALID, SAVED_FLOAT, SAVED_FLOAT_VALID = 3, 628, 1260, 1262, 5052


@native("void(ptr, ptr)")
def mt_save(state, out):
    """Write the state in PyTorch's format."""
    if state.u32[SEEDED] == 0:
        mt_seed(state)
    memset(out, u8(0), SAVED_BYTES)
    out.u64[0] = state.u64[SEED]
    out.u32[2] = state.u32[LEFT]
    out.u32[3] = 1
    out.u32[4] = state.u32[NEXT]
    for j in range(WORDS):
        out.u64[SAVED_WORDS + j] = u64(state.u32[j])
    if state.u32[DOUBLE_VALID] != 0:
        out.f64[SAVED_DOUBLE] = state.f64[DOUBLE_NORMAL]
        out.u32[SAVED_VALID] = 1
    if state.u32[FLOAT_VALID] != 0:
        out.u32[SAVED_FLOAT] = state.u32[FLOAT_NORMAL]
        out.u8[SAVED_FLOAT_VALID] = 1


@native("i64(ptr, ptr)")
def mt_restore(state, saved):
    """Continue from a saved state; 0, or 1 if it is invalid.  The checks keep every draw inside the words."""
    left, next_ = i64(saved.i32[2]), saved.u64[2]
    if saved.u32[3] == 0 or left <= 0 or left > WORDS or next_ > WORDS or i64(next_) + left - 1 > WORDS:
        return 1
    for j in range(WORDS):
        state.u32[j] = u32(saved.u64[SAVED_WORDS + j])
    state.u32[LEFT] = u32(left)
    state.u32[NEXT] = u32(next_)
    state.u32[SEEDED] = 1
    state.u32[DOUBLE_VALID] = select(saved.u32[SAVED_VALID] != 0, u32(1), u32(0))
    state.u32[FLOAT_VALID] = select(saved.u8[SAVED_FLOAT_VALID] != 0, u32(1), u32(0))
    state.u32[FLOAT_NORMAL] = saved.u32[SAVED_FLOAT]
    state.u64[SEED] = saved.u64[0]
    state.f64[DOUBLE_NORMAL] = saved.f64[SAVED_DOUBLE]
    return 0


@native("void(ptr, ptr, i64)", inline=True)
def take(state, out, n):
    """`mt_take`, from another compiled unit.  With n = 0 it only makes sure that the state is seeded."""
    call_ptr("void(ptr, ptr, i64)", state.ptr[TAKE], state, out, n)


@native("u32(ptr)", inline=True)
def draw(state):
    """Draw one word; the state must be seeded."""
    left = state.u32[LEFT]
    if unlikely(left == 1):
        one = stack(4)
        take(state, one, 1)
        return one.u32[0]
    at = state.u32[NEXT]
    state.u32[LEFT] = left - 1
    state.u32[NEXT] = at + 1
    return mt_temper(state.u32[i64(at)])


@native("f64(ptr)", inline=True)
def draw_unit(state):
    """Draw a float64 in [0, 1) from two words; the state must be seeded."""
    high = u64(draw(state)) & 0x1FFFFF
    return f64(i64((high << 32) | u64(draw(state)))) * 2.0**-53


@native("f64(ptr, i64)", inline=True)
def unit53(words, i):
    """The i-th float64 in [0, 1) of an array of words, two for each.

    The halves become float64 by way of the exponent 2**52, which any vector unit supports; every step is exact.
    """
    pair = words.u64[i]
    high = bitcast(f64, (pair & 0x1FFFFF) | 0x4330000000000000) - 4503599627370496.0
    low = bitcast(f64, (pair >> 32) | 0x4330000000000000) - 4503599627370496.0
    return high * 2.0**-21 + low * 2.0**-53


@native("i64(ptr, i64)", inline=True)
def int53(words, i):
    """The same number times 2**53."""
    pair = words.u64[i]
    return i64(((pair & 0x1FFFFF) << 32) | (pair >> 32))


@native("f32(ptr, i64)", inline=True)
def unit24(words, i):
    """The i-th float32 in [0, 1) of an array of words."""
    return f32(i32(words.u32[i] & 0xFFFFFF)) * f32(2.0**-24)


# ***** storing results in any dtype *****


@native("u16(f32)", inline=True)
def half_bits(x):
    """x rounded to float16."""
    b = bits(x)
    a = b & 0x7FFFFFFF
    # below the normal range, adding 0.5 leaves the rounded subnormal in the low bits
    small = bits(bitcast(f32, a) + f32(0.5)) - 0x3F000000
    normal = (a + u32(0xC8000FFF) + ((a >> 13) & 1)) >> 13
    r = select(a < 0x38800000, small, normal)
    r = select(a >= 0x47800000, u32(0x7C00), r)
    r = select(a > 0x7F800000, u32(0x7E00), r)
    return u16(r | ((b >> 16) & 0x8000))


@native("u16(f32)", inline=True)
def bfloat_bits(x):
    """x rounded to bfloat16."""
    b = bits(x)
    return u16(select((b & 0x7FFFFFFF) > 0x7F800000, u32(0x7FC0), (b + 0x7FFF + ((b >> 16) & 1)) >> 16))


_PLAIN = {
    "f32": f32,
    "f64": f64,
    "u8": u8,
    "i8": i8,
    "i16": i16,
    "i32": i32,
    "i64": i64,
    "u16": u16,
    "u32": u32,
    "u64": u64,
}
ITEMSIZE = {kind: T.itemsize for kind, T in _PLAIN.items()} | {"f16": 2, "bf16": 2}


def put_float(kind: str) -> NativeFunction:
    """`put(p, i, v)`: element i becomes the float64 v as C casts it (float16 and bfloat16 by way of float32)."""
    if kind in _PLAIN:
        T = _PLAIN[kind]
        if T.is_int and T.bits < 32:  # C converts through int, which defines out-of-range values

            @native("void(ptr, i64, f64)", name=f"put_{kind}", inline=True)
            def put(p, i, v):
                store(T, p, i, T(i32(v)))

            return put

        @native("void(ptr, i64, f64)", name=f"put_{kind}", inline=True)
        def put(p, i, v):
            store(T, p, i, T(v))

        return put
    round_bits = {"f16": half_bits, "bf16": bfloat_bits}[kind]

    @native("void(ptr, i64, f64)", name=f"put_{kind}", inline=True)  # type: ignore[no-redef]
    def put(p, i, v):
        p.u16[i] = round_bits(f32(v))

    return put


def put_int(kind: str) -> NativeFunction:
    """`put(p, i, v)`: element i becomes the int64 v."""
    if kind in _PLAIN:
        T = _PLAIN[kind]

        @native("void(ptr, i64, i64)", name=f"put_int_{kind}", inline=True)
        def put(p, i, v):
            store(T, p, i, T(v))

        return put
    round_bits = {"f16": half_bits, "bf16": bfloat_bits}[kind]

    @native("void(ptr, i64, i64)", name=f"put_int_{kind}", inline=True)  # type: ignore[no-redef]
    def put(p, i, v):
        p.u16[i] = round_bits(f32(v))

    return put
