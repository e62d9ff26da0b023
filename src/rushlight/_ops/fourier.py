"""The three Fourier transforms of which `torch.fft` is made: complex to complex, real to half, half to real; each times a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._ops.bodies import is_number
from rushlight._ops.table import operator
from rushlight._prims import prim

__all__: list[str] = []

HIDDEN: dict[str, Any] = {"spaces": (), "method": False}


def _scaled(x: Any, scale: Any) -> Any:
    return x if is_number(scale) and scale == 1 else x * scale


@operator("fft_c2c(Tensor input, int[] dim, bool inverse, Scalar scale=1) -> Tensor", node="FftC2CBackward0", **HIDDEN)
def fft_c2c(x: Any, dim: Sequence[int], inverse: bool, scale: Any) -> Any:
    """scale * sum over n of x[n] exp(-2 pi i k n / N) over dims of a complex tensor; with + in the exponent where `inverse`."""
    return _scaled(prim.fft(x, dims=tuple(dim), inverse=inverse), scale)


@operator("fft_r2c(Tensor input, int[] dim, Scalar scale=1) -> Tensor", node="FftR2CBackward0", **HIDDEN)
def fft_r2c(x: Any, dim: Sequence[int], scale: Any) -> Any:
    """The same of a real tensor; of the last of `dim` only the frequencies 0 .. N/2."""
    found = prim.rfft(x, dim=dim[-1])
    if len(dim) > 1:
        found = prim.fft(found, dims=tuple(dim[:-1]), inverse=False)
    return _scaled(found, scale)


@operator("fft_c2r(Tensor input, int[] dim, int size, Scalar scale=1) -> Tensor", node="FftC2RBackward0", **HIDDEN)
def fft_c2r(x: Any, dim: Sequence[int], size: int, scale: Any) -> Any:
    """The way back from such a half (without a factor of its own): real, with `size` elements along the last of `dim`."""
    if len(dim) > 1:
        x = prim.fft(x, dims=tuple(dim[:-1]), inverse=True)
    return _scaled(prim.irfft(x, dim=dim[-1], size=size), scale)
