"""Windows for spectral analysis.  All take `M`, the length; `sym=False` gives a period of M for use with Fourier
transforms.

>>> import rushlight as torch
>>> torch.signal.windows.hann(5)
tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import rushlight
from rushlight import Tensor, get_default_device
from rushlight import get_default_dtype as default_dtype
from rushlight._interface.tensors import as_flag, as_int

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser",
    "nuttall",
]  # fmt: skip

Places = Callable[[float, float], Any]


def _window(
    name: str,
    M: int,
    sym: bool,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    values: Callable[[Places, float], Any],
) -> Any:
    """`values(places, span)` as a window, where `places(start, step)` are M numbers in the window's dtype; empty for
    M = 0.
    """
    dtype = default_dtype() if dtype is None else dtype
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if dtype not in (rushlight.float32, rushlight.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    if layout is not None and layout is not rushlight.strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    device = get_default_device() if device is None else device
    if M == 0:
        return rushlight.empty(
            0, dtype=dtype, device=device, requires_grad=as_flag(name, "requires_grad", requires_grad)
        )
    M = as_int(name, "M", M)
    if M == 1 and name not in ("exponential", "gaussian"):  # those have a value there
        return rushlight.ones(1, dtype=dtype, device=device, requires_grad=requires_grad)

    def places(start: float, step: float) -> Any:
        return rushlight.linspace(start, start + (M - 1) * step, M, dtype=dtype, device=device)

    return values(places, float(M - 1 if sym else M)).requires_grad_(requires_grad)


def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """sum of (-1)^k a[k] cos(2 pi k n / N)."""
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    weights = list(a)
    if not weights:
        raise ValueError("Coefficients cannot be empty")

    def values(places: Places, span: float) -> Any:
        angles = places(0.0, 2.0 * math.pi / span)
        signed = rushlight.tensor(
            [(-1) ** k * w for k, w in enumerate(weights)], dtype=angles.dtype, device=angles.device
        )
        orders = rushlight.arange(len(weights), dtype=angles.dtype, device=angles.device)
        return (signed.unsqueeze(-1) * rushlight.cos(orders.unsqueeze(-1) * angles)).sum(0)

    return _window("general_cosine", M, sym, dtype, layout, device, requires_grad, values)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Tensor:
    """alpha - (1 - alpha) cos(2 pi n / N)."""
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, **options)


def hamming(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Hamming's window: 0.54 - 0.46 cos(2 pi n / N)."""
    return general_hamming(M, sym=sym, **options)


def hann(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Hann's window: a raised cosine."""
    return general_hamming(M, alpha=0.5, sym=sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Blackman's window of three cosines."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Nuttall's window of four cosines."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, **options)


def bartlett(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A triangle."""

    def values(places: Places, span: float) -> Any:
        return 1 - rushlight.abs(places(-1.0, 2.0 / span))

    return _window("bartlett", M, sym, dtype, layout, device, requires_grad, values)


def cosine(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Half a period of a sine."""

    def values(places: Places, span: float) -> Any:
        step = math.pi / (span + 1.0)
        return rushlight.sin(places(0.5 * step, step))

    return _window("cosine", M, sym, dtype, layout, device, requires_grad, values)


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-|n - center| / tau)."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")

    def values(places: Places, span: float) -> Any:
        middle = (M if not sym and M > 1 else M - 1) / 2.0 if center is None else center
        return rushlight.exp(-rushlight.abs(places(-middle / tau, 1 / tau)))

    return _window("exponential", M, sym, dtype, layout, device, requires_grad, values)


def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-(n - center)^2 / (2 std^2))."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")

    def values(places: Places, span: float) -> Any:
        step = 1 / (std * math.sqrt(2.0))
        middle = (M if not sym and M > 1 else M - 1) / 2.0
        return rushlight.exp(-(places(-middle * step, step) ** 2))

    return _window("gaussian", M, sym, dtype, layout, device, requires_grad, values)


def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """I0(beta sqrt(1 - t^2)) / I0(beta), t from -1 to 1; computed in `dtype`, so that I0 overflows in float32 for beta
    above 91.
    """
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    dtype = default_dtype() if dtype is None else dtype

    def values(_: Places, span: float) -> Any:
        height = rushlight.tensor(float(beta), dtype=dtype, device=device)
        start = -height
        last = rushlight.minimum(height, start + (M - 1) * (2.0 * height / span))
        across = rushlight.linspace(start, last, M, dtype=dtype, device=device)
        return rushlight.i0(rushlight.sqrt(height * height - rushlight.pow(across, 2))) / rushlight.i0(height)

    return _window("kaiser", M, sym, dtype, layout, device, requires_grad, values)
