"""Fourier transforms: y[k] = c sum over n of x[n] exp(-2 pi i k n / N), with + for `inverse`.  The factor c is 1 for
`norm` "none", 1 / sqrt(N) for "ortho" and 1 / N for "mean".

Rules follow from linearity.  The transform's matrix is symmetric, so its conjugate transpose is the transform in the
other direction.
"""

from __future__ import annotations

import math
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import require
from rushlight._prims.record import Aval, Primitive, prim
from rushlight._prims.samples import Samples, floats
from rushlight._types.dtype import FLOAT32

__all__ = ["factor_of"]

Ints = tuple[int, ...]


def _check_dims(name: str, x: Any, dims: Ints) -> None:
    if len(set(dims)) != len(dims) or any(not 0 <= d < len(x.shape) for d in dims):
        raise ValueError(f"prim.{name}: dims {dims} of {list(x.shape)}")
    if any(x.shape[d] < 1 for d in dims):
        raise ValueError(f"prim.{name} needs at least one element along dims {dims}, got {list(x.shape)}")


def factor_of(norm: str, count: int) -> float:
    """The factor of sums of `count` numbers."""
    return {"none": 1.0, "ortho": 1.0 / math.sqrt(count), "mean": 1.0 / count}[norm]


def _check_norm(name: str, norm: str) -> None:
    if norm not in ("none", "ortho", "mean"):
        raise ValueError(f"prim.{name}: norm {norm!r}")


def _samples(real: bool, **params: Any) -> Any:
    def samples() -> Samples:
        for dtype in ("float64", "float32") if real else ("complex128", "complex64"):
            for shape in ((2, 3, 6), (1, 4, 5), (0, 2, 3)):
                yield [floats(shape, 1, dtype=dtype)], params

    return samples


# ***** complex to complex *****


def _fft_spec(x: Any, dims: Ints, inverse: bool, norm: str) -> Aval:
    require("fft", x, "c")
    _check_dims("fft", x, dims)
    _check_norm("fft", norm)
    return x.shape, x.dtype


def _fft(x: Any, dims: Ints, inverse: bool, norm: str) -> Any:
    wide = x.astype("complex128")
    sums = np.fft.ifftn(wide, axes=dims, norm="forward") if inverse else np.fft.fftn(wide, axes=dims)
    return (sums * factor_of(norm, math.prod(x.shape[d] for d in dims))).astype(x.dtype)


def _fft_samples() -> Samples:
    yield from _samples(False, dims=(2,), inverse=False, norm="none")()
    yield from _samples(False, dims=(1, 2), inverse=True, norm="mean")()


Primitive(
    "fft", "The Fourier transform of complex x over dims.", family="heavy", spec=_fft_spec, reference=_fft, lower=("extern", "fft"),
    samples=_fft_samples, vjp=lambda ct, out, x, dims, inverse, norm: (prim.fft(ct, dims=dims, inverse=not inverse, norm=norm),),
    jvp=lambda tangents, out, x, **p: None if tangents[0] is None else prim.fft(tangents[0], **p),
    batch=lambda batched, x, dims, inverse, norm: prim.fft(x, dims=tuple(d + 1 for d in dims), inverse=inverse, norm=norm),
)  # fmt: skip

# ***** real to the half that holds everything, and back *****


def _cut(x: Any, dim: int, size: int) -> Any:
    """Cut, or pad with zeros, to a size along dim."""
    length = x.shape[dim]
    if length == size:
        return x
    if length > size:
        stops = tuple(size if d == dim else n for d, n in enumerate(x.shape))
        return prim.slice(x, starts=(0,) * len(stops), stops=stops, steps=(1,) * len(stops))
    more = [size - length if d == dim else 0 for d in range(len(x.shape))]
    return build.pad(x, [0] * len(more), more, [0] * len(more))


def _rfft_spec(x: Any, dim: int, norm: str) -> Aval:
    require("rfft", x, "f")
    _check_dims("rfft", x, (dim,))
    _check_norm("rfft", norm)
    shape = tuple(n // 2 + 1 if d == dim else n for d, n in enumerate(x.shape))
    return shape, x.dtype.to_complex()


Primitive(
    "rfft", "The Fourier transform of real x over dim: frequencies 0 .. N/2, the others are their conjugates.", family="heavy", spec=_rfft_spec,
    reference=lambda x, dim, norm: (np.fft.rfft(x.astype("float64"), axis=dim) * factor_of(norm, x.shape[dim])).astype(
        "complex64" if x.dtype == "float32" else "complex128"),
    lower=("extern", "fft"), samples=_samples(True, dim=2, norm="ortho"),
    vjp=lambda ct, out, x, dim, norm: (prim.real(prim.fft(_cut(ct, dim, x.shape[dim]), dims=(dim,), inverse=True, norm=norm)),),
    jvp=lambda tangents, out, x, **p: None if tangents[0] is None else prim.rfft(tangents[0], **p),
    batch=lambda batched, x, dim, norm: prim.rfft(x, dim=dim + 1, norm=norm),
)  # fmt: skip


def _irfft_spec(x: Any, dim: int, size: int, norm: str) -> Aval:
    require("irfft", x, "c")
    _check_norm("irfft", norm)
    if size < 1 or x.shape[dim] != size // 2 + 1:
        raise ValueError(
            f"prim.irfft of {size} elements along dim {dim} takes {size // 2 + 1} frequencies, got {list(x.shape)}"
        )
    return tuple(size if d == dim else n for d, n in enumerate(x.shape)), x.dtype.to_real()


def _irfft_vjp(ct: Any, out: Any, x: Any, dim: int, size: int, norm: str) -> tuple[Any]:
    """Frequencies 1 .. (N - 1) / 2 count twice."""
    half = x.shape[dim]
    frequency = prim.iota(shape=tuple(x.shape), dim=dim, dtype=FLOAT32)
    twice = (frequency > 0.5) & (frequency < half - (0.5 if size % 2 else 1.5))
    gradient = prim.rfft(ct, dim=dim, norm=norm)
    return (build.select(twice, gradient + gradient, gradient),)


def _irfft_samples() -> Samples:
    for size, half in ((6, 4), (5, 3), (1, 1)):
        for dtype in ("complex128", "complex64"):
            x = floats((2, half, 3), 1, dtype=dtype)
            x[:, 0] = x[:, 0].real  # the transform does not read the imaginary part, so it is not differentiated
            if size % 2 == 0:
                x[:, -1] = x[:, -1].real
            yield [x], {"dim": 1, "size": size, "norm": "ortho" if size == 5 else "none"}


Primitive(
    "irfft", "The real x with `size` elements along dim whose `rfft`, divided by `size`, is given, times the factor; the imaginary part of frequency "
    "0 (and N/2) is not read.", family="heavy", spec=_irfft_spec,
    reference=lambda x, dim, size, norm: (np.fft.irfft(x.astype("complex128"), size, axis=dim, norm="forward") * factor_of(norm, size)).astype(
        "float32" if x.dtype == "complex64" else "float64"),
    lower=("extern", "fft"), samples=_irfft_samples, vjp=_irfft_vjp,
    jvp=lambda tangents, out, x, **p: None if tangents[0] is None else prim.irfft(tangents[0], **p),
    batch=lambda batched, x, dim, size, norm: prim.irfft(x, dim=dim + 1, size=size, norm=norm),
)  # fmt: skip
