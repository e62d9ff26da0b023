"""Functions that are computed step by step, against SciPy and high precision."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from scipy import special

import rushlight as rl

# Relative errors: docs/numerics.md states them.
GAMMA_BOUND = 1e-12


def test_incomplete_gamma_functions_in_the_tails_and_near_the_mean() -> None:
    rng = np.random.default_rng(1)
    order = np.exp(rng.uniform(-6, 9, 300))
    x = order * np.exp(rng.normal(0, 0.6, 300)) + 1e-3
    p, q = (f(rl.tensor(order), rl.tensor(x)).numpy() for f in (rl.igamma, rl.igammac))
    assert np.abs(p + q - 1).max() < 1e-14
    for k in range(0, 300, 6):
        with mp.workdps(40):
            a, b = mp.mpf(order[k]), mp.mpf(x[k])
            whole, upper = mp.gamma(a), mp.gammainc(a, b)
            exact = float((whole - upper) / whole), float(upper / whole)
        for got, want in zip((p[k], q[k]), exact, strict=True):
            if want > 1e-250:
                assert abs(got - want) <= GAMMA_BOUND * want, (order[k], x[k], got, want)
    single = rl.igamma(rl.tensor(order.astype("float32")), rl.tensor(x.astype("float32"))).numpy()
    wide = rl.igamma(
        rl.tensor(order.astype("float32").astype("float64")), rl.tensor(x.astype("float32").astype("float64"))
    ).numpy()
    np.testing.assert_array_equal(single, wide.astype("float32"))


def test_incomplete_gamma_functions_at_the_edges() -> None:
    inf, nan = np.inf, np.nan
    a = np.array([0, 0, 1, inf, inf, 2, -1, 1, nan, nan, nan, inf, 0])
    x = np.array([0, 3, 0, 5, inf, inf, 1, -1, 1, 0, inf, nan, nan])
    np.testing.assert_array_equal(
        rl.igamma(rl.tensor(a), rl.tensor(x)).numpy(), [nan, 1, 0, 0, nan, 1, nan, nan, nan, 0, 1, 0, nan]
    )
    np.testing.assert_array_equal(
        rl.igammac(rl.tensor(a), rl.tensor(x)).numpy(), [nan, 0, 1, 1, nan, 0, nan, nan, nan, 1, 0, 1, nan]
    )


def test_the_derivative_by_the_order_is_refused() -> None:
    a, x = rl.tensor([1.5], requires_grad=True), rl.tensor([2.0], requires_grad=True)
    rl.igamma(a.detach(), x).backward()
    assert x.grad.item() == pytest.approx(2.0**0.5 * np.exp(-2.0) / special.gamma(1.5), rel=1e-6)
    with pytest.raises(NotImplementedError, match="derivative for aten::igamma is not implemented"):
        rl.igamma(a, x).backward()


@pytest.mark.parametrize(
    ("name", "exact"),
    [("hermite_polynomial_h", special.eval_hermite), ("hermite_polynomial_he", special.eval_hermitenorm),
     ("laguerre_polynomial_l", special.eval_laguerre), ("legendre_polynomial_p", special.eval_legendre)],
)  # fmt: skip
def test_polynomials_of_mixed_degrees(name: str, exact: object) -> None:
    rng = np.random.default_rng(2)
    x, n = rng.uniform(-1.5, 1.5, 400), rng.integers(0, 30, 400)
    got = getattr(rl.special, name)(rl.tensor(x), rl.tensor(n)).numpy()
    want = exact(n, x)  # type: ignore[operator]
    assert np.abs(got - want).max() <= 1e-9 * np.abs(want).max()
    edges = getattr(rl.special, name)(rl.tensor([0.3, 0.3, 0.3, 0.3]), rl.tensor([-1.0, -0.5, np.inf, 1e30])).numpy()
    np.testing.assert_array_equal(edges, [0, 1, 0, 0])


def test_frexp_takes_every_kind_of_number_apart() -> None:
    x = np.array([0.0, -0.0, 1.0, -3.7, 5e-324, -5e-310, 2.0**1023, np.inf, -np.inf, 1e-300])
    mantissa, exponent = rl.frexp(rl.tensor(x))
    want = np.frexp(x)
    np.testing.assert_array_equal(mantissa.numpy(), want[0])
    np.testing.assert_array_equal(exponent.numpy(), want[1])
    assert exponent.dtype is rl.int32 and np.isnan(rl.frexp(rl.tensor([np.nan])).mantissa.item())


def test_zeta_against_scipy_and_at_negative_arguments() -> None:
    rng = np.random.default_rng(3)
    s, q = rng.uniform(1.01, 60, 300), rng.uniform(0.05, 40, 300)
    got = rl.special.zeta(rl.tensor(s), rl.tensor(q)).numpy()
    np.testing.assert_allclose(got, special.zeta(s, q), rtol=4e-15)
    with mp.workdps(30):
        for order, x in ((2.0, -1.5), (3.0, -2.25), (3.0, -100.3)):
            exact = sum((mp.mpf(x) + k) ** -order for k in range(101)) + mp.zeta(order, mp.mpf(x) + 101)
            value = rl.special.zeta(rl.tensor(order, dtype=rl.float64), rl.tensor(x, dtype=rl.float64)).item()
            assert value == pytest.approx(float(exact), rel=1e-14)
    inf, nan = np.inf, np.nan
    edges = [
        (1.0, 2.0, inf), (0.5, 2.0, nan), (2.0, -3.0, inf), (2.5, -1.5, nan), (2.0, inf, nan), (nan, 1.0, nan), (nan, -inf, inf), (nan, 0.0, inf),
        (nan, -2.0, inf), (nan, -1.5, nan), (0.5, -2.0, nan), (1e30, 1.0, 1.0), (400.0, 10.0, 0.0), (1e12, 2.0, 0.0), (1e20, 501.0, nan),
        (1e30, 2.0, nan), (1e20, 0.5, inf), (1e20, -1.5, inf),
    ]  # fmt: skip
    s, q, wanted = (np.array(column) for column in zip(*edges, strict=True))
    np.testing.assert_array_equal(rl.special.zeta(rl.tensor(s), rl.tensor(q)).numpy(), wanted)
    np.testing.assert_array_equal(special.zeta(s, q)[q < inf], wanted[q < inf])  # SciPy's is Cephes' too


def test_polygamma_at_infinity() -> None:
    inf, nan = np.inf, np.nan
    for n, want in ((0, [inf, nan, nan]), (1, [0.0, nan, nan]), (2, [nan, -inf, nan]), (3, [nan, inf, nan])):
        np.testing.assert_array_equal(rl.polygamma(n, rl.tensor([inf, -inf, nan])).numpy(), want)


def test_trigamma_at_its_poles_and_beyond_them() -> None:
    x = np.concatenate([np.linspace(-20.7, 40, 400), 10.0 ** np.arange(-150, 300, 15), [0.25, 0.5, -0.5]])
    np.testing.assert_allclose(rl.polygamma(1, rl.tensor(x)).numpy(), special.polygamma(1, x), rtol=1e-12)
    np.testing.assert_array_equal(
        rl.polygamma(1, rl.tensor([0.0, -1.0, -7.0, 1e-200, -1e30])).numpy(), np.full(5, np.inf)
    )


def test_huge_orders_are_expanded_and_not_stepped_through() -> None:
    for order, x in ((1e9, 1e9), (1e9, 1.00005e9), (1e20, 1e20), (2e8, 2.00001e8), (1e12, 1e12 + 2e6)):
        got = rl.igamma(rl.tensor(order, dtype=rl.float64), rl.tensor(x, dtype=rl.float64)).item()
        assert got == pytest.approx(special.gammainc(order, x), rel=1e-12)


def test_airy_keeps_its_digits_where_its_angle_is_large() -> None:
    x = np.array([-501.0, -100.0, -40.0, -3.0, 1.0, 8.0], dtype="float32")
    np.testing.assert_allclose(
        rl.special.airy_ai(rl.tensor(x)).numpy(), special.airy(x.astype("float64"))[0], rtol=2e-7
    )
