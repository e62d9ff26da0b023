"""Fourier transforms of the CUDA backend, by the reference interpreter, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cuda.running import close, primitive

from rushlight._backends.cuda.fft import line
from rushlight._prims import PRIMITIVES
from rushlight._prims.samples import any_dtype


@pytest.mark.parametrize("name", ["fft", "rfft", "irfft"])
def test_samples(name: str) -> None:
    for arrays, params in PRIMITIVES[name].samples():
        (found,) = primitive(name, arrays, params)
        close(found, PRIMITIVES[name].reference(*arrays, **params))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("size", [1, 2, 8, 64, 512, 3, 60, 65, 100, 331])
def test_sizes(dtype: str, size: int) -> None:
    """Powers of two, small sizes by a matrix, others by a chirp; there and back, along a dim that is not the last."""
    x = any_dtype((2, size, 3), dtype, 1)
    params = {"dims": (1,), "inverse": False, "norm": "none"}
    (found,) = primitive("fft", [x], params)
    close(found, np.fft.fft(x.astype("complex128"), axis=1).astype(dtype))
    (back,) = primitive("fft", [found], {"dims": (1,), "inverse": True, "norm": "mean"})
    close(back, x)


@pytest.mark.parametrize("size", [64, 96, 127, 130])
def test_long_lines(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that do not fit a program: in two steps, or by a chirp over such."""
    monkeypatch.setattr(line, "longest", lambda dtype: 32)
    x = any_dtype((2, size), "complex128", 1)
    (found,) = primitive("fft", [x], {"dims": (1,), "inverse": True, "norm": "ortho"})
    close(found, np.fft.ifft(x, norm="ortho"))
    real = any_dtype((size, 2), "float64", 2)
    (half,) = primitive("rfft", [real], {"dim": 0, "norm": "none"})
    close(half, np.fft.rfft(real, axis=0))
    (back,) = primitive("irfft", [half], {"dim": 0, "size": size, "norm": "mean"})
    close(back, real)


def test_real_lines_and_strides() -> None:
    for size in (1, 2, 7, 16, 33, 100):
        x: Any = any_dtype((3, size), "float32", 1)
        (found,) = primitive("rfft", [x], {"dim": 1, "norm": "ortho"}, orders={0: (1, 0)})
        close(found, np.fft.rfft(x.astype(float), norm="ortho").astype("complex64"))
        (back,) = primitive("irfft", [found], {"dim": 1, "size": size, "norm": "ortho"})
        close(back, x)
