"""Infinities, NaN, signed zeros, subnormal numbers and the edges of overflow."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.scalar_harness import FEATURES, run

inf, nan = np.inf, np.nan
# name: ((x, exact result), ...); a zero's sign counts
TABLE = {
    "exp": ((0.0, 1), (-0.0, 1), (inf, inf), (-inf, 0.0), (nan, nan), (1000.0, inf), (-1000.0, 0.0)),
    "exp2": ((0.0, 1), (10.0, 1024), (-3.0, 0.125), (inf, inf), (-inf, 0.0), (nan, nan), (5000.0, inf)),
    "expm1": ((0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -1), (-1000.0, -1), (nan, nan), (1e-40, 1e-40)),
    "log": ((1.0, 0.0), (0.0, -inf), (-0.0, -inf), (inf, inf), (-1.0, nan), (-inf, nan), (nan, nan)),
    "log2": ((1.0, 0.0), (0.0, -inf), (8.0, 3), (0.25, -2), (inf, inf), (-1.0, nan), (nan, nan)),
    "log10": ((1.0, 0.0), (0.0, -inf), (inf, inf), (-1.0, nan), (nan, nan)),
    "log1p": ((0.0, 0.0), (-0.0, -0.0), (-1.0, -inf), (-2.0, nan), (inf, inf), (nan, nan), (1e-40, 1e-40)),
    "sin": ((0.0, 0.0), (-0.0, -0.0), (inf, nan), (-inf, nan), (nan, nan), (1e-40, 1e-40)),
    "cos": ((0.0, 1), (-0.0, 1), (inf, nan), (-inf, nan), (nan, nan)),
    "tan": ((0.0, 0.0), (-0.0, -0.0), (inf, nan), (nan, nan), (1e-40, 1e-40)),
    "asin": ((0.0, 0.0), (-0.0, -0.0), (1.0, np.pi / 2), (-1.0, -np.pi / 2), (1.5, nan), (-inf, nan), (nan, nan)),
    "acos": ((1.0, 0.0), (-1.0, np.pi), (0.0, np.pi / 2), (2.0, nan), (nan, nan)),
    "atan": ((0.0, 0.0), (-0.0, -0.0), (inf, np.pi / 2), (-inf, -np.pi / 2), (nan, nan)),
    "sinh": ((0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -inf), (nan, nan), (1e3, inf)),
    "cosh": ((0.0, 1), (inf, inf), (-inf, inf), (nan, nan), (-1e3, inf)),
    "tanh": ((0.0, 0.0), (-0.0, -0.0), (inf, 1), (-inf, -1), (50.0, 1), (nan, nan), (1e-40, 1e-40)),
    "asinh": ((0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -inf), (nan, nan)),
    "acosh": ((1.0, 0.0), (0.5, nan), (-inf, nan), (inf, inf), (nan, nan)),
    "atanh": ((0.0, 0.0), (-0.0, -0.0), (1.0, inf), (-1.0, -inf), (1.5, nan), (inf, nan), (nan, nan)),
    "erf": ((0.0, 0.0), (-0.0, -0.0), (inf, 1), (-inf, -1), (7.0, 1), (-7.0, -1), (nan, nan)),
    "erfc": ((0.0, 1), (inf, 0.0), (-inf, 2), (nan, nan), (100.0, 0.0), (-100.0, 2)),
    "erfinv": ((0.0, 0.0), (-0.0, -0.0), (1.0, inf), (-1.0, -inf), (1.5, nan), (-inf, nan), (nan, nan)),
    "lgamma": ((1.0, 0.0), (2.0, 0.0), (0.0, inf), (-0.0, inf), (-3.0, inf), (inf, inf), (-inf, inf), (nan, nan)),
    "digamma": ((0.0, -inf), (-0.0, inf), (-2.0, nan), (inf, inf), (-inf, nan), (nan, nan)),
    "sqrt": ((0.0, 0.0), (-0.0, -0.0), (inf, inf), (-1.0, nan), (nan, nan), (9.0, 3)),
    "rsqrt": ((0.0, inf), (-0.0, -inf), (inf, 0.0), (-1.0, nan), (4.0, 0.5)),
    "sign": ((0.0, 0.0), (-0.0, 0.0), (inf, 1), (-3.0, -1), (nan, 0.0)),
    "abs": ((-0.0, 0.0), (-inf, inf), (nan, nan), (-1e-40, 1e-40)),
    "neg": ((0.0, -0.0), (-0.0, 0.0), (inf, -inf)),
    "round": ((0.5, 0.0), (1.5, 2), (2.5, 2), (-0.5, -0.0), (-1.5, -2), (inf, inf), (nan, nan), (-0.2, -0.0)),
    "floor": ((0.5, 0.0), (-0.5, -1), (-0.0, -0.0), (inf, inf), (nan, nan)),
    "ceil": ((0.5, 1), (-0.5, -0.0), (-0.0, -0.0), (-inf, -inf)),
    "trunc": ((1.9, 1), (-1.9, -1), (-0.9, -0.0), (nan, nan)),
}  # fmt: skip


def assert_same(got, expected):
    np.testing.assert_array_equal(got, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", TABLE)
def test_table(name, dtype, features):
    x, expected = (np.array(column, dtype) for column in zip(*TABLE[name]))
    assert_same(run(name, x, features=features), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exp_at_the_edges_of_the_range(dtype):
    """The last finite value, the first infinite one, subnormal results, the last that is not zero."""
    finfo = np.finfo(dtype)
    last = np.log(np.array(finfo.max, dtype))
    if np.exp(last.astype("longdouble")) > finfo.max:
        last = np.nextafter(last, 0, dtype=dtype)
    smallest = np.log(finfo.smallest_subnormal.astype("longdouble"))
    x = np.array(
        [last, np.nextafter(last, np.array(inf, dtype)), np.log(finfo.tiny) - 3, smallest + 0.01, smallest - 0.8], dtype
    )
    x[1] = np.nextafter(x[1], np.array(inf, dtype))
    y = run("exp", x)
    assert np.isfinite(y[0]) and y[0] > 0.99 * finfo.max
    assert y[1] == inf
    assert 0 < y[2] < finfo.tiny
    np.testing.assert_allclose(
        y[2], np.exp(x[2].astype("longdouble")).astype(dtype), rtol=1e-5 if dtype == "float32" else 1e-14
    )
    assert y[3] == finfo.smallest_subnormal
    assert y[4] == 0


def test_cosh_and_sinh_reach_beyond_exp():
    for dtype, x in (("float32", 89.3), ("float64", 710.3)):
        value = np.array([x], dtype)
        expected = np.exp(value.astype("longdouble")) / 2
        for name in ("sinh", "cosh"):
            np.testing.assert_allclose(run(name, value).astype("longdouble"), expected, rtol=3e-7)


EDGES = (0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, inf, -inf, nan, 1e300, -1e300, 1e-300, 5e-324, 2.5, 1e17, -1e17)


def grid(dtype):
    with np.errstate(over="ignore", under="ignore"):
        edges = np.array(EDGES).astype(dtype)
    return (a.ravel() for a in np.meshgrid(edges, edges))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("atan2", np.arctan2),
        ("rem_trunc", np.fmod),
        ("nextafter", np.nextafter),
        ("copysign", np.copysign),
        ("pow", np.power),
    ],
)
def test_pairs_of_special_values(name, reference, dtype):
    x, y = grid(dtype)
    with np.errstate(all="ignore"):
        expected = reference(x, y)
    got = run(name, x, y)
    if name in ("atan2", "pow"):  # NumPy's own result may be off, too
        with np.errstate(invalid="ignore"):
            close = np.abs(got - expected) <= np.spacing(np.abs(expected)) * 2.01
        got = np.where(close & (expected != 0), expected, got)
    assert_same(got, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "reference"), [("maximum", np.maximum), ("minimum", np.minimum)])
def test_maximum_and_minimum_propagate_nan(name, reference, dtype):
    x, y = grid(dtype)
    np.testing.assert_array_equal(run(name, x, y), reference(x, y))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "reference"), [("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("le", np.less_equal)]
)
def test_comparisons(name, reference, dtype):
    x, y = grid(dtype)
    np.testing.assert_array_equal(run(name, x, y, out="bool"), reference(x, y))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fmod_of_any_size_is_exact(dtype):
    rng = np.random.default_rng(3)
    words = {"float32": np.uint32, "float64": np.uint64}[dtype]
    top = 2 ** (8 * np.dtype(words).itemsize)
    x, y = (rng.integers(0, top, 4000, dtype=words).view(dtype) for _ in range(2))
    near = rng.normal(0, 100, 4000).astype(dtype)
    for a, b in ((x, y), (near, near[::-1] / 7), (near * 1000, np.full_like(near, 0.1))):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(run("rem_trunc", a, b), np.fmod(a, b))


def test_signbit():
    x = np.array([0.0, -0.0, 1, -1, inf, -inf, nan, -nan], "float32")
    np.testing.assert_array_equal(run("signbit", x, out="bool"), np.signbit(x))
    assert run("signbit", np.array([-1, 0, 5], "int16"), out="bool").tolist() == [True, False, False]
    assert run("signbit", np.array([1, 255], "uint8"), out="bool").tolist() == [False, False]


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_arguments(name):
    """Over the whole range, float32 and float64, among arguments that need no slow way."""
    reference = {"sin": np.sin, "cos": np.cos, "tan": np.tan}[name]
    for dtype, largest in (("float32", 3.4e38), ("float64", 1.7e308)):
        x = np.geomspace(1, largest, 999).astype(dtype)
        x[::3] = 0.25
        exact = reference(x.astype("float64"))
        np.testing.assert_allclose(run(name, x), exact, rtol=3e-7 if dtype == "float32" else 1e-15)
