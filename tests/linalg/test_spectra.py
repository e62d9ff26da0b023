"""Short-time Fourier transforms, LU factors, incomplete gamma functions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special as ss

import rushlight as torch
from rushlight.autograd import gradcheck

RNG = np.random.default_rng(2)


def test_a_signal_comes_back_from_its_short_transforms() -> None:
    x = torch.from_numpy(RNG.standard_normal((2, 40))).requires_grad_()
    window = torch.signal.windows.hann(8, sym=False, dtype=torch.float64)
    spectrum = torch.stft(x, 8, 2, window=window, return_complex=True)
    assert tuple(spectrum.shape) == (2, 5, 21)
    np.testing.assert_allclose(
        torch.istft(spectrum, 8, 2, window=window).detach().numpy(), x.detach().numpy(), atol=1e-12
    )
    assert gradcheck(lambda v: torch.view_as_real(torch.stft(v, 8, 4, window=window, return_complex=True)), (x,))


def test_a_row_of_complex_numbers_read_in_every_step_of_a_sum() -> None:
    """The mask of such a load belongs outside of the loop, where the load stands."""
    a = torch.from_numpy(RNG.standard_normal((10, 28)) + 1j).to(torch.complex64)[:, 5:23].requires_grad_()
    b = torch.from_numpy(RNG.standard_normal((1, 28)) + 2j).to(torch.complex64)[:, 5:23].detach().requires_grad_()
    torch.view_as_real(a / b).sum().backward()
    ones = np.full((10, 18), 1 + 1j, "complex64")
    wanted = -(ones * np.conj(a.detach().numpy() / b.detach().numpy() ** 2)).sum(0, keepdims=True)
    np.testing.assert_allclose(b.grad.numpy(), wanted, rtol=1e-4)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4), (4, 3), (3, 5)])
def test_lu_factors_multiply_back(shape: tuple[int, ...]) -> None:
    a = torch.from_numpy(RNG.standard_normal(shape))
    P, L, U = torch.linalg.lu(a)
    np.testing.assert_allclose((P @ L @ U).numpy(), a.numpy(), atol=1e-12)
    assert gradcheck(lambda x: torch.linalg.lu_factor(x)[0], (a.clone().requires_grad_(),))


def test_incomplete_gamma_as_scipy() -> None:
    a, x = np.meshgrid([0.0, 0.3, 1.0, 2.5, 40.0], [0.0, 0.1, 1.0, 3.0, 50.0, np.inf])
    ta, tx = torch.from_numpy(a.copy()), torch.from_numpy(x.copy())
    np.testing.assert_allclose(torch.special.gammainc(ta, tx).numpy(), ss.gammainc(a, x), rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(torch.special.gammaincc(ta, tx).numpy(), ss.gammaincc(a, x), rtol=1e-9, atol=1e-14)


def test_polynomials_as_scipy() -> None:
    x, n = np.meshgrid(np.linspace(-2, 2, 9), np.arange(8.0))
    tx, tn = torch.from_numpy(x.copy()), torch.from_numpy(n.copy())
    for name, function in [
        ("hermite_polynomial_h", ss.eval_hermite), ("hermite_polynomial_he", ss.eval_hermitenorm),
        ("laguerre_polynomial_l", ss.eval_laguerre), ("legendre_polynomial_p", ss.eval_legendre),
    ]:  # fmt: skip
        np.testing.assert_allclose(
            getattr(torch.special, name)(tx, tn).numpy(), function(n.astype(int), x), rtol=1e-9, atol=1e-9
        )


def test_stft_aligned_to_its_window() -> None:
    x, window = torch.arange(12.0, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    found = torch.stft(x, 6, 2, 4, window=window, center=False, align_to_window=True, return_complex=True)
    padded = np.pad(x.numpy(), 1)
    frames = [np.pad(padded[k + 1 : k + 5], 1) for k in range(0, 9, 2)]
    np.testing.assert_allclose(found.numpy(), np.fft.rfft(frames).T, atol=1e-12)
