"""Integers and bools: wrap-around, division that never traps, shifts out of range, and the checks that are reported."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.kernels.scalar_harness import FEATURES, run

from rushlight._backends.cpu.microkernels.dot_tile import has_byte_dots
from rushlight._codegen.scalar import Emitter
from rushlight._native.target import host_target
from rushlight._types.dtype import BOOL, INT32, INT64

BYTE_DOTS = "the instruction of products of bytes"

INTEGERS = ["uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"]


def pairs(dtype):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(11)
    edges = [info.min, info.min + 1, 0, 1, 2, 3, 7, info.max - 1, info.max]
    if info.min < 0:
        edges += [-1, -2, -7]
    x, y = (a.ravel() for a in np.meshgrid(np.array(edges, dtype), np.array(edges, dtype)))
    some = [rng.integers(info.min, info.max, 300, dtype=dtype, endpoint=True) for _ in range(2)]
    small = [rng.integers(max(info.min, -20), 21, 300).astype(dtype) for _ in range(2)]
    return np.concatenate([x, some[0], some[0]]), np.concatenate([y, some[1], small[1]])


def truncated(x, y):
    """Quotient and remainder in Python's integers, cut off towards zero."""
    quotients = [abs(int(a)) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1) for a, b in zip(x, y, strict=True)]
    return quotients, [int(a) - q * int(b) for a, b, q in zip(x, y, quotients, strict=True)]


def wrapped(values, dtype):
    bits = 8 * np.dtype(dtype).itemsize
    unsigned = np.array([v % 2**bits for v in values], f"uint{bits}")
    return unsigned.view(dtype)


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_division(dtype, features):
    x, y = pairs(dtype)
    x, y = x[y != 0], y[y != 0]
    quotients, rests = truncated(x, y)
    np.testing.assert_array_equal(run("div_trunc", x, y, features=features), wrapped(quotients, dtype))
    np.testing.assert_array_equal(run("rem_trunc", x, y, features=features), wrapped(rests, dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["div_trunc", "rem_trunc"])
def test_division_by_zero_neither_traps_nor_stays_silent(name, dtype):
    x = np.array([5, 0, 100] * 11, dtype)
    run(name, x, np.zeros_like(x))
    em = Emitter(8)
    em.op(name, [em.wrap("%a", INT64), em.wrap("%b", INT64)], [INT64, INT64], INT64)
    (check,) = em.checks
    assert check.kind == "zero_division" and check.bad.type == "i1" and check.width == 8


@pytest.mark.parametrize("dtype", INTEGERS)
def test_arithmetic_wraps(dtype):
    x, y = pairs(dtype)
    for name, reference in (("add", int.__add__), ("sub", int.__sub__), ("mul", int.__mul__)):
        expected = wrapped([reference(int(a), int(b)) for a, b in zip(x, y, strict=True)], dtype)
        np.testing.assert_array_equal(run(name, x, y), expected)
    np.testing.assert_array_equal(run("neg", x), wrapped([-int(a) for a in x], dtype))
    np.testing.assert_array_equal(run("abs", x), wrapped([abs(int(a)) for a in x], dtype))
    np.testing.assert_array_equal(run("sign", x), np.sign(x))
    np.testing.assert_array_equal(run("round", x), x)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits_comparisons_and_extremes(dtype):
    x, y = pairs(dtype)
    for name, reference in (
        ("bitwise_and", np.bitwise_and), ("bitwise_or", np.bitwise_or), ("bitwise_xor", np.bitwise_xor),
        ("maximum", np.maximum), ("minimum", np.minimum),
    ):  # fmt: skip
        np.testing.assert_array_equal(run(name, x, y), reference(x, y))
    for name in ("eq", "ne", "lt", "le"):
        reference = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal"}
        np.testing.assert_array_equal(run(name, x, y, out="bool"), getattr(np, reference[name])(x, y))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_out_of_range(dtype):
    x, _ = pairs(dtype)
    info = np.iinfo(dtype)
    rng = np.random.default_rng(5)
    y = rng.integers(max(info.min, -3), info.bits + 3, x.size).astype(dtype)
    inside = (y >= 0) & (y < info.bits)
    left = [int(a) << int(b) if ok else 0 for a, b, ok in zip(x, y, inside, strict=True)]
    np.testing.assert_array_equal(run("shift_left", x, y), wrapped(left, dtype))
    right = [int(a) >> int(b) if ok else -int(a < 0) for a, b, ok in zip(x, y, inside, strict=True)]
    np.testing.assert_array_equal(run("shift_right", x, y), wrapped([int(r) for r in right], dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_power(dtype):
    x, y = pairs(dtype)
    bits = np.iinfo(dtype).bits

    def power(a, b):
        if b >= 0:
            return pow(a, b, 2**bits)
        return a ** (b % 2) if a in (1, -1) else 0

    np.testing.assert_array_equal(
        run("pow", x, y), wrapped([power(int(a), int(b)) for a, b in zip(x, y, strict=True)], dtype)
    )


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_greatest_common_divisor(dtype, features):
    x, y = pairs(dtype)
    expected = [math.gcd(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    np.testing.assert_array_equal(run("gcd", x, y, features=features), wrapped(expected, dtype))


@pytest.mark.parametrize("width", [1, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("features", [*FEATURES, *([BYTE_DOTS] if has_byte_dots(host_target()) else [])])
def test_products_of_four_bytes(width, features):
    """With the instruction and without it, for narrow vectors and for those that stand for several registers."""
    a, b, c = (np.random.default_rng(k).integers(-(2**31), 2**31, 130).astype(np.int32) for k in range(3))
    a[:3], b[:3] = (-1, -1, 0x7F7F7F7F), (-0x7F7F7F80, 0x7F7F7F7F, -1)
    products = a.view(np.uint8).astype(np.int64) * b.view(np.int8)
    expected = (products.reshape(-1, 4).sum(1) + c).astype(np.int32)
    dots = features is BYTE_DOTS
    np.testing.assert_array_equal(
        run("dp4a", a, b, c, width=width, features="" if dots else features, byte_dots=dots), expected
    )


def test_bools():
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    for name, expected in (
        ("add", x | y), ("mul", x & y), ("bitwise_and", x & y), ("bitwise_or", x | y), ("bitwise_xor", x ^ y), ("eq", x == y),
        ("ne", x != y), ("lt", x < y), ("le", x <= y), ("maximum", x | y), ("minimum", x & y),
    ):  # fmt: skip
        np.testing.assert_array_equal(run(name, x, y), expected, err_msg=name)
    # any byte that is not zero counts as true
    np.testing.assert_array_equal(
        run("bitwise_xor", np.array([0, 1, 2, 255], "uint8").view(bool), np.ones(4, bool)), [True, False, False, False]
    )


def test_select():
    cond = np.array([True, False, True])
    for dtype in ("float32", "int8", "float64", "bool", "complex64"):
        a, b = np.array([1, 0, 1], dtype), np.array([0, 1, 0], dtype)
        got = run("select", cond, a, b, out=dtype)
        np.testing.assert_array_equal(got, np.where(cond, a, b))


def test_what_does_not_exist_is_named():
    em = Emitter(4)
    with pytest.raises(NotImplementedError, match="exp has no lowering for int32"):
        em.op("exp", [em.wrap("%x", INT32)], [INT32], INT32)
    with pytest.raises(NotImplementedError, match="sub has no lowering for bool"):
        em.op("sub", [em.wrap("%x", BOOL)] * 2, [BOOL, BOOL], BOOL)
