"""The standard's special cases of real floating point functions, as data (https://data-apis.org/array-api/2024.12, "Special cases").

A case is the operands and the result, in words: "+0", "-0", "+inf", "-inf", "nan", a number, or "x1" and "x2": the operand itself.
A "~" before a number means roughly.
"""

from __future__ import annotations

import math

ZEROS, INFINITIES = ("+0", "-0"), ("+inf", "-inf")
POSITIVE, NEGATIVE = ("1", "2.5", "1e30"), ("-1", "-2.5", "-1e30")


def value(word: str) -> float:
    """The number that a word means."""
    return float(word)


def matches(got: float, want: str, first: float, second: float) -> bool:
    """Whether a result is what a case says, the sign of zero included."""
    if want.startswith("~"):
        return math.isclose(got, float(want[1:]), rel_tol=1e-6)
    number = first if want == "x1" else second if want == "x2" else float(want)
    if math.isnan(number):
        return math.isnan(got)
    return got == number and math.copysign(1, got) == math.copysign(1, number)


def _keeps(*words: str) -> list[tuple[str, str]]:
    return [(w, w) for w in words]


_QUARTER, _HALF = f"~{math.pi / 4!r}", f"~{math.pi / 2!r}"
_ODD = [("nan", "nan"), *_keeps(*ZEROS)]
_ROUNDING = [*_ODD, *_keeps(*INFINITIES), *_keeps("1", "-3")]
UNARY_CASES: dict[str, list[tuple[str, str]]] = {
    "abs": [("nan", "nan"), ("-0", "+0"), ("-inf", "+inf")],
    "acos": [("nan", "nan"), ("1.5", "nan"), ("-1.5", "nan"), ("1", "+0")],
    "acosh": [("nan", "nan"), ("0.5", "nan"), ("1", "+0"), ("+inf", "+inf")],
    "asin": [*_ODD, ("1.5", "nan"), ("-1.5", "nan")],
    "asinh": [*_ODD, *_keeps(*INFINITIES)],
    "atan": [*_ODD, ("+inf", _HALF), ("-inf", f"~{-math.pi / 2!r}")],
    "atanh": [*_ODD, ("1.5", "nan"), ("-1.5", "nan"), ("1", "+inf"), ("-1", "-inf")],
    "ceil": [*_ROUNDING, ("-0.5", "-0"), ("0.5", "1")],
    "cos": [("nan", "nan"), ("+0", "1"), ("-0", "1"), ("+inf", "nan"), ("-inf", "nan")],
    "cosh": [("nan", "nan"), ("+0", "1"), ("-0", "1"), ("+inf", "+inf"), ("-inf", "+inf")],
    "exp": [("nan", "nan"), ("+0", "1"), ("-0", "1"), ("+inf", "+inf"), ("-inf", "+0")],
    "expm1": [*_ODD, ("+inf", "+inf"), ("-inf", "-1")],
    "floor": [*_ROUNDING, ("0.5", "+0"), ("-0.5", "-1")],
    "log": [("nan", "nan"), ("-1", "nan"), ("+0", "-inf"), ("-0", "-inf"), ("1", "+0"), ("+inf", "+inf")],
    "log10": [("nan", "nan"), ("-1", "nan"), ("+0", "-inf"), ("-0", "-inf"), ("1", "+0"), ("+inf", "+inf")],
    "log1p": [*_ODD, ("-2", "nan"), ("-1", "-inf"), ("+inf", "+inf")],
    "log2": [("nan", "nan"), ("-1", "nan"), ("+0", "-inf"), ("-0", "-inf"), ("1", "+0"), ("+inf", "+inf")],
    "negative": [("nan", "nan"), ("+inf", "-inf"), ("-inf", "+inf"), ("+0", "-0")],
    "reciprocal": [("+0", "+inf"), ("-0", "-inf"), ("+inf", "+0"), ("-inf", "-0"), ("nan", "nan")],
    "round": [*_ROUNDING, ("0.5", "+0"), ("-0.5", "-0"), ("1.5", "2"), ("2.5", "2")],
    "sign": [("-3", "-1"), ("+0", "+0"), ("3", "1"), ("nan", "nan"), ("-inf", "-1")],
    "sin": [*_ODD, ("+inf", "nan"), ("-inf", "nan")],
    "sinh": [*_ODD, *_keeps(*INFINITIES)],
    "sqrt": [*_ODD, ("-1", "nan"), ("+inf", "+inf")],
    "tan": [*_ODD, ("+inf", "nan"), ("-inf", "nan")],
    "tanh": [*_ODD, ("+inf", "1"), ("-inf", "-1")],
    "trunc": [*_ROUNDING, ("0.5", "+0"), ("-0.5", "-0")],
}


def _nan_in_either() -> list[tuple[str, str, str]]:
    return [("nan", "1", "nan"), ("1", "nan", "nan"), ("nan", "nan", "nan")]


def _signed(first: tuple[str, ...], second: tuple[str, ...], word: str) -> list[tuple[str, str, str]]:
    """Every pair, the result with the sign of a product."""
    made = []
    for a in first:
        for b in second:
            made.append((a, b, ("-" if (a[0] == "-") != (b[0] == "-") else "+") + word))
    return made


