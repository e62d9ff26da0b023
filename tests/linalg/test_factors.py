"""Factorisations and Fourier transforms: values against NumPy, first and second gradients against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(1)
A = RNG.standard_normal((2, 3, 3))
TALL = RNG.standard_normal((4, 3))


def leaf(array: Any) -> Any:
    return torch.from_numpy(np.array(array)).requires_grad_()


def positive(x: Any) -> Any:
    return x @ x.transpose(-2, -1) + torch.eye(3, dtype=torch.float64)


VALUES: list[tuple[str, Callable[[], Any], Any]] = [
    ("inv", lambda: torch.linalg.inv(torch.from_numpy(A)), np.linalg.inv(A)),
    ("det", lambda: torch.linalg.det(torch.from_numpy(A)), np.linalg.det(A)),
    ("solve", lambda: torch.linalg.solve(torch.from_numpy(A), torch.from_numpy(A + 1)), np.linalg.solve(A, A + 1)),
    ("pinv", lambda: torch.linalg.pinv(torch.from_numpy(TALL)), np.linalg.pinv(TALL)),
    ("svdvals", lambda: torch.linalg.svdvals(torch.from_numpy(TALL)), np.linalg.svd(TALL, compute_uv=False)),
    ("eigvalsh", lambda: torch.linalg.eigvalsh(positive(torch.from_numpy(A))), np.linalg.eigvalsh(A @ np.swapaxes(A, -1, -2) + np.eye(3))),
    ("matrix_power", lambda: torch.linalg.matrix_power(torch.from_numpy(A), -3), np.linalg.matrix_power(A, -3)),
    ("fft", lambda: torch.fft.fft(torch.from_numpy(TALL), 7, 0), np.fft.fft(TALL, 7, 0)),
    ("irfftn", lambda: torch.fft.irfftn(torch.fft.rfftn(torch.from_numpy(TALL)), TALL.shape), TALL),
    ("fft ortho", lambda: torch.fft.fftn(torch.from_numpy(A), norm="ortho"), np.fft.fftn(A, norm="ortho")),
    ("fftfreq", lambda: torch.fft.fftfreq(5, 0.1, dtype=torch.float64), np.fft.fftfreq(5, 0.1)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function", "wanted"), VALUES, ids=[v[0] for v in VALUES])
def test_values_as_numpy(name: str, function: Callable[[], Any], wanted: Any) -> None:
    np.testing.assert_allclose(function().numpy(), wanted, rtol=1e-9, atol=1e-12)


def test_factors_multiply_back() -> None:
    x = torch.from_numpy(A)
    q, r = torch.linalg.qr(x)
    u, s, vh = torch.linalg.svd(x)
    w, v = torch.linalg.eig(x)
    lower = torch.linalg.cholesky(positive(x))
    np.testing.assert_allclose((q @ r).numpy(), A, atol=1e-12)
    np.testing.assert_allclose((u @ torch.diag_embed(s) @ vh).numpy(), A, atol=1e-12)
    np.testing.assert_allclose((v @ torch.diag_embed(w) @ torch.linalg.inv(v)).numpy(), A, atol=1e-9)
    np.testing.assert_allclose((lower @ lower.transpose(-2, -1)).numpy(), positive(x).numpy(), atol=1e-12)


SMOOTH: list[tuple[str, Callable[[Any], Any], Any]] = [
    ("inv", torch.linalg.inv, A),
    ("det", torch.linalg.det, A),
    ("slogdet", lambda x: torch.linalg.slogdet(x)[1], A),
    ("solve", lambda x: torch.linalg.solve(x, x * x), A),
    ("cholesky", lambda x: torch.linalg.cholesky(positive(x)), A),
    ("qr", lambda x: torch.linalg.qr(x), TALL),
    ("qr wide", lambda x: torch.linalg.qr(x), TALL.T),
    ("svd", lambda x: torch.linalg.svd(x, False)[1], TALL),
    ("eigh", lambda x: torch.linalg.eigh(positive(x))[0], A),
    ("pinv", torch.linalg.pinv, TALL),
    ("matrix_exp", torch.matrix_exp, A[0]),
    ("rfft", lambda x: torch.view_as_real(torch.fft.rfft(x, 5, 0)), TALL),
    ("irfft", lambda x: torch.fft.irfft(torch.complex(x, x * x), 6, 0), TALL),
    ("fftn", lambda x: torch.view_as_real(torch.fft.fftn(x)), TALL),
]


@pytest.mark.parametrize(("name", "function", "at"), SMOOTH, ids=[s[0] for s in SMOOTH])
def test_gradients(name: str, function: Callable[[Any], Any], at: Any) -> None:
    assert gradcheck(function, (leaf(at),))
    if name not in ("svd", "qr", "qr wide"):
        assert gradgradcheck(function, (leaf(at),))


def test_what_cannot_be_factored_says_so() -> None:
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.inv(torch.zeros(2, 2))
    with pytest.raises(torch.linalg.LinAlgError, match="positive-definite"):
        torch.linalg.cholesky(-torch.eye(2))
    with pytest.raises(RuntimeError, match="square"):
        torch.linalg.det(torch.zeros(2, 3))
    with pytest.raises(RuntimeError, match="Invalid number of data points"):
        torch.fft.fft(torch.zeros(0))
    with pytest.raises(RuntimeError, match="second time"):
        x = leaf(A)
        y = torch.linalg.inv(x).sum()
        y.backward()
        y.backward()
