"""The transcendental functions against their stated bounds: every exponent in float32, samples in high precision in float64."""

from __future__ import annotations

import ctypes
import platform
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import special
from tests.kernels.scalar_harness import FEATURES, run

from rushlight._codegen.scalar import BOUNDS
from rushlight._codegen.scalar.lowerings import BINARY, UNARY
from rushlight._codegen.scalar.special import gammainc, polynomials, zeta

# name: (NumPy or SciPy in float64, mpmath)
REFERENCES = {
    "exp": (np.exp, mp.exp),
    "exp2": (np.exp2, lambda x: mpf(2) ** x),
    "expm1": (np.expm1, mp.expm1),
    "log": (np.log, mp.log),
    "log2": (np.log2, lambda x: mp.log(x, 2)),
    "log10": (np.log10, mp.log10),
    "log1p": (np.log1p, lambda x: mp.log1p(x)),
    "sin": (np.sin, mp.sin),
    "cos": (np.cos, mp.cos),
    "tan": (np.tan, mp.tan),
    "asin": (np.arcsin, mp.asin),
    "acos": (np.arccos, mp.acos),
    "atan": (np.arctan, mp.atan),
    "sinh": (np.sinh, mp.sinh),
    "cosh": (np.cosh, mp.cosh),
    "tanh": (np.tanh, mp.tanh),
    "asinh": (np.arcsinh, mp.asinh),
    "acosh": (np.arccosh, mp.acosh),
    "atanh": (np.arctanh, mp.atanh),
    "erf": (special.erf, mp.erf),
    "erfc": (special.erfc, mp.erfc),
    "erfinv": (special.erfinv, mp.erfinv),
    "lgamma": (special.gammaln, lambda x: mp.re(mp.loggamma(x))),
    "digamma": (special.digamma, mp.digamma),
    "sqrt": (np.sqrt, mp.sqrt),
    "rsqrt": (lambda x: 1 / np.sqrt(x), lambda x: 1 / mp.sqrt(x)),
}
TWO = {"pow": (np.power, lambda x, y: x**y), "atan2": (np.arctan2, mp.atan2)}
UNIT = ("asin", "acos", "atanh", "erfinv")  # defined on [-1, 1]
POSITIVE = ("log", "log2", "log10", "sqrt", "rsqrt")

# NumPy warns about what the references do with infinities
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def generator(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def samples32(name, count):
    """Random bit patterns (so all exponents), and denser where the functions do something."""
    rng = generator(name)
    bits = rng.integers(0, 2**32, count, dtype=np.uint32).view("float32")
    near = [
        rng.normal(0, 1, count),
        rng.normal(0, 12, count),
        rng.uniform(-110, 110, count),
        1 + rng.normal(0, 0.01, count),
    ]
    x = np.concatenate([bits, *(n.astype("float32") for n in near)])
    if name in UNIT:
        x = np.concatenate([x[np.abs(x) <= 1], rng.uniform(-1, 1, count).astype("float32")])
    if name in ("lgamma", "digamma"):
        # SciPy itself is off near the poles and roots of the left half
        x = x[(x > 1e-30) & (x < 1e30) | (x < -0.01) & (x > -30) & (np.abs(x - np.round(x)) > 1e-3)]
    return x


def error_in_ulps(got, exact, absolute=0.0):
    """|got - exact| in units of the last place of the exact value; special values must agree in full."""
    rounded = exact.astype(got.dtype)
    finfo = np.finfo(got.dtype)
    unit = np.spacing(np.minimum(np.abs(rounded), finfo.max)).astype("float64")
    error = np.maximum(np.abs(got.astype("float64") - exact) - absolute, 0) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    return np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))


@pytest.mark.parametrize("name", REFERENCES)
def test_float32(name):
    x = samples32(name, 200_000)
    exact = REFERENCES[name][0](x.astype("float64"))
    bound = BOUNDS[name]
    error = error_in_ulps(run(name, x), exact, bound.absolute32)
    worst = error.argmax()
    assert error[worst] <= bound.float32, f"{name}({x[worst]!r}) is off by {error[worst]:.3f} ulp"


@pytest.mark.parametrize("features", FEATURES[1:])
@pytest.mark.parametrize("name", REFERENCES)
def test_float32_on_other_machines(name, features):
    """AVX2, and SSE2 without fused multiply-add, which costs up to half an ulp more."""
    x = samples32(name, 6_000)
    exact = REFERENCES[name][0](x.astype("float64"))
    bound = BOUNDS[name]
    slack = 0.5 if "-fma" in features else 0.0
    error = error_in_ulps(run(name, x, features=features, width=8), exact, bound.absolute32)
    assert error.max() <= bound.float32 + slack


@pytest.mark.parametrize("name", TWO)
def test_two_arguments_float32(name):
    rng = generator(name)
    x = rng.integers(0, 2**32, 200_000, dtype=np.uint32).view("float32")
    y = rng.integers(0, 2**32, 200_000, dtype=np.uint32).view("float32")
    x = np.concatenate([x, np.exp(rng.normal(0, 3, 200_000)).astype("float32")])
    y = np.concatenate([y, rng.normal(0, 20, 200_000).astype("float32")])
    exact = TWO[name][0](x.astype("float64"), y.astype("float64"))
    error = error_in_ulps(run(name, x, y), exact)
    assert error.max() <= BOUNDS[name].float32


