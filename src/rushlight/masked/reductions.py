"""Reductions and normalisations that leave elements out: where the mask is False, an element counts as if it were not
there.

>>> import rushlight as torch
>>> x, mask = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True])
>>> torch.masked.sum(x, mask=mask)
tensor(4.)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import get_default_dtype as default_dtype
from rushlight.masked.masked_tensor import MaskedTensor, payload_of

__all__ = [
    "all", "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median", "norm",
    "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip


def accepts_masked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a MaskedTensor is that of its elements under its own mask, as a plain tensor."""

    @functools.wraps(function)
    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(input, MaskedTensor):
            if input.is_sparse:
                raise TypeError(f"{function.__name__}(): MaskedTensor is {input.layout}; call to_dense() first")
            kwargs["mask"], input = input.get_mask(), payload_of(input)
        return function(input, *args, **kwargs)

    return call


def _dims(input: Any, dim: Any) -> tuple[int, ...]:
    """All dims for None and (), else the dims given, wrapped."""
    ndim = input.dim()
    if dim is None or dim == ():
        return tuple(range(ndim))
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    wrapped = []
    for d in dims:
        bound = max(ndim, 1)
        if not -bound <= d < bound:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {d})"
            )
        wrapped.append(d % bound)
    if len(set(wrapped)) != len(wrapped):
        raise RuntimeError(f"dim={d % bound} appears multiple times in the list of dims")
    return tuple(wrapped)


def _filled(input: Any, mask: Any, value: Any) -> Any:
    """`input` with `value` where the mask is False."""
    if mask is None:
        return input
    if mask.dim() > input.dim():
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    return rushlight.where(_mask_like(input, mask), input, rushlight.tensor(value, dtype=input.dtype))


def _mask_like(input: Any, mask: Any) -> Any:
    """The mask as bools in the shape of the input."""
    if mask.shape != input.shape:
        mask = mask.clone().expand(input.shape)
    return mask.bool()


def _sum_and_count(input: Any, mask: Any, dims: Any, keepdim: bool, dtype: Any) -> tuple[Any, Any]:
    """The sum of the elements that count, and how many they are."""
    if mask is None:
        ones = rushlight.ones(input.shape, dtype=rushlight.int64, device=input.device)
        count = rushlight.sum(ones, dims, keepdim)
        return rushlight.sum(input, dims, keepdim, dtype=dtype), count
    mask = _mask_like(input, mask)
    count = mask.sum(dims, keepdim)
    return rushlight.sum(_filled(input.to(dtype), mask, 0), dims, keepdim), count


def _summed_dtype(input: Any, dtype: Any) -> Any:
    if dtype is not None:
        return dtype
    return rushlight.int64 if not (input.is_floating_point() or input.is_complex()) else input.dtype


def _least(dtype: Any) -> Any:
    if dtype.is_floating_point:
        return -math.inf
    return (
        False
        if dtype is rushlight.bool
        else -(1 << (8 * dtype.itemsize - 1))
        if dtype.is_signed or dtype.kind == "i"
        else 0
    )


def _greatest(dtype: Any) -> Any:
    if dtype.is_floating_point:
        return math.inf
    return True if dtype is rushlight.bool else (1 << (8 * dtype.itemsize - (dtype.kind == "i"))) - 1


# ***** reductions *****


