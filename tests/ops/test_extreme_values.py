"""Values at the ends of their dtype, infinities and NaN: spreads, distances, polynomials."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rushlight as torch

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e20, 3e38])
def test_spreads_of_large_numbers(dtype: torch.dtype, scale: float) -> None:
    """Their squares, and their sum, are no float32."""
    x = torch.tensor([[1.0, 0.5, -0.25], [-1.0, 1.0, 0.75]], dtype=torch.float64).mul(scale).to(dtype)
    exact = x.double().numpy()
    std, mean = torch.std_mean(x, 1)
    tolerance = 1e-6 if dtype is torch.float32 else 4e-3
    np.testing.assert_allclose(std.double().numpy(), exact.std(1, ddof=1), rtol=tolerance)
    np.testing.assert_allclose(mean.double().numpy(), exact.mean(1), rtol=tolerance)
    assert torch.var_mean(x[:, :1], 1, correction=0)[0].tolist() == [0.0, 0.0]


def test_the_gradient_of_a_spread_of_large_numbers() -> None:
    x = torch.tensor([1e20, 3e20, 5e20], requires_grad=True)
    x.std().backward()
    np.testing.assert_allclose(x.grad.numpy(), [-0.5, 0.0, 0.5], atol=1e-6)


def test_distances_of_order_0_beside_nan() -> None:
    x = torch.tensor([[1.0, 2.0], [NAN, 2.0], [1.0, 3.0]])
    np.testing.assert_array_equal(torch.pdist(x, 0).numpy(), [NAN, 1.0, NAN])
    np.testing.assert_array_equal(torch.cdist(x, x[::2], 0).numpy(), [[0.0, 1.0], [NAN, NAN], [1.0, 0.0]])


@pytest.mark.parametrize(("letter", "of_two"), [("t", 7.0), ("u", 15.0), ("v", 11.0), ("w", 19.0)])
def test_chebyshev_polynomials_of_low_degree_at_infinity(letter: str, of_two: float) -> None:
    polynomial = getattr(torch.special, f"chebyshev_polynomial_{letter}")
    x = torch.tensor([INF, -INF, 2.0])
    assert polynomial(x, 0).tolist() == [1.0, 1.0, 1.0]
    assert polynomial(x, 1).tolist()[:2] == [INF, -INF]
    np.testing.assert_allclose(polynomial(x, 2).numpy(), [INF, INF, of_two], rtol=1e-6)
    assert polynomial(torch.tensor([NAN]), 0).item() == 1.0


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_polygamma_in_place_of_whole_numbers_is_refused(dtype: torch.dtype) -> None:
    x = torch.tensor([2, 1]).to(dtype)
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type"):
        x.polygamma_(2)
    assert torch.equal(x, torch.tensor([2, 1]).to(dtype)) and torch.tensor([1.0]).polygamma_(1).item() == pytest.approx(
        math.pi**2 / 6
    )
