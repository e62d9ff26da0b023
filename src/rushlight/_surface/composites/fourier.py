"""`torch.fft`: arguments, sizes, dims and norms around the three transforms of the operator table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._engine.core.tensor import Tensor
from rushlight._ops.forms import forms
from rushlight._surface.composites.measures import into
from rushlight._surface.registry import SPACES, composite, function_of
from rushlight._types.layout import wrap_dim
from rushlight._types.promotion import default_dtype

__all__: list[str] = []

T = SPACES["torch"]
FFT = ("fft",)
NORMS = ("forward", "backward", "ortho")


# ***** the three transforms that all others are made of, over dims: rows of the operator table *****


def _forward(x: Any, dims: tuple[int, ...], norm: str, inverse: bool) -> Any:
    """The sum of x exp(-+ 2 pi i ...) of complex x, times a factor."""
    return function_of("fft_c2c")(x, dims, inverse, norm)


def _real_to_half(x: Any, dims: tuple[int, ...], norm: str) -> Any:
    """The half of the forward transform of real x that holds everything."""
    return function_of("fft_r2c")(x, dims, norm)


def _half_to_real(x: Any, dims: tuple[int, ...], size: int, norm: str) -> Any:
    """The inverse transform of such a half, real."""
    return function_of("fft_c2r")(x, dims, size, norm)


def _padded(x: Any, dim: int, size: int) -> Any:
    """Cut, or filled up with zeros, to a size along dim."""
    held = x._spec.shape[dim]
    if held == size:
        return x
    if held > size:
        return x.narrow(dim, 0, size)
    pads = [0, 0] * (x._spec.ndim - dim - 1) + [0, size - held]
    return SPACES["nn.functional"]["pad"](x, pads)


# ***** arguments *****


def _as_float(x: Tensor, want_complex: bool) -> Any:
    if not (x._spec.dtype.is_floating_point or x._spec.dtype.is_complex):
        x = x.to(default_dtype())
    if x._spec.dtype.itemsize < 4:
        raise RuntimeError(f"Unsupported dtype {x._spec.dtype.scalar}")
    return x.to(x._spec.dtype.to_complex()) if want_complex and not x._spec.dtype.is_complex else x


def _factor(norm: str | None, forward: bool) -> str:
    """The factor of the sums, in the form that the operators take."""
    norm = "backward" if norm is None else norm
    if norm not in NORMS:
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    return "ortho" if norm == "ortho" else "mean" if (norm == "forward") == forward else "none"


def _one(x: Tensor, n: int | None, dim: int, name: str) -> tuple[int, int]:
    if not x._spec.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    at = wrap_dim(dim, x._spec.ndim)
    size = x._spec.shape[at] if n is None else n
    if size < 1:
        raise RuntimeError(f"Invalid number of data points ({size}) specified")
    return at, size


def _several(x: Tensor, s: Any, dim: Any) -> tuple[list[int], list[int]]:
    """(dims, sizes) of a transform over several dims."""
    ndim = x._spec.ndim
    if s is not None and isinstance(s, int):
        s = (s,)
    if dim is not None and isinstance(dim, int):
        dim = (dim,)
    if dim is not None:
        dims = [wrap_dim(d, ndim) for d in dim]
        if len(set(dims)) != len(dims):
            raise RuntimeError("FFT dims must be unique")
        if s is not None and len(s) != len(dims):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
    elif s is not None:
        if len(s) > ndim:
            raise RuntimeError(f"Got shape with {len(s)} values but input tensor only has {ndim} dimensions.")
        dims = list(range(ndim - len(s), ndim))
    else:
        dims = list(range(ndim))
    sizes = [x._spec.shape[d] for d in dims]
    if s is not None:
        sizes = [held if v == -1 else int(v) for v, held in zip(s, sizes, strict=True)]
    for size in sizes:
        if size < 1:
            raise RuntimeError(f"Invalid number of data points ({size}) specified")
    return dims, sizes


def _fit(x: Any, dims: Sequence[int], sizes: Sequence[int]) -> Any:
    for d, size in zip(dims, sizes, strict=True):
        x = _padded(x, d, size)
    return x


# ***** one dim *****


def _declare_one(name: str, inverse: bool) -> None:
    def function(
        input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None
    ) -> Tensor:
        x = _as_float(input, True)
        at, size = _one(x, n, dim, name)
        return into(out, _forward(_padded(x, at, size), (at,), _factor(norm, not inverse), inverse), name)

    function.__doc__ = f"The {'inverse ' if inverse else ''}Fourier transform along dim."
    composite(name, spaces=FFT, cached=True)(function)


_declare_one("fft", False)
_declare_one("ifft", True)


def _no_complex(name: str, x: Any) -> None:
    if x._spec.dtype.is_complex:
        found = x._spec.dtype.scalar
        if name == "ihfftn":
            raise RuntimeError(f"Only supports floating-point dtypes, but found: {found}")
        kind = "real-valued" if name == "rfftn" else "real"
        raise RuntimeError(f"{name} expects a {kind} input tensor, but got {found}")


@composite("rfft", spaces=FFT, cached=True)
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The Fourier transform of real numbers along dim: the half that holds everything."""
    _no_complex("rfft", input)
    x = _as_float(input, False)
    at, size = _one(x, n, dim, "rfft")
    return into(out, _real_to_half(_padded(x, at, size), (at,), _factor(norm, True)), "rfft")


