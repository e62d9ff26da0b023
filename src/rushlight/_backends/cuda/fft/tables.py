"""Tables of Fourier transforms: roots of unity and chirps, computed in float64 and rounded once.

Complex numbers lie as pairs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._types.dtype import DType

__all__ = ["chirp", "chirp_spectrum", "matrix", "roots", "split_roots"]


def _bytes(x: Any, dtype: DType) -> bytes:
    pairs = np.stack([x.real, x.imag], -1).astype(dtype.name)
    return bytes(np.ascontiguousarray(pairs).tobytes())


def _unit(numerator: Any, denominator: int, sign: int) -> Any:
    """exp(sign 2 pi i n / d), exact at multiples of an eighth of a turn."""
    n = np.asarray(numerator) % denominator
    eighth, rest = np.divmod(8 * n, denominator)
    turned = eighth % 2 == 1
    angle = np.where(turned, denominator - rest, rest) * (2 * np.pi / 8 / denominator)
    c, s = np.cos(angle), np.sin(angle)
    x, y = np.where(turned, s, c), np.where(turned, c, s)
    quarter = eighth // 2
    real = np.choose(quarter, [x, -y, -x, y])
    imag = np.choose(quarter, [y, x, -y, -x])
    return real + 1j * sign * imag


@lru_cache(maxsize=64)
def roots(size: int, sign: int, dtype: DType) -> bytes:
    """exp(sign 2 pi i k / size) for all k below half of the size."""
    return _bytes(_unit(np.arange(max(size // 2, 1)), size, sign), dtype)


@lru_cache(maxsize=16)
def split_roots(size: int, low: int, sign: int, dtype: DType) -> tuple[bytes, bytes]:
    """Two tables, whose products are all roots: of k = low h + l that for h and that for l."""
    high = _unit(np.arange(-(-size // low)) * low, size, sign)
    return _bytes(high, dtype), _bytes(_unit(np.arange(low), size, sign), dtype)


@lru_cache(maxsize=64)
def matrix(size: int, padded: int, sign: int, dtype: DType) -> tuple[bytes, bytes]:
    """Real and imaginary parts of the matrix of a transform, with zeros around."""
    k = np.arange(size)
    whole = np.zeros((padded, padded), complex)
    whole[:size, :size] = _unit(np.outer(k, k), size, sign)
    return tuple(bytes(np.ascontiguousarray(part.astype(dtype.name)).tobytes()) for part in (whole.real, whole.imag))  # type: ignore[return-value]


def _chirp(size: int, sign: int) -> Any:
    k = np.arange(size, dtype=np.int64)
    return _unit(k * k, 2 * size, sign)


@lru_cache(maxsize=16)
def chirp(size: int, sign: int, dtype: DType) -> bytes:
    """exp(sign pi i k**2 / size)."""
    return _bytes(_chirp(size, sign), dtype)


@lru_cache(maxsize=16)
def chirp_spectrum(size: int, length: int, sign: int, dtype: DType) -> bytes:
    """The transform, of a length, of the chirp that the other one is convolved with, divided by the length."""
    wave = np.zeros(length, complex)
    back = np.conj(_chirp(size, sign))
    wave[:size] = back
    if size > 1:
        wave[-(size - 1) :] = back[:0:-1]
    return _bytes(np.fft.fft(wave) / length, dtype)