def samples64(name, count):
    rng = generator(name)
    wide = np.ldexp(rng.uniform(1, 2, count), rng.integers(-1060, 1020, count))
    parts = [
        rng.normal(0, 1, count),
        rng.normal(0, 10, count),
        1 + rng.normal(0, 0.01, count),
        rng.uniform(-1, 1, count),
    ]
    if name in ("exp", "exp2", "expm1", "sinh", "cosh"):
        parts.append(rng.uniform(-708, 708, count))
    if name in ("sin", "cos", "tan"):
        parts += [rng.normal(0, 1e5, count), rng.normal(0, 5e7, count), wide[:20]]
    if name in (*POSITIVE, "log1p", "asinh", "acosh"):
        parts = [np.abs(p) for p in parts] + [wide]
    if name in ("erf", "erfc"):
        parts.append(rng.uniform(-6, 26 if name == "erfc" else 6, count))
    if name in ("lgamma", "digamma"):
        parts.append(rng.uniform(0, 200, count))
    if name in UNIT:
        parts = [p[np.abs(p) < 1] for p in parts] + [1 - np.exp(rng.uniform(-36, 0, count))]
    x = np.concatenate(parts)
    return x + (1 - x.min()) if name == "acosh" else x[np.abs(x) > 1e-300]


@pytest.mark.parametrize("name", REFERENCES)
def test_float64(name):
    x = samples64(name, 60)
    got = run(name, x)
    bound = BOUNDS[name]
    with mp.workdps(40):
        for a, b in zip(x, got, strict=True):
            exact = REFERENCES[name][1](mpf(float(a)))
            error = max(abs(mpf(float(b)) - exact) - bound.absolute64, 0) / mpf(float(np.spacing(abs(float(exact)))))
            assert error <= bound.float64, f"{name}({a!r}) = {b!r} is off by {float(error):.3f} ulp"


@pytest.mark.parametrize("name", TWO)
def test_two_arguments_float64(name):
    rng = generator(name)
    wide = np.exp(rng.uniform(-700, 700, 150))
    x = np.concatenate([np.exp(rng.normal(0, 3, 150)), wide, 1 + rng.normal(0, 1e-5, 150)])
    y = np.concatenate(
        [rng.normal(0, 20, 150), rng.uniform(-1, 1, 150) * 700 / np.abs(np.log(wide)), rng.normal(0, 1e7, 150)]
    )
    if name == "atan2":
        x = x * rng.choice([-1, 1], x.size)
    got = run(name, x, y)
    with mp.workdps(60):
        for a, b, c in zip(x, y, got, strict=True):
            exact = TWO[name][1](mpf(float(a)), mpf(float(b)))
            error = abs(mpf(float(c)) - exact) / mpf(float(np.spacing(abs(float(exact)))))
            assert error <= BOUNDS[name].float64, f"{name}({a!r}, {b!r}) = {c!r}"


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("name", ["exp", "log", "sin", "erf", "tanh", "lgamma", "erfc"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bits_do_not_depend_on_the_width(name, dtype, width):
    x = generator(name).normal(0, 30, 1000).astype(dtype)
    x[:4] = [1e6, -1e30, np.inf, np.nan]
    np.testing.assert_array_equal(run(name, x, width=width), run(name, x))


@pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="asks the flags of x86's floating-point unit"
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_powers_that_vanish_do_not_underflow_on_the_way(name, dtype):
    """Masked scores are -inf or very low, and x86 takes 150 cycles for a product that underflows."""
    lowest = {"float32": 256.0, "float64": 2048.0}[dtype]
    x = np.array([-np.inf, -np.finfo(dtype).max, -1e9, -lowest] * 8, dtype)
    assert not run(name, x).any()
    library, underflow = ctypes.CDLL("libm.so.6"), 16
    library.feclearexcept(underflow)
    run(name, x)
    assert not library.fetestexcept(underflow)
    run(name, np.full(8, -lowest / 1.8, dtype))  # the flag tells: these round to zero
    assert library.fetestexcept(underflow)


def test_every_transcendental_function_has_a_bound():
    exact = {
        "neg", "abs", "sign", "signbit", "floor", "ceil", "trunc", "round", "add", "sub", "mul", "div", "rem_trunc", "maximum",
        "minimum", "copysign", "nextafter", "eq", "ne", "lt", "le",
    }  # fmt: skip
    stepwise = {*gammainc.BINARY, *polynomials.BINARY, *zeta.BINARY}  # test_stepwise.py
    assert set(UNARY) | set(BINARY) == exact | stepwise | set(BOUNDS)
    assert all(b.float32 <= 2 and b.float64 <= 4 for b in BOUNDS.values())


def test_the_documented_table_is_the_tested_one():
    page = (Path(__file__).parents[2] / "docs" / "numerics.md").read_text(encoding="utf-8")
    documented = {}
    for names, float32, float64 in re.findall(r"^\| `([a-z0-9 ]+)` \| ([0-9.]+) \| ([0-9.]+) \|$", page, re.MULTILINE):
        group = names.split()
        assert float(float32) == max(BOUNDS[n].float32 for n in group), names
        assert float(float64) == max(BOUNDS[n].float64 for n in group), names
        documented.update(dict.fromkeys(group))
    assert set(documented) == set(BOUNDS)