_FINITE = POSITIVE + NEGATIVE
BINARY_CASES: dict[str, list[tuple[str, str, str]]] = {
    "add": [
        *_nan_in_either(), ("+inf", "-inf", "nan"), ("-inf", "+inf", "nan"), ("+inf", "+inf", "+inf"), ("-inf", "-inf", "-inf"),
        *[(i, f, i) for i in INFINITIES for f in _FINITE], *[(f, i, i) for i in INFINITIES for f in _FINITE],
        ("-0", "-0", "-0"), ("-0", "+0", "+0"), ("+0", "-0", "+0"), ("+0", "+0", "+0"), ("2.5", "-2.5", "+0"),
        *[(z, f, "x2") for z in ZEROS for f in _FINITE],
    ],
    "atan2": [
        *_nan_in_either(), *[(p, z, _HALF) for p in POSITIVE for z in ZEROS], ("+0", "1", "+0"), ("+0", "+0", "+0"),
        ("+0", "-0", f"~{math.pi!r}"), ("-0", "1", "-0"), ("-0", "+0", "-0"), ("-0", "-0", f"~{-math.pi!r}"), ("-0", "-1", f"~{-math.pi!r}"),
        ("1", "+inf", "+0"), ("-1", "+inf", "-0"), ("1", "-inf", f"~{math.pi!r}"), ("+inf", "1", _HALF), ("+inf", "+inf", _QUARTER),
        ("+inf", "-inf", f"~{3 * math.pi / 4!r}"), ("-inf", "+inf", f"~{-math.pi / 4!r}"), ("-inf", "-inf", f"~{-3 * math.pi / 4!r}"),
    ],
    "copysign": [("1", "-0", "-1"), ("-1", "+0", "1"), ("+0", "-inf", "-0"), ("-inf", "2.5", "+inf"), ("nan", "1", "nan")],
    "divide": [
        *_nan_in_either(), *[(a, b, "nan") for a in INFINITIES for b in INFINITIES], *[(a, b, "nan") for a in ZEROS for b in ZEROS],
        *_signed(ZEROS, _FINITE, "0"), *_signed(_FINITE, ZEROS, "inf"), *_signed(INFINITIES, _FINITE, "inf"), *_signed(_FINITE, INFINITIES, "0"),
    ],
    "floor_divide": [
        *_nan_in_either(), *[(a, b, "nan") for a in INFINITIES for b in INFINITIES], *[(a, b, "nan") for a in ZEROS for b in ZEROS],
        *_signed(ZEROS, _FINITE, "0"), *_signed(_FINITE, ZEROS, "inf"), *_signed(INFINITIES, _FINITE, "inf"), *_signed(_FINITE, INFINITIES, "0"),
    ],
    "hypot": [*[(i, "nan", "+inf") for i in INFINITIES], *[("nan", i, "+inf") for i in INFINITIES], ("+0", "-0", "+0"), ("2.5", "-0", "2.5")],
    "logaddexp": [*_nan_in_either(), ("+inf", "1", "+inf"), ("1", "+inf", "+inf"), ("-inf", "1", "1"), ("-inf", "-inf", "-inf")],
    "maximum": [*_nan_in_either(), ("+inf", "1", "+inf"), ("-inf", "1", "1")],
    "minimum": [*_nan_in_either(), ("-inf", "1", "-inf"), ("+inf", "1", "1")],
    "multiply": [
        *_nan_in_either(), *[(i, z, "nan") for i in INFINITIES for z in ZEROS], *[(z, i, "nan") for i in INFINITIES for z in ZEROS],
        *_signed(INFINITIES, INFINITIES + _FINITE, "inf"), *_signed(_FINITE, INFINITIES, "inf"), *_signed(ZEROS, ZEROS + _FINITE, "0"),
    ],
    "nextafter": [*_nan_in_either(), ("+0", "-0", "-0"), ("-0", "+0", "+0"), ("1", "1", "1")],
    "pow": [
        ("1", "nan", "1"), ("nan", "+0", "1"), ("nan", "-0", "1"), ("nan", "1", "nan"), ("2.5", "nan", "nan"), ("2.5", "+inf", "+inf"),
        ("2.5", "-inf", "+0"), ("0.5", "+inf", "+0"), ("0.5", "-inf", "+inf"), ("-1", "+inf", "1"), ("-1", "-inf", "1"), ("+inf", "2.5", "+inf"),
        ("+inf", "-1", "+0"), ("-inf", "3", "-inf"), ("-inf", "2", "+inf"), ("-inf", "-3", "-0"), ("-inf", "-2", "+0"), ("+0", "2.5", "+0"),
        ("+0", "-1", "+inf"), ("-0", "3", "-0"), ("-0", "2", "+0"), ("-0", "-3", "-inf"), ("-0", "-2", "+inf"), ("-2.5", "0.5", "nan"),
    ],
    "remainder": [
        *_nan_in_either(), *[(i, w, "nan") for i in INFINITIES for w in (*INFINITIES, *ZEROS, *_FINITE)],
        *[(w, z, "nan") for w in (*ZEROS, *_FINITE) for z in ZEROS], *[(z, p, "+0") for z in ZEROS for p in POSITIVE],
        *[(z, n, "-0") for z in ZEROS for n in NEGATIVE], *[(p, "+inf", "x1") for p in POSITIVE], *[(p, "-inf", "x2") for p in POSITIVE],
        *[(n, "+inf", "x2") for n in NEGATIVE], *[(n, "-inf", "x1") for n in NEGATIVE], ("5", "-2.5", "-0"), ("-5", "2.5", "+0"),
    ],
    "subtract": [*_nan_in_either(), ("+inf", "+inf", "nan"), ("-inf", "-inf", "nan"), ("+inf", "-inf", "+inf"), ("+0", "+0", "+0"), ("-0", "+0", "-0")],
}  # fmt: skip