@accepts_masked
def sum(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """Sum of the elements that count."""
    x = input.to(_summed_dtype(input, dtype))
    return rushlight.sum(_filled(x, mask, 0), _dims(x, dim), keepdim)


@accepts_masked
def prod(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """Product of the elements that count."""
    x = _filled(input.to(_summed_dtype(input, dtype)), mask, 1)
    dims = _dims(input, dim)
    for d in sorted(dims, reverse=True):
        x = x.prod(d, keepdim)
    return x


def _check_identity(name: str, x: Any, mask: Any) -> None:
    if mask is not None and x.dtype is rushlight.bool:
        raise NotImplementedError(f"{name}(): no bool stands for an element that does not count")


def _extreme(name: str, value_of: Callable[[Any], Any], doc: str) -> Callable[..., Any]:
    def function(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
        x = input if dtype is None else input.to(dtype)
        _check_identity(name, x, mask)
        return getattr(rushlight, name)(_filled(x, mask, value_of(x.dtype)), _dims(x, dim), keepdim)

    function.__name__, function.__doc__ = name, doc
    return accepts_masked(function)


amax = _extreme("amax", _least, "The greatest of the elements that count.")
amin = _extreme("amin", _greatest, "The least of the elements that count.")


@accepts_masked
def argmax(input: Any, dim: int | None = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """Where the greatest of the elements that count stands, in the dtype of the input as PyTorch has it."""
    x = input if dtype is None else input.to(dtype)
    _check_identity("argmax", x, mask)
    return rushlight.argmax(_filled(x, mask, _least(x.dtype)), dim, bool(keepdim)).to(x.dtype)


@accepts_masked
def argmin(input: Any, dim: int | None = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """Where the least of the elements that count stands, in the dtype of the input as PyTorch has it."""
    x = input if dtype is None else input.to(dtype)
    _check_identity("argmin", x, mask)
    return rushlight.argmin(_filled(x, mask, _greatest(x.dtype)), dim, bool(keepdim)).to(x.dtype)


def _mean_dtype(input: Any, dtype: Any) -> Any:
    if dtype is not None:
        return dtype
    return input.dtype if input.is_floating_point() or input.is_complex() else default_dtype()


@accepts_masked
def mean(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """Mean of the elements that count; NaN where none does."""
    kind = input.dtype if dtype is None else dtype
    if not (kind.is_floating_point or kind.is_complex):
        raise ValueError(f"mean(): input or dtype must be floating point or complex, not {kind}")
    total, count = _sum_and_count(input, mask, _dims(input, dim), keepdim, kind)
    return total / count


@accepts_masked
def median(input: Any, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """The middle of the elements that count (the lower of two)."""
    x = input if dtype is None else input.to(dtype)
    (at,) = _dims(x, dim) or (0,)
    if x.is_floating_point():
        return rushlight.nanmedian(_filled(x, mask, math.nan), at, keepdim).values
    if mask is None:
        return rushlight.median(x, at, keepdim).values
    # No integer is NaN: what does not count goes to the end instead.
    row = x.to(rushlight.uint8) if x.dtype is rushlight.bool else x
    row = _filled(row, mask, _greatest(row.dtype)).sort(at).values
    count = _mask_like(row, mask).sum((at,), True)
    middle = (count - 1).clamp(min=0) // 2
    found = row.gather(at, middle).to(x.dtype)
    return found if keepdim else found.squeeze(at)


@accepts_masked
def logsumexp(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """log of the sum of exponentials of the elements that count.

    Among integers the least of the dtype stands for the others, as in PyTorch: in uint8 that is 0, and e^0 = 1 does
    count.
    """
    _check_identity("logsumexp", input, mask)
    whole = not (input.is_floating_point() or input.is_complex())
    x = _filled(input, mask, _least(input.dtype) if whole else -math.inf).to(_mean_dtype(input, dtype))
    return rushlight.logsumexp(x, _dims(x, dim), keepdim).to(input.dtype if dtype is None else dtype)


@accepts_masked
def norm(
    input: Any, ord: float | None = 2.0, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Any:
    """The vector norm of the elements that count."""
    x = input if dtype is None else input.to(dtype)
    order = 2.0 if ord is None else ord
    fill = math.inf if order == -math.inf else 0
    return rushlight.linalg.vector_norm(_filled(x, mask, fill), order, _dims(x, dim), keepdim, dtype=dtype)


def _spread(input: Any, dim: Any, unbiased: Any, keepdim: bool, dtype: Any, mask: Any, correction: Any) -> Any:
    if input.dtype is rushlight.bool:
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported.")
    x = input.to(_mean_dtype(input, dtype))
    dims = _dims(x, dim)
    less = correction if correction is not None else 1 if unbiased is None or unbiased else 0
    mask = None if mask is None else _mask_like(x, mask)
    total, count = _sum_and_count(x, mask, dims, True, x.dtype)
    apart = x - total / count
    square = apart * apart.conj()
    total = rushlight.sum(_filled(square, mask, 0), dims, keepdim)
    if not keepdim:
        count = count.reshape(total.shape)
    if less:
        count = count.to(x.dtype.to_real()) - less
        count = rushlight.maximum(count, count.new_zeros([]))
    return total / count  # of a complex tensor it is complex too, as PyTorch has it


@accepts_masked
def var(
    input: Any,
    dim: Any = None,
    unbiased: bool | None = None,
    *,
    correction: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    """Variance of the elements that count."""
    return _spread(input, dim, unbiased, keepdim, dtype, mask, correction)


@accepts_masked
def std(
    input: Any,
    dim: Any = None,
    unbiased: bool | None = None,
    *,
    correction: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Any:
    """Standard deviation of the elements that count."""
    return rushlight.sqrt(_spread(input, dim, unbiased, keepdim, dtype, mask, correction))


def all(input: Any, dim: Any = None, *, keepdim: bool = False, mask: Any = None) -> Any:
    """Whether every element that counts is true."""
    truth = _filled(input.bool(), mask, True)
    return truth.all() if dim is None else truth.all(dim, keepdim)


# ***** element by element, along a dim *****


def _of_floats(name: str, input: Any, dtype: Any) -> Any:
    x = input if dtype is None else input.to(dtype)
    if not (x.is_floating_point() or x.is_complex()):
        raise NotImplementedError(f"{name}(): not implemented for {x.dtype}; give a floating point dtype")
    return x


def _running(name: str, input: Any, dtype: Any) -> Any:
    if (input.dtype if dtype is None else dtype) is rushlight.bool:
        raise NotImplementedError(f"{name}(): not implemented for torch.bool; give another dtype")
    return input.dtype if dtype is None else dtype


@accepts_masked
def cumsum(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Running sum of the elements that count."""
    return rushlight.cumsum(_filled(input, mask, 0), dim, dtype=_running("cumsum", input, dtype))


@accepts_masked
def cumprod(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Running product of the elements that count."""
    return rushlight.cumprod(_filled(input, mask, 1), dim, dtype=_running("cumprod", input, dtype))


@accepts_masked
def softmax(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """softmax over the elements that count; 0 at the others."""
    return rushlight.softmax(_filled(_of_floats("softmax", input, dtype), mask, -math.inf), dim)


@accepts_masked
def log_softmax(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """log of `softmax`."""
    return rushlight.log_softmax(_filled(_of_floats("log_softmax", input, dtype), mask, -math.inf), dim)


@accepts_masked
def softmin(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """softmax of the negatives."""
    return rushlight.softmax(-_filled(_of_floats("softmin", input, dtype), mask, math.inf), dim)


@accepts_masked
def normalize(input: Any, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Any = None) -> Any:
    """The elements that count divided by their norm (not below eps)."""
    x = input if dtype is None else input.to(dtype)
    size = norm(x, ord, dim, keepdim=True, mask=mask)
    return _filled(x, mask, 0) / rushlight.maximum(size, size.new_full([], eps))


def logaddexp(input: Any, other: Any, *, dtype: Any = None, input_mask: Any = None, other_mask: Any = None) -> Any:
    """log(exp(input) + exp(other)), each counting where its mask says so."""
    a, b = _of_floats("logaddexp", input, dtype), _of_floats("logaddexp", other, dtype)
    return rushlight.logaddexp(_filled(a, input_mask, -math.inf), _filled(b, other_mask, -math.inf))
