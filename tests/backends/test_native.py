"""The native language: what it computes, and what it refuses."""

from __future__ import annotations

import ctypes
import math
import struct

import pytest

from rushlight._backends.cpu.runtime.stubs import bind, native_address
from rushlight._native import (
    Record,
    Words,
    atomic_add,
    atomic_cas,
    atomic_load,
    atomic_store,
    atomic_xchg,
    bitcast,
    bits,
    bswap,
    call_ptr,
    ceil,
    clz,
    copysign,
    ctz,
    extern,
    f32,
    f64,
    fence,
    floor,
    fma,
    funnel_left,
    i1,
    i8,
    i16,
    i32,
    i64,
    isnan,
    listed,
    load,
    memcpy,
    memset,
    mulhi,
    native,
    popcount,
    prefetch,
    ptr,
    rint,
    sdiv,
    select,
    sqrt,
    srem,
    stack,
    store,
    subtract_products,
    trunc,
    u8,
    u16,
    u32,
    u64,
)  # fmt: skip
from rushlight._native.compiler import compile_unit
from rushlight._native.emitter import NativeError
from rushlight._native.function import digest_of

STEP = 3
WORD = "abc"
log = extern("log", "f64(f64)")
strlen = extern("strlen", "i64(ptr)")


def buffer(*values, kind=ctypes.c_int64):
    return (kind * len(values))(*values)


def address(array):
    return ctypes.addressof(array)


# ***** statements *****


@native("i64(i64)")
def collatz(n):
    """Steps to 1."""
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n //= 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


@native("i64(i64, i64)")
def loops(a, b):
    total = 0
    for i in range(a, b, STEP):
        if i == 6:
            continue
        if i > 20:
            break
        total += i
    for i in range(b, a, -2):
        total += 100 * i
        i = 0
    for _j in range(3):
        total += 1
    return total


def loops_in_python(a, b):
    total = 0
    for i in range(a, b, STEP):
        if i == 6:
            continue
        if i > 20:
            break
        total += i
    for i in range(b, a, -2):
        total += 100 * i
    return total + 3


@native("i64(i64)")
def nested(n):
    for i in range(n):
        for j in range(n):
            if i * j == 12:
                return 100 * i + j
    return -1


@native("i64(i64, i64)")
def gcd(a, b):
    while b:
        a, b = b, a % b
    return abs(a)


@native("i64(i64)")
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def test_statements():
    f = bind(collatz)
    assert [f(n) for n in (1, 6, 27)] == [0, 8, 111]
    f = bind(loops)
    for a, b in ((0, 30), (3, 4), (5, 5), (-7, 9)):
        assert f(a, b) == loops_in_python(a, b)
    assert bind(nested)(10) == 206
    assert bind(nested)(3) == -1
    assert bind(gcd)(84, 36) == 12
    assert bind(fib)(20) == 6765


@native("i64(i64)")
def both_arms_return(n):
    if n > 0:
        return 1
    elif n == 0:
        return 0
    else:
        return -1


@native("i64(i64)")
def endless(n):
    while True:
        n += 1
        if n > 10:
            return n


def test_control_flow_without_a_last_return():
    assert [bind(both_arms_return)(n) for n in (5, 0, -5)] == [1, 0, -1]
    assert bind(endless)(3) == 11


@native("i64(i64)")
def unassigned_is_zero(n):
    if n > 0:
        x = 5
    return x


def test_a_variable_assigned_on_another_path_is_zero():
    assert bind(unassigned_is_zero)(1) == 5
    assert bind(unassigned_is_zero)(0) == 0


# ***** integers *****


@native("i64(i64, i64)")
def floordiv(a, b):
    return a // b


@native("i64(i64, i64)")
def modulo(a, b):
    return a % b


@native("i64(i64, i64)")
def c_division(a, b):
    return sdiv(a, b) * 1000 + srem(a, b)


@native("u32(u32, u32)")
def wraps(a, b):
    return (a * b + 1) ^ (a >> 3) | (b << 2) & ~a


@native("i8(i8)")
def shifts_right(a):
    return a >> 1


@native("i64(i64, i64)")
def extremes(a, b):
    return min(a, b) * 1000 + max(a, b)