def _real_size(x: Any, n: int | None, at: int) -> int:
    size = 2 * (x._spec.shape[at] - 1) if n is None else n
    if size < 1:
        raise RuntimeError(f"Invalid number of data points ({size}) specified")
    return size


@composite("irfft", spaces=FFT, cached=True)
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The inverse of `rfft`: real; n is the size of the result (by default even)."""
    x = _as_float(input, True)
    at, _ = _one(x, None if x._spec.ndim and x._spec.shape[dim] else 1, dim, "irfft")
    size = _real_size(x, n, at)
    return into(out, _half_to_real(_padded(x, at, size // 2 + 1), (at,), size, _factor(norm, False)), "irfft")


@composite("hfft", spaces=FFT, cached=True)
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The Fourier transform of a signal that is Hermitian in time, given by its half: real."""
    x = _as_float(input, True)
    at, _ = _one(x, None if x._spec.ndim and x._spec.shape[dim] else 1, dim, "hfft")
    size = _real_size(x, n, at)
    return into(out, _half_to_real(T["conj"](_padded(x, at, size // 2 + 1)), (at,), size, _factor(norm, True)), "hfft")


@composite("ihfft", spaces=FFT, cached=True)
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Tensor:
    """The inverse of `hfft`."""
    _no_complex("ihfft", input)
    x = _as_float(input, False)
    at, size = _one(x, n, dim, "ihfft")
    return into(out, T["conj"](_real_to_half(_padded(x, at, size), (at,), _factor(norm, False))), "ihfft")


# ***** several dims *****


def _declare_many(name: str, inverse: bool) -> None:
    def function(
        input: Tensor,
        s: int | Sequence[int] | None = None,
        dim: int | Sequence[int] | None = None,
        norm: str | None = None,
        *,
        out: Any = None,
    ) -> Tensor:
        x = _as_float(input, True)
        dims, sizes = _several(x, s, dim)
        if not dims:
            return into(out, x.clone(), "fftn")
        return into(out, _forward(_fit(x, dims, sizes), tuple(dims), _factor(norm, not inverse), inverse), "fftn")

    def plane(
        input: Tensor,
        s: int | Sequence[int] | None = None,
        dim: int | Sequence[int] = (-2, -1),
        norm: str | None = None,
        *,
        out: Any = None,
    ) -> Tensor:
        return function(input, s, dim, norm, out=out)

    function.__doc__ = f"The {'inverse ' if inverse else ''}Fourier transform over dims (all, or the last ones that `s` gives sizes for)."
    plane.__doc__ = f"The {'inverse ' if inverse else ''}Fourier transform over two dims."
    composite(f"{name}n", spaces=FFT, cached=True)(function)
    composite(f"{name}2", spaces=FFT, cached=True)(plane)


_declare_many("fft", False)
_declare_many("ifft", True)


def _some_dims(name: str, dims: list[int]) -> None:
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")


@composite("rfftn", spaces=FFT, cached=True)
def rfftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Any = None,
) -> Tensor:
    """The Fourier transform of real numbers over dims: half of the last."""
    _no_complex("rfftn", input)
    x = _as_float(input, False)
    dims, sizes = _several(x, s, dim)
    _some_dims("rfftn", dims)
    return into(out, _real_to_half(_fit(x, dims, sizes), tuple(dims), _factor(norm, True)), "rfftn")


def _last_sizes(x: Any, s: Any, dim: Any) -> tuple[list[int], list[int], int]:
    """(dims, sizes of the half, size of the last dim of the real result)."""
    dims, sizes = _several(x, s, dim)
    _some_dims("irfftn", dims)
    given = s is not None and (s if isinstance(s, int) else list(s)[-1]) != -1
    last = sizes[-1] if given else 2 * (x._spec.shape[dims[-1]] - 1)
    if last < 1:
        raise RuntimeError(f"Invalid number of data points ({last}) specified")
    return dims, [*sizes[:-1], last // 2 + 1], last


@composite("irfftn", spaces=FFT, cached=True)
def irfftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Any = None,
) -> Tensor:
    """The inverse of `rfftn`."""
    x = _as_float(input, True)
    dims, sizes, last = _last_sizes(x, s, dim)
    return into(out, _half_to_real(_fit(x, dims, sizes), tuple(dims), last, _factor(norm, False)), "irfftn")


@composite("hfftn", spaces=FFT, cached=True)
def hfftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Any = None,
) -> Tensor:
    """The Fourier transform over dims of a signal that is Hermitian in time: real."""
    x = _as_float(input, True)
    dims, sizes, last = _last_sizes(x, s, dim)
    fitted = T["conj"](_fit(x, dims, sizes))
    return into(out, _half_to_real(fitted, tuple(dims), last, _factor(norm, True)), "hfftn")


@composite("ihfftn", spaces=FFT, cached=True)
def ihfftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Any = None,
) -> Tensor:
    """The inverse of `hfftn`."""
    _no_complex("ihfftn", input)
    x = _as_float(input, False)
    dims, sizes = _several(x, s, dim)
    _some_dims("ihfftn", dims)
    return into(
        out, T["conj_physical"](_real_to_half(_fit(x, dims, sizes), tuple(dims), _factor(norm, False))), "ihfftn"
    )


def _plane(name: str) -> None:
    def function(
        input: Tensor,
        s: int | Sequence[int] | None = None,
        dim: int | Sequence[int] = (-2, -1),
        norm: str | None = None,
        *,
        out: Any = None,
    ) -> Tensor:
        return SPACES["fft"][f"{name}n"](input, s, dim, norm, out=out)

    function.__doc__ = f"`{name}n` over two dims."
    composite(f"{name}2", spaces=FFT, cached=True)(function)


for _name in ("rfft", "irfft", "hfft", "ihfft"):
    _plane(_name)

# ***** frequencies *****


def _frequency_options(name: str, options: dict[str, Any], out: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that are given, and those for the row of numbers."""
    settings = {
        k: v for k, v in options.items() if k in ("dtype", "device", "requires_grad", "layout") and v is not None
    }
    dtype = settings.get("dtype", default_dtype() if out is None else out.dtype)
    if not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"{name} requires a floating point or complex dtype")
    if out is not None and dtype is not out.dtype:
        raise RuntimeError(f"dtype {dtype.scalar} does not match dtype of out parameter ({out.dtype.scalar})")
    return settings, {"dtype": dtype, "device": settings.get("device")}


@composite("fftfreq", spaces=FFT, cached=True)
@forms("(n: int, d: float = 1.0, *, **options: Factory) -> Tensor")
def fftfreq(n: int, d: float = 1.0, *, out: Any = None, **options: Any) -> Any:
    """The frequencies of `fft` of n samples at distance d."""
    settings, where = _frequency_options("fftfreq", options, out)
    half = (n + 1) // 2
    places = T["cat"]([T["arange"](0, half, **where), T["arange"](-(n // 2), 0, **where)])
    found = places * _per_sample(n, d)
    return into(out, found.requires_grad_() if settings.get("requires_grad") else found)


def _per_sample(n: int, d: float) -> float:
    """1 / (n d), which is infinite where there are no samples or no distance."""
    return 1.0 / (n * d) if n * d else float("inf")


@composite("rfftfreq", spaces=FFT, cached=True)
@forms("(n: int, d: float = 1.0, *, **options: Factory) -> Tensor")
def rfftfreq(n: int, d: float = 1.0, *, out: Any = None, **options: Any) -> Any:
    """The frequencies of `rfft` of n samples at distance d."""
    settings, where = _frequency_options("rfftfreq", options, out)
    found = T["arange"](n // 2 + 1, **where) * _per_sample(n, d)
    return into(out, found.requires_grad_() if settings.get("requires_grad") else found)


def _shift(name: str, back: bool) -> None:
    def function(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
        ndim = input._spec.ndim
        dims = list(range(ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
        dims = [wrap_dim(d, ndim) for d in dims]
        shifts = [(s + 1) // 2 if back else s // 2 for s in (input._spec.shape[d] for d in dims)]
        if not dims:
            raise RuntimeError(f"{name}(): there is no dim to shift along: `shifts` required")
        return function_of("roll")(input, tuple(shifts), tuple(dims))

    function.__doc__ = f"Frequency 0 moved {'back to the front' if back else 'to the middle'}."
    composite(name, spaces=FFT, cached=True)(function)


_shift("fftshift", False)
_shift("ifftshift", True)
