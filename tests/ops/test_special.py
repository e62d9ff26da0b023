"""Special functions against SciPy, over the joints of their pieces."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special as ss
from tests.ops.harness import Arr, call

import rushlight._ops.families  # noqa: F401
from rushlight._ops.table import OPERATORS

X = np.concatenate([np.linspace(-20, 20, 401), [0.0, 1e-8, -1e-8, 7.999, 8.0, 8.001, 100.0]])
POSITIVE = X[X > 0]
CASES = {
    "i0": (ss.i0, X), "special_i0e": (ss.i0e, X), "special_i1": (ss.i1, X), "special_i1e": (ss.i1e, X),
    "special_bessel_j0": (ss.j0, X), "special_bessel_j1": (ss.j1, X), "special_bessel_y0": (ss.y0, POSITIVE),
    "special_bessel_y1": (ss.y1, POSITIVE), "special_modified_bessel_k0": (ss.k0, POSITIVE), "special_modified_bessel_k1": (ss.k1, POSITIVE),
    "special_scaled_modified_bessel_k0": (ss.k0e, POSITIVE), "special_scaled_modified_bessel_k1": (ss.k1e, POSITIVE),
    "special_airy_ai": (lambda x: ss.airy(x)[0], X), "special_erfcx": (ss.erfcx, X), "special_log_ndtr": (ss.log_ndtr, X),
    "special_ndtr": (ss.ndtr, X), "special_ndtri": (ss.ndtri, np.linspace(1e-9, 1 - 1e-9, 501)), "special_entr": (ss.entr, X),
    "special_spherical_bessel_j0": (lambda x: ss.spherical_jn(0, x), POSITIVE),
}  # fmt: skip


@pytest.mark.parametrize("key", CASES)
def test_as_scipy(key: str) -> None:
    function, x = CASES[key]
    found, wanted = call(OPERATORS[key], Arr(x))[0].array, function(x)
    np.testing.assert_allclose(found, wanted, rtol=2e-12, atol=1e-15)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_polygamma_as_scipy(n: int) -> None:
    x = np.linspace(0.1, 9, 50)
    np.testing.assert_allclose(
        call(OPERATORS["polygamma"], n, Arr(x))[0].array, ss.polygamma(n, x), rtol=1e-12, atol=1e-13
    )


def test_zeta_as_scipy() -> None:
    s, q = np.array([1.5, 2.0, 3.3, 7.0, 2.0]), np.array([0.3, 1.0, 5.0, 2.2, 30.0])
    np.testing.assert_allclose(call(OPERATORS["special_zeta"], Arr(s), Arr(q))[0].array, ss.zeta(s, q), rtol=1e-14)


@pytest.mark.parametrize(("letter", "function"), [("t", ss.eval_chebyt), ("u", ss.eval_chebyu)])
def test_chebyshev_polynomials_as_scipy(letter: str, function: object) -> None:
    x, n = np.meshgrid(np.linspace(-1.5, 1.5, 13), np.arange(9.0))
    found = call(OPERATORS[f"special_chebyshev_polynomial_{letter}"], Arr(x), Arr(n))[0].array
    np.testing.assert_allclose(found, function(n.astype(int), x), rtol=1e-10, atol=1e-10)  # type: ignore[operator]


def test_far_tails() -> None:
    tails = 10.0 ** -np.arange(1, 300, 7)
    np.testing.assert_allclose(call(OPERATORS["special_ndtri"], Arr(tails))[0].array, ss.ndtri(tails), rtol=1e-13)
    np.testing.assert_array_equal(
        call(OPERATORS["special_ndtri"], Arr(np.array([0.0, 0.5, 1.0])))[0].array, [-np.inf, 0.0, np.inf]
    )
