"""Fourier transforms that PyTorch makes of several operators above autograd."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight.library.aten.composites import aten, to_copy
from rushlight.library.aten.handlers import handles

__all__: list[str] = []


def _way(norm: Any, forward: bool) -> int:
    """The number by which `_fft_*` know how results are scaled: 0 not at all, 1 by 1/sqrt(n), 2 by 1/n."""
    if norm == "ortho":
        return 1
    return (2 if norm == "forward" else 0) if forward else (0 if norm == "forward" else 2)


def _resized(x: Any, dims: list[int], sizes: list[int]) -> Any:
    """A tensor cut, or padded with zeros, to these sizes; -1 leaves a dim as it is."""
    padding = [0] * (2 * x.dim())
    padded = False
    for d, n in zip(dims, sizes, strict=True):
        if n == -1:
            continue
        have = x.shape[d]
        if have < n:
            padded = True
            padding[2 * (x.dim() - 1 - d) + 1] = n - have
        elif have > n:
            x = aten("slice.Tensor")(x, d, 0, n)
    return aten("constant_pad_nd")(x, padding) if padded else x


def _complex(x: Any) -> Any:
    if x.is_complex():
        return x
    kind = (
        rushlight.complex128
        if x.dtype is rushlight.float64
        else rushlight.complex32
        if x.dtype is rushlight.float16
        else rushlight.complex64
    )
    return to_copy(x, dtype=kind)


def _floating(x: Any) -> Any:
    return x if x.is_floating_point() or x.is_complex() else to_copy(x, dtype=rushlight.get_default_dtype())


def _shape_dims(x: Any, s: Any, dim: Any) -> tuple[list[int], list[int]]:
    """The dims of a transform, counted from the front, and their sizes."""
    n = x.dim()
    if dim is not None:
        dims = [d % n for d in ([dim] if isinstance(dim, int) else dim)]
    else:
        dims = list(range(n)) if s is None else list(range(n - len(s), n))
    sizes = (
        [x.shape[d] for d in dims]
        if s is None
        else [x.shape[d] if k == -1 else k for k, d in zip(s, dims, strict=True)]
    )
    return dims, sizes


def _of_one(name: str, transform: Callable[[Any, Any, int, Any], Any]) -> None:
    """Declare a transform over one dim."""

    @handles(f"fft_{name}")
    def one(input: Any, n: Any = None, dim: int = -1, norm: Any = None, *, out: Any = None) -> Any:
        return NotImplemented if out is not None else transform(input, n, dim, norm)


def _of_several(name: str, transform: Callable[[Any, Any, Any, Any], Any]) -> None:
    """Declare a transform over any dims (all unless they are given), and over two."""

    @handles(f"fft_{name}n")
    def several(input: Any, s: Any = None, dim: Any = None, norm: Any = None, *, out: Any = None) -> Any:
        return NotImplemented if out is not None else transform(input, s, dim, norm)

    @handles(f"fft_{name}2")
    def two(input: Any, s: Any = None, dim: Any = (-2, -1), norm: Any = None, *, out: Any = None) -> Any:
        return NotImplemented if out is not None else transform(input, s, dim, norm)


def _fitted(x: Any, n: Any, dim: int) -> tuple[Any, int]:
    """A tensor with n elements along a dim, if n is given, and the dim counted from the front."""
    d = dim % x.dim()
    return x if n is None else _resized(x, [d], [n]), d


def _half(x: Any, n: Any, dim: int) -> tuple[Any, int, int]:
    """Half of the spectrum of n real numbers, the dim counted from the front, and n."""
    d = dim % x.dim()
    n_half = None if n is None else n // 2 + 1
    return *_fitted(x, n_half, d), 2 * (x.shape[d] - 1) if n is None else n


def _halves(input: Any, s: Any, dim: Any) -> tuple[Any, list[int], int]:
    """Half of the spectrum of real numbers over several dims, the dims, and the size of the last of them."""
    dims, sizes = _shape_dims(input, s, dim)
    last = 2 * (input.shape[dims[-1]] - 1) if s is None or s[-1] == -1 else sizes[-1]
    return _resized(_complex(input), dims, [*sizes[:-1], last // 2 + 1]), dims, last


def _fft(input: Any, n: Any, dim: int, norm: Any, forward: bool) -> Any:
    x, d = _fitted(_floating(input), n, dim)
    if x.is_complex():
        return aten("_fft_c2c")(x, [d], _way(norm, forward), forward)
    made = aten("_fft_r2c")(x, [d], _way(norm, forward), False)
    return made if forward else aten("_conj")(made)


def _fftn(input: Any, s: Any, dim: Any, norm: Any, forward: bool) -> Any:
    dims, sizes = _shape_dims(input, s, dim)
    x = _resized(_complex(input), dims, sizes)
    return aten("_fft_c2c")(x, dims, _way(norm, forward), forward) if dims else x


def _rfft(input: Any, n: Any, dim: int, norm: Any) -> Any:
    x, d = _fitted(_floating(input), n, dim)
    return aten("_fft_r2c")(x, [d], _way(norm, True), True)


def _rfftn(input: Any, s: Any, dim: Any, norm: Any) -> Any:
    dims, sizes = _shape_dims(input, s, dim)
    return aten("_fft_r2c")(_resized(_floating(input), dims, sizes), dims, _way(norm, True), True)


def _ihfft(input: Any, n: Any, dim: int, norm: Any) -> Any:
    x, d = _fitted(_floating(input), n, dim)
    return aten("_conj")(aten("_fft_r2c")(x, [d], _way(norm, False), True))


def _ihfftn(input: Any, s: Any, dim: Any, norm: Any) -> Any:
    dims, sizes = _shape_dims(input, s, dim)
    x = _resized(_floating(input), dims, sizes)
    made = aten("_fft_r2c")(x, dims[-1:], _way(norm, False), True)
    if len(dims) == 1:
        return aten("_conj")(made)
    return aten("_fft_c2c")(aten("_conj_physical")(made), dims[:-1], _way(norm, False), False)


def _irfft(input: Any, n: Any, dim: int, norm: Any) -> Any:
    x, d, size = _half(_complex(input), n, dim)
    return aten("_fft_c2r")(x, [d], _way(norm, False), size)


def _irfftn(input: Any, s: Any, dim: Any, norm: Any) -> Any:
    x, dims, last = _halves(input, s, dim)
    return aten("_fft_c2r")(x, dims, _way(norm, False), last)


def _hfft(input: Any, n: Any, dim: int, norm: Any) -> Any:
    x, d, size = _half(_complex(input), n, dim)
    return aten("_fft_c2r")(aten("_conj")(x), [d], _way(norm, True), size)


def _hfftn(input: Any, s: Any, dim: Any, norm: Any) -> Any:
    x, dims, last = _halves(input, s, dim)
    if len(dims) > 1:
        x = aten("_fft_c2c")(x, dims[:-1], _way(norm, True), True)
    return aten("_fft_c2r")(aten("_conj")(x), dims[-1:], _way(norm, True), last)


for _name, _forward in (("fft", True), ("ifft", False)):
    _of_one(_name, functools.partial(_fft, forward=_forward))
    _of_several(_name, functools.partial(_fftn, forward=_forward))
for _name, _one, _many in (
    ("rfft", _rfft, _rfftn), ("ihfft", _ihfft, _ihfftn), ("irfft", _irfft, _irfftn), ("hfft", _hfft, _hfftn),
):  # fmt: skip
    _of_one(_name, _one)
    _of_several(_name, _many)
