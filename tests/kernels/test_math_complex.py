"""Complex primitives: accuracy against mpmath, branch cuts by the sign of zero, infinities."""

from __future__ import annotations

import cmath
import zlib

import numpy as np
import pytest
from mpmath import mp, mpc, mpf
from tests.kernels.scalar_harness import run

FUNCTIONS = {
    "exp": mp.exp, "exp2": lambda z: mp.exp(z * mp.log(2)), "expm1": mp.expm1, "log": mp.log,
    "log2": lambda z: mp.log(z) / mp.log(2), "log10": lambda z: mp.log(z) / mp.log(10), "log1p": mp.log1p,
    "sqrt": mp.sqrt, "rsqrt": lambda z: 1 / mp.sqrt(z), "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "sinh": mp.sinh,
    "cosh": mp.cosh, "tanh": mp.tanh, "asin": mp.asin, "acos": mp.acos, "atan": mp.atan, "asinh": mp.asinh,
    "acosh": mp.acosh, "atanh": mp.atanh,
}  # fmt: skip
CMATH = (
    "exp",
    "log",
    "sqrt",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "asin",
    "acos",
    "atan",
    "asinh",
    "acosh",
    "atanh",
)


def samples(name, dtype, count=60):
    rng = np.random.default_rng(zlib.crc32(name.encode()))

    def normal():
        return rng.normal(0, 1, count) + 1j * rng.normal(0, 1, count)

    parts = [
        normal(),
        4 * normal(),
        normal() * 10.0 ** rng.uniform(-6, 6, count),
        np.exp(1j * rng.uniform(-3, 3, count)),
    ]
    z = np.concatenate(parts)
    if name in ("exp", "exp2", "expm1", "sinh", "cosh", "sin", "cos"):
        z = z[(np.abs(z.real) < 80) & (np.abs(z.imag) < 80)]
    return z.astype(dtype)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, dtype):
    z = samples(name, dtype)
    got = run(name, z)
    tolerance = {"complex64": 6.1e-8, "complex128": 2e-15}[dtype]  # of the modulus
    if name == "exp2":
        tolerance += 1e-14  # the angle is rounded once more
    with mp.workdps(40):
        for a, b in zip(z, got, strict=True):
            exact = mpc(FUNCTIONS[name](mpc(float(a.real), float(a.imag))))
            error = abs(mpc(float(b.real), float(b.imag)) - exact) / abs(exact)
            assert error <= tolerance, f"{name}({a!r}) = {b!r}, off by {float(error):.2e}"


@pytest.mark.parametrize("name", CMATH)
def test_branch_cuts_follow_the_sign_of_zero(name):
    z = np.array([complex(re, im) for re in (-2.0, 2.0, -0.5, 0.5) for im in (0.0, -0.0)])
    z = np.concatenate([z, np.array([complex(s * 0.0, im) for s in (1, -1) for im in (-2.0, 2.0, 0.5, -0.5)])])
    expected = np.array([getattr(cmath, name)(complex(v)) for v in z])
    got = run(name, z)
    np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-15)
    for part in ("real", "imag"):
        far = np.abs(getattr(expected, part)) > 1e-12
        np.testing.assert_array_equal(np.sign(getattr(got, part))[far], np.sign(getattr(expected, part))[far])


@pytest.mark.parametrize("name", ["sqrt", "log", "acos", "asin", "acosh", "asinh", "cosh", "tanh"])
def test_infinities(name):
    """C's Annex G, which Python's cmath follows."""
    z = np.array([complex(a, b) for a in (np.inf, -np.inf) for b in (1.0, -1.0, 0.0, -0.0)])
    z = np.concatenate([z, np.array([complex(a, b) for a in (1.0, -1.0, np.inf, -np.inf) for b in (np.inf, -np.inf)])])
    if name in ("cosh", "tanh"):
        z = z[:8]
    expected = np.array([getattr(cmath, name)(complex(v)) for v in z])
    got = run(name, z)
    np.testing.assert_allclose(got.real, expected.real, rtol=1e-15)
    np.testing.assert_allclose(got.imag, expected.imag, rtol=1e-15)