def test_integer_arithmetic():
    for a in (-7, -6, 0, 5, 9):
        for b in (-4, -1, 2, 3):
            assert bind(floordiv)(a, b) == a // b
            assert bind(modulo)(a, b) == a % b
            assert bind(c_division)(a, b) == int(a / b) * 1000 + int(math.fmod(a, b))
    mask = (1 << 32) - 1
    for a, b in ((1, 2), (0xFFFFFFFF, 3), (0x80000001, 0x12345)):
        want = ((a * b + 1) & mask) ^ (a >> 3) | ((b << 2) & mask) & (~a & mask)
        assert bind(wraps)(a, b) == want
    assert bind(shifts_right)(-7) == -4
    assert bind(extremes)(3, -2) == -1997


@native("void(ptr, u64, i64)")
def bit_tricks(out, x, y):
    out.u64[0] = popcount(x)
    out.u64[1] = clz(x)
    out.u64[2] = ctz(x)
    out.u64[3] = bswap(x)
    out.u64[4] = mulhi(x, x)
    out.u64[5] = funnel_left(x, x, 13)
    out.i64[6] = mulhi(y, y * 3)
    out.u32[14] = mulhi(u32(x), u32(0x9E3779B9))


@native("void(ptr, ptr, ptr)")
def rest_of_products(p, q, r):
    subtract_products(f64, p, q, r)


def test_products_are_subtracted_in_lanes():
    p, q, r = (
        (ctypes.c_double * 8)(*(f(k) for k in range(8)))
        for f in (lambda k: 10.0 * k, lambda k: k + 0.5, lambda k: 2.0 - k)
    )
    bind(rest_of_products)(address(p), address(q), address(r))
    assert list(p) == [10.0 * k - (k + 0.5) * (2.0 - k) for k in range(8)]


def test_bit_tricks():
    out = (ctypes.c_uint64 * 8)()
    x, y = 0x00F0_1234_5678_9ABC, -(1 << 40) - 12345
    bind(bit_tricks)(address(out), x, y)
    assert out[0] == x.bit_count()
    assert out[1] == 64 - x.bit_length()
    assert out[2] == (x & -x).bit_length() - 1
    assert out[3] == int.from_bytes(x.to_bytes(8, "little"), "big")
    assert out[4] == x * x >> 64
    assert out[5] == ((x << 13) | (x >> 51)) & (1 << 64) - 1
    assert ctypes.c_int64(out[6]).value == y * (y * 3) >> 64
    assert out[7] & 0xFFFFFFFF == (x & 0xFFFFFFFF) * 0x9E3779B9 >> 32


# ***** conversions *****


@native("void(ptr, f64, i64)")
def converts(out, x, n):
    out.i64[0] = i64(x)
    out.f64[1] = f64(n)
    out.i64[2] = i64(i8(n))
    out.i64[3] = i64(u8(n))
    out.f64[4] = f64(f32(x))
    out.i64[5] = i64(i1(n))
    out.i64[6] = i64(u16(i16(-1)))
    out.u64[7] = bits(x)
    out.u64[8] = u64(bits(f32(x)))
    out.f64[9] = bitcast(f64, bits(x) ^ u64(1 << 63))
    out.i64[10] = i64(u64(ptr(u64(4096)) + 5))
    out.f64[11] = f64(u64(n))
    out.i64[12] = i64(-1.9)
    out.i64[13] = i64(u8(300))


def test_conversions():
    out = (ctypes.c_int64 * 14)()
    doubles = (ctypes.c_double * 14).from_buffer(out)
    bind(converts)(address(out), -2.7, -3)
    assert (out[0], doubles[1], out[2], out[3], out[5], out[6]) == (-2, -3.0, -3, 253, 1, 65535)
    assert doubles[4] == ctypes.c_float(-2.7).value
    assert out[7] == ctypes.c_int64.from_buffer(ctypes.c_double(-2.7)).value
    assert out[8] == ctypes.c_uint32.from_buffer(ctypes.c_float(-2.7)).value
    assert doubles[9] == 2.7
    assert out[10] == 4101
    assert doubles[11] == float(2**64 - 3)
    assert (out[12], out[13]) == (-1, 44)


# ***** floats *****


@native("void(ptr, f64, f64)")
def float_functions(out, x, y):
    out.f64[0] = sqrt(x)
    out.f64[1] = floor(y)
    out.f64[2] = ceil(y)
    out.f64[3] = trunc(y)
    out.f64[4] = rint(y)
    out.f64[5] = copysign(x, y)
    out.f64[6] = fma(x, y, 1.0)
    out.f64[7] = log(x)
    out.f64[8] = abs(y)
    out.f64[9] = -y
    out.f64[10] = srem(y, 1.0)
    out.f64[11] = x / 3


