"""Functions of single elements against NumPy: dtypes, shapes, numbers as operands; and the standard's special cases from a table."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.array_api.arrays import (
    ALL,
    BITS,
    COMPLEX,
    FLOATING,
    INTEGER,
    NUMERIC,
    REAL,
    agree,
    join,
    kind,
    numbers,
    ours,
    same,
)
from tests.array_api.special_cases import BINARY_CASES, UNARY_CASES, matches, value

import rushlight.array_api as xp

pytest.importorskip("numpy", minversion="2.1")

UNARY = {
    **dict.fromkeys(("abs", "conj", "isfinite", "isinf", "isnan", "negative", "positive", "sign", "square"), NUMERIC),
    **dict.fromkeys(("ceil", "floor", "trunc"), INTEGER + REAL),
    **dict.fromkeys(("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log10", "log1p", "log2",
                     "reciprocal", "sin", "sinh", "sqrt", "tan", "tanh"), FLOATING),
    "bitwise_invert": BITS, "logical_not": ["bool"], "signbit": REAL, "round": NUMERIC, "imag": NUMERIC, "real": NUMERIC,
}  # fmt: skip
BINARY = {
    **dict.fromkeys(("add", "subtract", "multiply", "pow"), NUMERIC),
    **dict.fromkeys(("equal", "not_equal"), ALL),
    **dict.fromkeys(("floor_divide", "remainder", "maximum", "minimum", "less", "less_equal", "greater", "greater_equal"), INTEGER + REAL),
    **dict.fromkeys(("atan2", "copysign", "hypot", "logaddexp", "nextafter"), REAL),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), BITS),
    "logical_and": ["bool"], "logical_or": ["bool"], "logical_xor": ["bool"],
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), INTEGER),
    "divide": FLOATING,
}  # fmt: skip
SHAPES = [((5,), (5,)), ((), (4,)), ((3,), ()), ((2, 1), (1, 3)), ((0,), (1,))]
SCALARS = {"b": [True, False], "i": [1, 3], "f": [2.5, -1.5, math.inf, 2], "c": [1.5, 2, 1 - 2j]}


def right_operand(name: str, x: np.ndarray) -> np.ndarray:
    """What the standard gives a meaning: no division of integers by zero, powers and shifts by little."""
    if x.dtype.kind in "iu":
        if name in ("floor_divide", "remainder"):
            return np.asarray(np.where(x == 0, x.dtype.type(1), x))
        if name == "pow" or name.endswith("shift"):
            return np.asarray(abs(x % x.dtype.type(5)), x.dtype)
    return x


def special(name: str, *dtypes: str) -> bool:
    """NumPy's own infinities are not the standard's for floor_divide; complex powers of specials are left open."""
    return not (name == "floor_divide" and kind(dtypes[0]) == "f") and not (name == "pow" and "c" in map(kind, dtypes))


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    for dtype in UNARY[name]:
        for shape in ((), (0,), (2, 3)):
            agree(name, numbers(dtype, shape))


@pytest.mark.parametrize("name", BINARY)
def test_binary_in_common_dtypes(name: str) -> None:
    dtypes = BINARY[name]
    pairs = [(a, b) for a in dtypes for b in dtypes if join(a, b)]
    for i, (a, b) in enumerate(pairs):
        # every pair of dtypes, every pair of shapes
        first, second = SHAPES[i % len(SHAPES)]
        left, right = numbers(a, first, special(name, a, b)), numbers(b, second, special(name, a, b), "right")
        agree(name, left, right_operand(name, right))


@pytest.mark.parametrize("name", BINARY)
def test_binary_with_numbers(name: str) -> None:
    for dtype in BINARY[name]:
        for number in SCALARS[kind(dtype)]:
            x = numbers(dtype, (3,), False)
            if not special(name, dtype) and math.isinf(abs(number)):
                continue
            agree(name, x, number)
            agree(name, number, right_operand(name, abs(x) if name.endswith("shift") or kind(dtype) == "i" else x))


@pytest.mark.parametrize("dtype", INTEGER)
def test_shifts_by_all_bits_and_more(dtype: str) -> None:
    bits = np.iinfo(dtype).bits
    for by in (bits, bits + 1, 100):
        x = xp.asarray([1, 100], dtype=getattr(xp, dtype))
        amount = xp.asarray(by, dtype=x.dtype)
        assert xp.bitwise_left_shift(x, amount).tolist() == [0, 0]
        assert xp.bitwise_right_shift(x, amount).tolist() == [0, 0]


def test_numbers_do_not_change_the_precision() -> None:
    assert xp.add(xp.asarray(1.0, dtype=xp.float32), 1e-20).dtype is xp.float32
    assert xp.multiply(2, xp.asarray([1], dtype=xp.uint16)).dtype is xp.uint16
    assert xp.multiply(xp.ones(2), 1j).dtype is xp.complex64
    with pytest.raises(TypeError, match="add: expected arrays, or an array and a number, found int and int"):
        xp.add(1, 2)
    with pytest.raises(TypeError, match="no dtype holds"):
        xp.add(xp.ones(2, dtype=xp.uint64), xp.ones(2, dtype=xp.int8))


@pytest.mark.parametrize("dtype", [*INTEGER, *REAL])
def test_clip(dtype: str) -> None:
    x = numbers(dtype)
    for low, high in ((None, None), (1, None), (None, 3), (1, 3)):
        agree("clip", x, low, high)
    agree("clip", x, numbers(dtype, (4,), False), numbers(dtype, (3, 1), seed="high"))
    if dtype == "uint8":
        same(xp.clip(ours(x), -5, 300), x)
        for low in ("int8", "int64"):  # bounds of another integer dtype are not wrapped around
            same(xp.clip(ours(x), ours(np.array(-2, low))), x)
        same(xp.clip(ours(x), None, ours(np.array(300, "int16"))), x)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("name", UNARY_CASES)
def test_special_cases_of_one_operand(name: str, dtype: str) -> None:
    for given, want in UNARY_CASES[name]:
        x = np.dtype(dtype).type(value(given))
        got = getattr(xp, name)(xp.asarray(np.array([x] * 9)))
        for one in got.tolist():
            assert matches(one, want, float(x), float(x)), (name, given, one, want)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("name", BINARY_CASES)
def test_special_cases_of_two_operands(name: str, dtype: str) -> None:
    for first, second, want in BINARY_CASES[name]:
        a, b = (np.array([value(w)] * 9, dtype) for w in (first, second))
        for one in getattr(xp, name)(ours(a), ours(b)).tolist():
            assert matches(one, want, float(a[0]), float(b[0])), (name, first, second, one, want)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_parts(dtype: str) -> None:
    z = np.array([complex(a, b) for a in (0.0, -0.0, 2.5, -1.5, np.inf) for b in (0.5, -0.0, np.nan)], dtype)
    assert np.array_equal(xp.round(ours(z)).numpy(), np.round(z), equal_nan=True)
    assert xp.real(ours(z)).dtype is xp.imag(ours(z)).dtype
    same(xp.abs(ours(z)), np.abs(z))