NAN, INF, QUARTER = np.nan, np.inf, np.pi / 2
# Annex G of the C standard: what one part says stays, whatever the other is. None: C leaves the sign open.
PARTS = [
    ("asin", (0.0, NAN), (0.0, NAN)), ("asin", (-0.0, NAN), (-0.0, NAN)), ("asinh", (NAN, -0.0), (NAN, -0.0)),
    ("acos", (-0.0, NAN), (QUARTER, NAN)), ("acosh", (0.0, NAN), (NAN, QUARTER)),
    ("atanh", (-0.0, NAN), (-0.0, NAN)), ("atanh", (-INF, NAN), (-0.0, NAN)), ("atanh", (1e300, NAN), (NAN, NAN)),
    ("atanh", (NAN, 1e300), (NAN, NAN)), ("atanh", (NAN, -INF), (None, -QUARTER)), ("atanh", (2.0, INF), (0.0, QUARTER)),
    ("atan", (NAN, 0.0), (NAN, 0.0)), ("atan", (NAN, -INF), (NAN, -0.0)), ("atan", (INF, NAN), (QUARTER, None)),
    ("exp", (-INF, 2.0), (-0.0, 0.0)), ("exp", (-INF, -2.0), (-0.0, -0.0)), ("exp", (-INF, INF), (None, None)), ("exp", (NAN, -0.0), (NAN, -0.0)),
    ("sinh", (0.0, 2.0), (-0.0, np.sin(2.0))), ("sinh", (-0.0, 2.0), (0.0, np.sin(2.0))), ("sinh", (INF, NAN), (INF, NAN)),
    ("sin", (2.0, 0.0), (np.sin(2.0), -0.0)), ("cosh", (-0.0, 4.0), (np.cos(4.0), 0.0)), ("cos", (4.0, 0.0), (np.cos(4.0), 0.0)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "point", "want"), PARTS)
def test_parts_that_are_nan_infinite_or_zero(name, point, want):
    got = run(name, np.array([complex(*point)]))[0]
    for ours, theirs in zip((got.real, got.imag), want, strict=True):
        if theirs is None:
            assert ours == 0.0, got
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-15)
            assert np.isnan(theirs) or np.signbit(ours) == np.signbit(theirs), got


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_arithmetic(dtype):
    rng = np.random.default_rng(4)
    z, w = ((rng.normal(0, 1, 500) + 1j * rng.normal(0, 1, 500)).astype(dtype) for _ in range(2))
    rtol = 5e-7 if dtype == "complex64" else 1e-15
    np.testing.assert_array_equal(run("add", z, w), z + w)
    np.testing.assert_array_equal(run("sub", z, w), z - w)
    np.testing.assert_array_equal(run("neg", z), -z)
    np.testing.assert_array_equal(run("conj", z), z.conj())
    product, quotient = run("mul", z, w), run("div", z, w)
    assert (np.abs(product - z * w) <= rtol * np.abs(z * w)).all()
    assert (np.abs(quotient - z / w) <= rtol * np.abs(z / w)).all()
    real = "float32" if dtype == "complex64" else "float64"
    np.testing.assert_array_equal(run("real", z, out=real), z.real)
    np.testing.assert_array_equal(run("imag", z, out=real), z.imag)
    np.testing.assert_array_equal(run("complex", z.real, w.imag, out=dtype), z.real + 1j * w.imag)
    np.testing.assert_array_equal(run("eq", z, np.where(z.real > 0, z, w), out="bool"), z.real > 0)
    np.testing.assert_array_equal(run("ne", z, np.where(z.real > 0, z, z.conj()), out="bool"), z.real <= 0)


def test_division_does_not_overflow_on_the_way():
    z = np.array([1e300 + 1e300j, 1e-300j, 3 + 4j])
    np.testing.assert_allclose(run("div", z, z), np.ones(3), rtol=1e-15)
    got = run("div", z[2:], np.zeros(1, "complex128"))
    assert not np.isfinite(got).any()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_modulus_and_direction(dtype):
    real = "float32" if dtype == "complex64" else "float64"
    big, small = np.finfo(real).max, np.finfo(real).tiny
    z = np.array(
        [3 + 4j, complex(0.6, 0.8) * big, complex(3, 4) * small, 0, complex(np.inf, np.nan), complex(np.nan, 0)], dtype
    )
    np.testing.assert_allclose(run("abs", z, out=real), [5, big, 5 * small, 0, np.inf, np.nan], rtol=2e-7)
    np.testing.assert_allclose(run("sign", z[:4]), [0.6 + 0.8j, 0.6 + 0.8j, 0.6 + 0.8j, 0], rtol=2e-7)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_power(dtype):
    rng = np.random.default_rng(8)
    z, w = ((rng.normal(0, 2, 80) + 1j * rng.normal(0, 2, 80)).astype(dtype) for _ in range(2))
    got = run("pow", z, w)
    with mp.workdps(40):
        for a, b, c in zip(z, w, got, strict=True):
            exact = mpc(float(a.real), float(a.imag)) ** mpc(float(b.real), float(b.imag))
            error = abs(mpc(float(c.real), float(c.imag)) - exact) / abs(exact)
            assert error < mpf("6.2e-8" if dtype == "complex64" else "2e-14")
    special = run("pow", np.array([0, 0, 4], dtype), np.array([0, 2, 0.5], dtype))
    np.testing.assert_array_equal(special, [1, 0, 2])