def test_float_functions():
    out = (ctypes.c_double * 12)()
    bind(float_functions)(address(out), 7.25, -2.5)
    assert list(out) == [
        math.sqrt(7.25), -3.0, -2.0, -2.0, -2.0, -7.25, 7.25 * -2.5 + 1, math.log(7.25), 2.5, 2.5, -0.5, 7.25 / 3
    ]  # fmt: skip


@native("i64(f64, f64)")
def compares(a, b):
    return (
        i64(a < b)
        + 2 * i64(a <= b)
        + 4 * i64(a == b)
        + 8 * i64(a != b)
        + 16 * i64(a > b)
        + 32 * i64(a >= b)
        + 64 * i64(isnan(a))
    )


def test_nan_compares_as_in_python():
    f = bind(compares)
    for a in (1.0, 2.0, math.nan, math.inf):
        for b in (1.0, 2.0, math.nan):
            want = (
                (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b) + 32 * (a >= b) + 64 * math.isnan(a)
            )
            assert f(a, b) == want


# ***** conditions *****

CALLS = buffer(0)


@native("i1(ptr, i1)")
def count_call(counter, answer):
    counter.i64[0] += 1
    return answer


@native("i64(ptr, i1, i1, i1)")
def logic(counter, a, b, c):
    result = 0
    if count_call(counter, a) and count_call(counter, b) or not count_call(counter, c):
        result = 1
    return result


def test_short_circuit():
    f = bind(logic)
    for a in (False, True):
        for b in (False, True):
            for c in (False, True):
                calls = buffer(0)
                want = int((a and b) or not c)
                assert f(address(calls), a, b, c) == want
                assert calls[0] == (2 if a and b else 3 if a else 2)


ABSENT = None


@native("i64(i64)")
def decided(n):
    result = 0
    if n > 0 and ABSENT is not None and ABSENT(n):
        result = 1
    if n > 5 or ABSENT is None or ABSENT(n):
        result += 2
    return result


def test_what_follows_a_constant_that_decides_is_not_compiled():
    assert [bind(decided)(n) for n in (-1, 3, 9)] == [2, 2, 2]


@native("i64(ptr, i64)")
def chained(counter, n):
    counter.i64[0] += 1
    return i64(0 <= n < 10 != 5)


@native("f64(i64)")
def conditional_constants(n):
    x = 1 if n > 0 else 2.5
    return x + select(n > 5, 10.0, 20.0)


def test_chains_and_conditional_expressions():
    c = buffer(0)
    assert [bind(chained)(address(c), n) for n in (-1, 0, 9, 10)] == [0, 1, 1, 0]
    assert [bind(conditional_constants)(n) for n in (-1, 3, 9)] == [22.5, 21.0, 11.0]


# ***** memory *****


@native("i64(ptr, ptr)")
def memory(out, text):
    local = stack(32)
    memset(local, u8(1), 32)
    memcpy(out, local + 4, 12)
    out.i16[6] = -2
    prefetch(out)
    empty: ptr = None
    here = text if text is not None else empty
    return strlen(here) * 100 + strlen(WORD) * 10 + (out + 12 - out) + i64(empty is None)


@native("void(ptr, ptr)")
def bools(out, p):
    out.i1[0] = p.i1[0] and not p.i1[1]
    out.i1[1] = p.i1[1] or p.i1[2]


def test_memory():
    out = (ctypes.c_uint8 * 16)()
    text = ctypes.create_string_buffer(b"hello")
    assert bind(memory)(address(out), address(text)) == 500 + 30 + 12 + 1
    assert list(out) == [1] * 12 + [0xFE, 0xFF, 0, 0]
    given, got = (ctypes.c_uint8 * 3)(1, 0, 7), (ctypes.c_uint8 * 2)(9, 9)
    bind(bools)(address(got), address(given))
    assert list(got) == [1, 1]


def bits_of(value):
    return struct.unpack("q", struct.pack("d", value))[0]


AT = Words("size step", first=8)


@native("i64(ptr)")
def product_of_words(at):
    return at.i64[AT.size] * at.i64[AT.step]


def test_words_are_places_in_python_and_in_native_functions():
    assert bind(product_of_words)(address(buffer(*range(10)))) == 72
    assert (AT.size, AT.step, len(AT), list(AT)) == (8, 9, 2, ["size", "step"])
    with pytest.raises(AttributeError, match="there is no word 'weight'"):
        AT.weight
    with pytest.raises(ValueError, match="named twice"):
        Words("a b a")


