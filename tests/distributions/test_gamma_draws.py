"""Gamma and Dirichlet draws: the numbers of a seed, the order of filling, and derivatives against high precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as torch

mpmath = pytest.importorskip("mpmath")


def f(x: Any, dtype: Any = None) -> Any:
    return torch.tensor(x, dtype=dtype or torch.float64)


# draws of PyTorch 2.13 for seed 0: with shapes 1, with shapes 1 .. 6, and Dirichlet draws with these
ONES = [2.8824327, 0.45463708, 0.11535825, 0.052645221, 0.23496056, 0.38859019]
RISING = [2.8824327, 1.3158269, 1.2587808, 1.5876687, 3.2789569, 4.7597246]
DIRICHLET = [0.52820438, 0.24112464, 0.23067096, 0.16492945, 0.34062308, 0.49444747]


def test_numbers_for_a_seed() -> None:
    torch.manual_seed(0)
    np.testing.assert_allclose(torch._standard_gamma(torch.ones(2, 3)).reshape(-1).numpy(), ONES, rtol=1e-6)
    shapes = torch.arange(1.0, 7.0).view(2, 3)
    torch.manual_seed(0)
    np.testing.assert_allclose(torch._standard_gamma(shapes).reshape(-1).numpy(), RISING, rtol=1e-6)
    # a strided input is drawn in the order of its indices
    torch.manual_seed(0)
    strided = torch._standard_gamma(shapes.t())
    torch.manual_seed(0)
    assert torch.equal(strided, torch._standard_gamma(shapes.t().contiguous()))
    g = torch.Generator().manual_seed(0)
    np.testing.assert_allclose(torch._standard_gamma(torch.ones(2), generator=g).numpy(), ONES[:2], rtol=1e-6)
    torch.manual_seed(0)
    np.testing.assert_allclose(torch._sample_dirichlet(shapes).reshape(-1).numpy(), DIRICHLET, rtol=1e-6)


def test_small_and_odd_shapes() -> None:
    torch.manual_seed(0)
    found = torch._standard_gamma(torch.tensor([0.0, 1e-3, -1.0, float("nan")]))
    assert (found >= 2.0**-126).all()  # never 0, which has no logarithm
    assert torch._standard_gamma(torch.ones(0)).shape == (0,)
    assert torch._sample_dirichlet(torch.ones(0, 3)).shape == (0, 3)
    assert torch._sample_dirichlet(f([[1e-3, 1e-3]])).sum().item() == pytest.approx(1)
    for call, name in ((torch._standard_gamma, "gamma_cpu"), (torch._sample_dirichlet, "dirichlet")):
        for dtype, word in ((torch.float16, "Half"), (torch.bfloat16, "BFloat16"), (torch.int64, "Long")):
            with pytest.raises(NotImplementedError, match=f"\"{name}\" not implemented for '{word}'"):
                call(torch.ones(3, dtype=dtype))


def _exact(distribution: Any, density: Any, a: float) -> float:
    """-(dF/da) / (dF/dx)."""
    with mpmath.workdps(40):
        return float(-mpmath.diff(distribution, mpmath.mpf(a)) / density(mpmath.mpf(a)))


GAMMA = [
    (1e-3, 1e-5), (1e-3, 1e-200), (1e-2, 1e-60), (0.1, 1e-8), (0.1, 3.0), (0.5, 0.2), (1.0, 1.0), (2.5, 0.01), (2.5, 30.0), (30.0, 25.0),
    (30.0, 80.0), (1e3, 900.0), (1e3, 1100.0),
]  # fmt: skip
BETA = [
    (0.01, 2.0, 1e-30), (0.01, 2.0, 0.5), (0.5, 0.5, 0.1), (0.5, 0.5, 0.95), (2.0, 3.0, 0.01), (2.0, 3.0, 0.99), (50.0, 2.0, 0.9),
    (50.0, 80.0, 0.3), (500.0, 800.0, 0.4), (0.1, 100.0, 1e-4), (3.0, 0.05, 0.9999), (0.01, 0.01, 0.3),
]  # fmt: skip


@pytest.mark.parametrize(("a", "x"), GAMMA)
def test_gamma_derivative(a: float, x: float) -> None:
    exact = _exact(
        lambda s: mpmath.gammainc(s, 0, mpmath.mpf(x), regularized=True),
        lambda s: mpmath.mpf(x) ** (s - 1) * mpmath.exp(-mpmath.mpf(x)) / mpmath.gamma(s),
        a,
    )
    assert torch._standard_gamma_grad(f([a]), f([x])).item() == pytest.approx(exact, rel=1e-12)
    if x > 1e-30:
        single = torch._standard_gamma_grad(f([a], torch.float32), f([x], torch.float32))
        assert single.item() == pytest.approx(exact, rel=2e-5) and single.dtype is torch.float32


@pytest.mark.parametrize(("a", "b", "x"), BETA)
def test_beta_derivative(a: float, b: float, x: float) -> None:
    y = mpmath.mpf(x)
    exact = _exact(
        lambda s: mpmath.betainc(s, mpmath.mpf(b), 0, y, regularized=True),
        lambda s: y ** (s - 1) * (1 - y) ** (mpmath.mpf(b) - 1) / mpmath.beta(s, b),
        a,
    ) / (1 - x)
    assert torch._dirichlet_grad(f([x]), f([a]), f([a + b])).item() == pytest.approx(exact, rel=1e-10)


def test_derivatives_at_large_shapes() -> None:
    """x is nearly a + sqrt(a) z, so its derivative nearly 1 + (x - a) / (2 a)."""
    for a, x in ((1e7, 1.0001e7), (1e12, 1.000001e12)):
        assert torch._standard_gamma_grad(f([a]), f([x])).item() == pytest.approx(1 + (x - a) / (2 * a), rel=1e-7)


def test_derivatives_outside_the_support() -> None:
    assert torch._standard_gamma_grad(f([1.0, -1.0, float("nan")]), f([0.0, 1.0, 1.0])).isnan().tolist() == [
        False,
        False,
        True,
    ]
    assert torch._dirichlet_grad(f([1.0]), f([2.0]), f([2.0])).item() == 0.0


def test_history() -> None:
    a = f([2.0, 3.0]).requires_grad_()
    x = torch._standard_gamma(a)
    assert type(x.grad_fn).__name__ == "StandardGammaBackward0"
    x.sum().backward()
    assert torch.equal(a.grad, torch._standard_gamma_grad(a.detach(), x.detach()))
    with pytest.raises(RuntimeError, match="second time"):
        x.sum().backward()
    x = torch._standard_gamma(a)
    with torch.no_grad():
        a.mul_(2.0)
    with pytest.raises(RuntimeError, match="inplace"):
        x.sum().backward()
    with torch.no_grad():
        assert not torch._standard_gamma(a).requires_grad
    with pytest.raises(NotImplementedError, match="_sample_dirichlet"):
        torch._sample_dirichlet(a).sum().backward()
