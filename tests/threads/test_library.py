"""Functions of the C library that the GPU lacks, run on x86: the same LLVM text."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from rushlight._codegen.scalar import ModuleText
from rushlight._codegen.threads.library import define_library
from rushlight._native import jit


def function(name: str, type: str, count: int) -> tuple[Callable[..., float], object]:
    module = ModuleText()
    module.declarations[f"@{name}"] = f"declare {type} @{name}({', '.join([type] * count)})"
    define_library(module)
    operands = ", ".join(f"{type} %a{k}" for k in range(count))
    text = f"{module}\ndefine {type} @run({operands}) {{\n %r = call {type} @{name}({operands})\n ret {type} %r\n}}\n"
    code = jit.load(jit.compile_object(text), ["run"])
    kind = ctypes.c_double if type == "double" else ctypes.c_float
    return ctypes.CFUNCTYPE(kind, *[kind] * count)(code["run"]), code


@pytest.mark.parametrize(("name", "ulps"), [("sin", 1.5), ("cos", 1.5), ("tan", 3.5)])
def test_angles_of_any_size(name: str, ulps: float) -> None:
    run, _code = function(name, "double", 1)
    draw = random.Random(1)
    angles = [math.ldexp(draw.uniform(1, 2), draw.randint(17, 1023)) * draw.choice((-1, 1)) for _ in range(400)]
    angles += [6381956970095103 * 2.0**797, 2.0**17, -(2.0**1023)]  # the first lies next to a multiple of pi / 2
    with mpmath.workprec(1400):
        for x in angles:
            exact = getattr(mpmath, name)(mpmath.mpf(x))
            assert abs(mpmath.mpf(run(x)) - exact) <= ulps * math.ulp(float(exact)), x
    assert math.isnan(run(math.inf)) and math.isnan(run(-math.inf)) and math.isnan(run(math.nan))


@pytest.mark.parametrize("type", ["float", "double"])
def test_fmod_is_exact(type: str) -> None:
    run, _code = function("fmod" if type == "double" else "fmodf", type, 2)
    kind = np.float64 if type == "double" else np.float32
    draw = random.Random(2)
    special = [0.0, -0.0, 1.0, -1.5, 3.0, np.finfo(kind).max, np.finfo(kind).tiny, np.finfo(kind).smallest_subnormal]
    most = 1000 if type == "double" else 120
    numbers = [math.ldexp(draw.uniform(-2, 2), draw.randint(-most, most)) for _ in range(60)]
    values = np.array([*special, *numbers], kind)
    with np.errstate(invalid="ignore"):
        for x in values:
            expected = np.fmod(np.full_like(values, x), values)
            got = np.array([run(float(x), float(y)) for y in values], kind)
            np.testing.assert_array_equal(got, expected)
            zero = (expected == 0) & ~np.isnan(expected)
            assert (np.signbit(got) == np.signbit(expected))[zero].all()
    assert math.isnan(run(math.inf, 2.0)) and run(5.0, math.inf) == 5.0


def test_other_functions_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="the C function erand48 has no form for the GPU"):
        function("erand48", "double", 1)