ITEM = Record("item", ("count", i64, "how many"), ("price", f64, "of one"))
ORDER = Record(
    "order",
    ("number", i64, "its number"),
    ("first", ITEM, "an item within"),
    ("items", listed(ITEM), "items elsewhere"),
)
ITEM_BYTES = 8 * len(ITEM)


@native("f64(ptr)")
def total_of_order(at):
    total = f64(at[ORDER.first][ITEM.count]) * at[ORDER.first][ITEM.price]
    item = at[ORDER.items]
    for _k in range(at[ORDER.number]):
        total += f64(item[ITEM.count]) * item[ITEM.price]
        item[ITEM.count] += 1
        item = item + ITEM_BYTES
    at[ORDER.number] = 0
    return total


def test_records_are_typed_fields_in_native_functions():
    raw = [2, 3, bits_of(0.5), 1, 10, bits_of(1.0), 20, bits_of(0.25)]  # the list begins one word behind its field
    memory = buffer(*raw)
    assert bind(total_of_order)(address(memory)) == 1.5 + 10 + 5
    assert list(memory) == [0, 3, bits_of(0.5), 1, 11, bits_of(1.0), 21, bits_of(0.25)]
    assert (ORDER.first.place, ORDER.items.place, len(ORDER), [f.name for f in ORDER]) == (
        1,
        3,
        4,
        ["number", "first", "items"],
    )
    with pytest.raises(AttributeError, match="item has no field 'weight'"):
        ITEM.weight
    with pytest.raises(ValueError, match="is there twice"):
        Record("twice", ("a", i64, ""), ("a", i64, ""))
    with pytest.raises(ValueError, match="a field has 64 bits, not 32"):
        Record("narrow", ("a", i32, ""))


@native("void(ptr)")
def write_a_list(at):
    at[ORDER.items] = 1


@native("i64(ptr)")
def read_an_unknown_field(at):
    return at[ORDER.weight]


@native("void(ptr)")
def write_the_wrong_type(at):
    at[ITEM.price] = i64(at[ITEM.count])


@pytest.mark.parametrize(
    ("function", "match"),
    [(write_a_list, "is no value"), (read_an_unknown_field, "attributes exist on"), (write_the_wrong_type, "f64")],
)
def test_fields_are_used_as_they_are_declared(function, match):
    with pytest.raises(NativeError, match=match):
        bind(function)


@native("i64(ptr)")
def atomics(p):
    atomic_store(i32, p, 4, 7)
    fence()
    a = atomic_add(i64, p, 0, 5)
    b = atomic_xchg(i64, p, 1, 9)
    c = atomic_cas(i64, p, 1, 9, 11)
    d = atomic_cas(i64, p, 1, 9, 13)
    return a * 1000 + b * 100 + c * 10 + d + i64(atomic_load(i32, p, 4))


def test_atomics():
    p = buffer(2, 3, 0)
    assert bind(atomics)(address(p)) == 2000 + 300 + 90 + 11 + 7
    assert (p[0], p[1]) == (7, 11)


# ***** functions and types as values *****


@native("i64(ptr, i64)")
def apply_twice(f, x):
    return call_ptr("i64(i64)", f, call_ptr("i64(i64)", f, x))


@native("i64(i64)")
def apply_fib(x):
    return apply_twice(fib, x)


def make_sum(kind, start=0):
    @native("f64(ptr, i64)", name=f"sum_{kind}")
    def total(p, n):
        s = f64(start)
        for i in range(n):
            if kind.is_float:
                s += f64(load(kind, p, i))
            else:
                s += f64(load(kind, p, i) * 2)
        if kind is u8:
            store(kind, p, 0, 99)
        return s

    return total


def test_function_pointers_and_templates():
    assert bind(apply_fib)(7) == 233
    assert bind(apply_twice)(native_address(fib), 7) == 233
    floats = (ctypes.c_float * 3)(1.5, 2, 3)
    assert bind(make_sum(f32))(address(floats), 3) == 6.5
    words = (ctypes.c_uint8 * 3)(1, 2, 200)
    assert bind(make_sum(u8, start=10))(address(words), 3) == 10 + 2 + 4 + 144
    assert words[0] == 99
    assert digest_of([make_sum(f32)]) == digest_of([make_sum(f32)])
    assert digest_of([make_sum(f32)]) != digest_of([make_sum(f32, start=1)]) != digest_of([make_sum(f64)])


