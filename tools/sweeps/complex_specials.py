"""Complex functions at infinite, NaN, huge and signed-zero parts, beside C99 Annex G (as NumPy has it) and PyTorch.

    python tools/sweeps/complex_specials.py [--only 'exp|tan'] [--dtype complex128]

Each function is called for every pair of parts twice: with all points in one tensor (vector kernels) and each point in a tensor of its own (what is
left over of a vector).  Printed is each point where the two disagree, and where the result is neither NumPy's nor PyTorch's.
"""

from __future__ import annotations

import argparse
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import rushlight

PARTS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, -1e300, 1e300, 30.0, -30.0, 1000.0, -1000.0, math.inf, -math.inf, math.nan)
NAMES = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "square", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin",
         "acos", "atan", "asinh", "acosh", "atanh", "sigmoid", "abs", "angle", "sgn", "neg", "positive", "conj_physical")  # fmt: skip
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "neg": "negative",
         "conj_physical": "conjugate"}  # fmt: skip


# Where neither is followed: NumPy and PyTorch make expm1 of products that are inf * 0, and the sign of a NaN shows in the zero beside it.
KEPT = re.compile(r"expm1\(|cos\(\(?-?0?\+?nanj\)|exp2\(.*(e\+37|1000)j")


def points(dtype: Any) -> Any:
    """All pairs of parts, those too large for the dtype made as large as it can hold."""
    most = 1e300 if dtype == np.complex128 else 1e38
    parts = [math.copysign(most, p) if math.isfinite(p) and abs(p) > most else p for p in PARTS]
    with np.errstate(all="ignore"):
        return np.array([complex(a, b) for a in parts for b in parts]).astype(dtype)


def same(a: Any, b: Any, digits: float) -> Any:
    """Where two arrays agree: NaN with NaN, infinities and zeros with their signs, other numbers to `digits`."""

    def part(x: Any, y: Any) -> Any:
        with np.errstate(all="ignore"):
            close = np.abs(x - y) <= digits * np.abs(y)
        exact = (x == y) & (np.signbit(x) == np.signbit(y))
        return np.where(np.isnan(y), np.isnan(x), exact | (close & (y != 0) & np.isfinite(y)))

    if not np.iscomplexobj(a) or not np.iscomplexobj(b):
        return part(np.real(a), np.real(b))
    return part(a.real, b.real) & part(a.imag, b.imag)


def disagreements(name: str, dtype: Any = np.complex128) -> list[str]:
    """What is wrong with a function of one argument, a line a point."""
    given = points(dtype)
    function: Callable[..., Any] = getattr(rushlight, name)
    whole = function(rushlight.from_numpy(given)).resolve_conj().numpy()
    alone = np.concatenate(
        [function(rushlight.from_numpy(given[i : i + 1])).resolve_conj().numpy() for i in range(given.size)]
    )
    digits = 1e-12 if dtype == np.complex128 else 2e-5
    theirs = getattr(torch, name)(torch.from_numpy(given)).resolve_conj().numpy()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = getattr(np, NUMPY.get(name, name), None)
        standard = one(given) if one is not None else theirs
    differ = ~same(whole, alone, 0.0)
    wrong = ~same(whole, standard, digits) & ~same(whole, theirs, digits)
    lines = [f"{name}({given[i]}): {whole[i]} in a vector, {alone[i]} alone" for i in np.flatnonzero(differ)]
    return lines + [
        f"{name}({given[i]}): {whole[i]}, NumPy {standard[i]}, PyTorch {theirs[i]}"
        for i in np.flatnonzero(wrong & ~differ)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=".")
    parser.add_argument("--dtype", default="complex128")
    options = parser.parse_args()
    total = 0
    for name in NAMES:
        if re.search(options.only, name):
            found = [line for line in disagreements(name, np.dtype(options.dtype)) if not KEPT.match(line)]
            total += len(found)
            print(f"{name}: {len(found)} of {len(PARTS) ** 2}", *found, sep="\n    ")
    print(total)


if __name__ == "__main__":
    main()
