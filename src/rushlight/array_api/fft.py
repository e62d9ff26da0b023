"""The standard's Fourier transforms: PyTorch's, with the standard's names of arguments. The precision of the argument
stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import Tensor

_ONE = {
    "fft": "Fourier transform along a dim.",
    "ifft": "Inverse Fourier transform along a dim.",
    "rfft": "Fourier transform of real numbers along a dim: the first half, the other is its mirror image.",
    "irfft": "Inverse of `rfft`: real numbers.",
    "hfft": "Fourier transform of a Hermitian signal of which the first half is given: real numbers.",
    "ihfft": "Inverse of `hfft`.",
}
_MANY = {
    "fftn": "Fourier transform along several dims.",
    "ifftn": "Inverse Fourier transform along several dims.",
    "rfftn": "Fourier transform of real numbers along several dims; the last of them is halved.",
    "irfftn": "Inverse of `rfftn`: real numbers.",
}

__all__ = [*_ONE, *_MANY, "fftfreq", "fftshift", "ifftshift", "rfftfreq"]  # noqa: PLE0604


def _along_one(name: str, text: str) -> Callable[..., Tensor]:
    function = getattr(rushlight.fft, name)

    def transform(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
        return function(x, n, axis, norm).resolve_conj()

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = text + ' `n`: cut or filled up to this length before; `norm`: "backward", "ortho" or "forward".'
    return transform


def _along_many(name: str, text: str) -> Callable[..., Tensor]:
    function = getattr(rushlight.fft, name)

    def transform(x: Tensor, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
        return function(x, s, axes, norm)

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = (
        text + ' `s`: cut or filled up to these lengths before; `norm`: "backward", "ortho" or "forward".'
    )
    return transform


globals().update({name: _along_one(name, text) for name, text in _ONE.items()})
globals().update({name: _along_many(name, text) for name, text in _MANY.items()})


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of the elements of an `fft` of length `n` at sampling distance `d`."""
    return rushlight.fft.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of the elements of an `rfft` of length `n` at sampling distance `d`."""
    return rushlight.fft.rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """Frequency zero in the middle of these dims (all by default)."""
    return rushlight.fft.fftshift(x, axes)


def ifftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """The inverse of `fftshift`."""
    return rushlight.fft.ifftshift(x, axes)