def test_a_digest_tells_where_words_lie():
    """Else code that reads words by their old places would be loaded after one was put between them."""

    def made(words):
        @native("i64(ptr)", name="word")
        def read(p):
            return p.i64[words.size]

        return read

    assert digest_of([made(Words("size step"))]) == digest_of([made(Words("size other"))])
    assert digest_of([made(Words("size step"))]) != digest_of([made(Words("step size"))])


# ***** refusals *****


def refused(function, match):
    with pytest.raises(NativeError, match=match) as info:
        compile_unit([function], "x86_64")
    text = str(info.value)
    assert "test_native.py:" in text and "^" in text  # the user's line, and where in it


def test_refusals_show_the_line():
    @native("i64(i64, f64)")
    def mixed(a, b):
        return a + b

    @native("i64(i64)")
    def no_return(a):
        if a > 0:
            return 1

    @native("i64(i64)")
    def a_list(a):
        x = [a]
        return x[0]

    @native("i64(i64)")
    def changes_type(a):
        x = a
        x = 1.5
        return x

    @native("i64(i64)")
    def unknown(a):
        return undefined_name + a  # noqa: F821

    @native("i64(i64)")
    def divides(a):
        return a / 2

    @native("i64(i64)")
    def reads_early(a):
        b = later + a  # noqa: F821
        later = b
        return later

    @native("u8(i64)")
    def too_large(a):
        return 256

    @native("i64(i64)")
    def wrong_count(a):
        return fib(a, a)

    @native("i64(i64)")
    def keyword(a):
        return fib(n=a)

    refused(mixed, "operands of different types i64 and f64")
    refused(no_return, "can end without returning")
    refused(a_list, "List expressions are not in the subset")
    refused(changes_type, "1.5 cannot be used as i64")
    refused(unknown, "'undefined_name' is not defined")
    refused(divides, "write a // b for integers")
    refused(reads_early, "read before it is assigned")
    refused(too_large, "256 does not fit u8")
    refused(wrong_count, "was given 2 arguments")
    refused(keyword, "keyword arguments")


def test_signatures_are_checked():
    with pytest.raises(ValueError, match="unknown type"):
        native("int(ptr)")(lambda p: p)
    with pytest.raises(ValueError, match="malformed signature"):
        native("i64")(lambda p: p)
    with pytest.raises(TypeError, match="has 2 arguments"):
        native("i64(i64, i64)")(lambda p: p)
    with pytest.raises(TypeError, match="not bound"):
        fib(3)
    with pytest.raises(TypeError, match="only inside"):
        sqrt(2.0)


def test_unit_text_is_for_any_machine():
    from rushlight._backends.cpu.runtime.threads_native import rl_parallel_for

    assert "llvm.aarch64.hint" in compile_unit([rl_parallel_for], "aarch64")
    assert "llvm.x86.sse2.pause" in compile_unit([rl_parallel_for], "x86_64")
    with pytest.raises(NativeError, match="two functions"):
        compile_unit([make_sum(f32), make_sum(f32)], "x86_64")


def _make_scale(factor: int, inner: int):
    @native("i64(i64)", name="added")
    def added(x):
        return x + inner

    @native("i64(i64)", name="scaled")
    def scaled(x):
        return added(x) * factor

    return scaled


def test_equal_functions_are_compiled_once():
    """A factory that is called twice with the same makes one function of a unit; with anything else, deep inside too, two."""
    same, again, other, deeper = _make_scale(3, 1), _make_scale(3, 1), _make_scale(4, 1), _make_scale(3, 2)

    @native("i64(i64)")
    def all_of(x):
        return same(x) + again(x) + 100 * other(x) + 1000 * deeper(x)

    text = compile_unit([all_of], "x86_64")
    assert text.count("define internal") == 5  # three that scale, two that add
    x = 5
    assert bind(all_of)(x) == 2 * (x + 1) * 3 + 100 * (x + 1) * 4 + 1000 * (x + 2) * 3


def _make_even(start: int):
    @native("i64(i64)", name="even")
    def even(n):
        return 1 if n == start else odd(n - 1)

    @native("i64(i64)", name="odd")
    def odd(n):
        return 0 if n == start else even(n - 1)

    return even


def test_functions_that_call_each_other_are_never_merged():
    from_zero, from_one = _make_even(0), _make_even(1)

    @native("i64(i64)")
    def both(n):
        return from_zero(n) * 10 + from_one(n)

    assert [bind(both)(n) for n in (2, 3)] == [10, 1]
