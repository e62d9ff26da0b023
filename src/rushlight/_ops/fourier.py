"""The three Fourier transforms behind `torch.fft`: complex to complex, real to half, half to real.

`norm` scales the sums: "none", "ortho" (1 / sqrt of the number of transformed elements), "mean" (1 / that number).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._ops.table import operator
from rushlight._prims import prim

__all__: list[str] = []

HIDDEN: dict[str, Any] = {"spaces": (), "method": False}


@operator("fft_c2c(Tensor input, int[] dim, bool inverse, str norm='none') -> Tensor", node="FftC2CBackward0", **HIDDEN)
def fft_c2c(x: Any, dim: Sequence[int], inverse: bool, norm: str) -> Any:
    """The sum over n of x[n] exp(-2 pi i k n / N) over dims of a complex tensor; with + in the exponent for `inverse`."""
    return prim.fft(x, dims=tuple(dim), inverse=inverse, norm=norm)


@operator("fft_r2c(Tensor input, int[] dim, str norm='none') -> Tensor", node="FftR2CBackward0", **HIDDEN)
def fft_r2c(x: Any, dim: Sequence[int], norm: str) -> Any:
    """The same of a real tensor; of the last of `dim` only the frequencies 0 .. N/2."""
    half = prim.rfft(x, dim=dim[-1], norm=norm)
    return prim.fft(half, dims=tuple(dim[:-1]), inverse=False, norm=norm) if len(dim) > 1 else half


@operator(
    "fft_c2r(Tensor input, int[] dim, int size, str norm='none') -> Tensor",
    node="FftC2RBackward0",
    tags=("sized",),
    **HIDDEN,
)
def fft_c2r(x: Any, dim: Sequence[int], size: int, norm: str) -> Any:
    """The inverse of such a half: real, with `size` elements along the last of `dim`."""
    if len(dim) > 1:
        x = prim.fft(x, dims=tuple(dim[:-1]), inverse=True, norm=norm)
    return prim.irfft(x, dim=dim[-1], size=size, norm=norm)
