"""Draws whose parameters are tensors: `normal`, `poisson`, `binomial`, `multinomial`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._engine.core.convert import deferred
from rushlight._engine.core.creation import as_shape, finish, like_strides, spec_for
from rushlight._engine.core.integers import as_flag, as_int
from rushlight._engine.core.memory import empty_spec
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.out import warn_of_resizing
from rushlight._engine.dispatch.plans.bind import only_tensors
from rushlight._engine.dispatch.plans.native_lookup import RUNS, ran, unwatched
from rushlight._engine.random import random as streams
from rushlight._engine.random import sampling
from rushlight._engine.random.random import Generator
from rushlight._engine.random.sampling import (
    METHODS,
    as_float,
    check_generator,
    fit,
    fresh,
    not_implemented,
    overridable,
    quick,
    recorded,
)
from rushlight._ops.forms import forms
from rushlight._surface.random.random import destination, quickly
from rushlight._surface.registry import composite
from rushlight._types.dtype import FLOAT8, FLOAT32, FLOAT64, INT64, DType
from rushlight._types.layout import broadcast_shapes
from rushlight._types.spec import Spec, check_memory

__all__: list[str] = []

_normal_ = METHODS["normal_"]

_NORMAL = ("mean?", "std?", "size", "generator", "out", "dtype", "layout", "device", "pin_memory", "requires_grad")


@composite("normal", overridable=False, cached=_NORMAL, tensors=0)
@overridable
@forms(
    "(mean: Tensor, std: Tensor | float = 1, *, generator: Generator | None = None, out: Tensor | None = None) -> Tensor",
    "(mean: float, std: Tensor, *, generator: Generator | None = None, out: Tensor | None = None) -> Tensor",
    "(mean: float, std: float, size: Sequence[int], *, **options: Random) -> Tensor",
)
def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Normal numbers: `normal(mean, std)` with tensors (or one tensor and one number) that broadcast, or `normal(mean,
    std, size)`.

    >>> torch.normal(torch.zeros(3), torch.ones(3)).shape
    torch.Size([3])
    """
    check_generator("normal", generator)
    if size is not None or not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        mu, sigma = as_float("normal", "mean", mean), as_float("normal", "std", std)
        if size is None:
            raise TypeError("normal() received an invalid combination of arguments - got two numbers without a size")
        shape = as_shape((size,))
        sampling.check_std(sigma)
        made = (
            empty_spec(spec_for(shape, dtype, device))
            if out is None
            else destination("normal", out, shape, dtype, layout, device)
        )
        with unwatched():
            _normal_(made, mu, sigma, generator=generator)
        if out is not None:
            return made.requires_grad_() if requires_grad else made
        if RUNS.now is not None and quickly(made, generator):
            ran(quick("normal", made._spec, mu, sigma), (), made)
        return finish(made, requires_grad)
    if isinstance(std, Tensor):
        _check_std_tensor(std)
    else:
        std = as_float("normal", "std", std)
        sampling.check_std(std)
    return _normal_of(mean, std, generator, out)


def _check_std_tensor(std: Any) -> None:
    if std.dtype.is_complex:
        raise RuntimeError("normal expects standard deviation to be non-complex")
    if deferred(std, lambda x: x.lt(0).logical_or(x.isnan())):
        return
    if std._spec.numel and std._storage is not None and not std.detach().min().ge(0).item():
        raise RuntimeError("normal expects all elements of std >= 0.0")


def _are_no_weights(x: Any) -> Any:
    """Whether weights of `multinomial` are negative or not finite, or their sum is not positive."""
    wrong = x.lt(0).logical_or(x.isfinite().logical_not())
    return wrong.any().logical_or(x.sum(-1).le(0).any())


def _normal_of(mean: Any, std: Any, generator: Generator | None, out: Tensor | None) -> Tensor:
    """Standard numbers first, then scaled and shifted in place, as PyTorch rounds."""
    first = mean if isinstance(mean, Tensor) else std
    other = std if isinstance(std, Tensor) and first is mean else None
    shape = first._spec.shape if other is None else _common_shape(first._spec.shape, other._spec.shape)
    node = f"NormalBackward{1 if other is None and first is mean else 3 if other is not None else 2}"
    made: Any = fresh(first._spec.dtype, first._spec.device, tuple(shape)) if out is None else out
    if out is not None and tuple(out._spec.shape) != tuple(shape):
        warn_of_resizing(out, shape)
        fit(out, shape)
    before = STATE.word
    STATE.word = before & ~GRAD
    try:
        numbers: Any = _normal_(made, 0.0, 1.0 if isinstance(std, Tensor) else std, generator=generator)
        if isinstance(std, Tensor):
            numbers.mul_(std.detach())
        numbers.add_(mean.detach() if isinstance(mean, Tensor) else mean)
    finally:
        STATE.word = before
    return made if out is not None else recorded(made, node, mean, std)


def _common_shape(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return broadcast_shapes(tuple(a), tuple(b))


@composite("poisson", overridable=False)
@overridable
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Counts with the elements of `input` as rates.  RuntimeError for a negative rate.

    >>> torch.poisson(torch.zeros(2))
    tensor([0., 0.])
    """
    spec = input._spec
    generator = check_generator("poisson", generator, spec.device)
    if not spec.dtype.is_floating_point or spec.dtype in FLOAT8:
        raise not_implemented("poisson_cpu", spec.dtype)
    check_memory(spec)
    made = fresh(spec.dtype, spec.device, spec.shape)
    if made._storage is not None and spec.numel:
        rates = input.detach().to(FLOAT64).contiguous()
        if not streams.fill_poisson(generator, made._ptr, spec.numel, spec.dtype, rates._ptr):
            raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    return recorded(made, "PoissonBackward0", input)


@composite("binomial", overridable=False)
@overridable
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Successes in `count` trials (a float tensor of whole numbers), each with the chance `prob`; shaped like `count`.

    >>> torch.binomial(torch.tensor([4.0]), torch.tensor([1.0]))
    tensor([4.])
    """
    spec = count._spec
    generator = check_generator("binomial", generator, spec.device)
    if spec.dtype is not prob._spec.dtype:
        raise RuntimeError(f"Found dtype {prob._spec.dtype.scalar} but expected {spec.dtype.scalar}")
    if not spec.dtype.is_floating_point:
        raise ValueError(f"binomial only supports floating-point dtypes for count, got: {spec.dtype.scalar}")
    if spec.dtype not in (FLOAT32, FLOAT64):
        raise not_implemented("binomial_cpu", spec.dtype)
    check_memory(spec, prob._spec)
    made = fresh(spec.dtype, spec.device, spec.shape)
    if made._storage is not None and spec.numel:
        counts: Any = count.detach().contiguous()
        chances: Any = prob.detach().expand(spec.shape).contiguous()
        streams.fill_binomial(generator, made._ptr, spec.numel, spec.dtype, counts._ptr, chances._ptr)
    return recorded(made, "BinomialBackward0", count, prob)


@composite("multinomial", method=True, overridable=False)
@overridable
def multinomial(
    input: Tensor,
    num_samples: Any,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Indices drawn with the elements of each row of `input` ([n] or [rows, n]) as weights; int64 [num_samples] or
    [rows, num_samples].

    RuntimeError for weights that are negative, infinite or NaN, for a row without weight, and for more samples than
    categories without replacement.

        >>> torch.multinomial(torch.tensor([0.0, 1.0]), 1)
        tensor([1])
    """
    generator = check_generator("multinomial", generator, input.device if isinstance(input, Tensor) else None)
    samples = as_int("multinomial", "num_samples", num_samples)
    as_flag("multinomial", "replacement", replacement)
    shape = _check_multinomial(input, samples, replacement, out)
    made = fresh(INT64, input._spec.device, shape)
    if made._storage is not None and made._spec.numel:
        _draw_categories(input, samples, replacement, generator, made)
    if out is None:
        return made
    fit(out, shape)
    out.copy_(made)
    return out


def _check_multinomial(input: Any, samples: int, replacement: bool, out: Any) -> tuple[int, ...]:
    """The shape of the result."""
    only_tensors("multinomial", input=input)
    shape = input._spec.shape
    if not 0 < len(shape) <= 2:
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not input._spec.dtype.is_floating_point:
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: {input._spec.dtype.scalar}"
        )
    if out is not None and out._spec.dtype is not INT64:
        raise RuntimeError(f"multinomial expects Long tensor out, got: {out._spec.dtype.scalar}")
    if samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and samples > shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if shape[-1] > 1 << 24:
        raise RuntimeError("number of categories cannot exceed 2^24")
    return (*shape[:-1], samples)


def _draw_categories(input: Any, samples: int, replacement: bool, generator: Generator | None, made: Tensor) -> None:
    """Fill `made`, contiguous, with indices."""
    spec = input._spec
    check_memory(spec)
    categories = spec.shape[-1]
    rows = spec.shape[0] if spec.ndim == 2 else 1
    dtype = FLOAT64 if spec.dtype is FLOAT64 else FLOAT32
    weights = (
        input if spec.contiguous and not spec.conj and spec.dtype is dtype else input.detach().to(dtype).contiguous()
    )
    samples_apart = False  # whether a single sample too is drawn in the way of several
    replacement = replacement and samples > 1  # a single sample is drawn in the way that puts nothing back
    if not replacement and categories and deferred(weights, _are_no_weights):
        status, samples_apart = 0, True
    elif replacement:
        status = streams.fill_multinomial(generator, made._ptr, weights._ptr, dtype, rows, categories, samples)
    elif samples == 1 and weights is input:
        status = streams.fill_choice(generator, made._ptr, weights._ptr, dtype, rows, categories)
    else:
        status = streams.weights_status(generator, weights._ptr, dtype, rows, categories)
    if status == 1:
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if status == 2 or not categories:
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    if replacement or samples == 1 and weights is input and not samples_apart:
        return
    # the smallest of exponential numbers with these rates comes from each with the right chance; so do the k smallest
    times: Any = empty_spec(Spec.of(spec.dtype, spec.device, spec.shape, like_strides(input, None)))
    METHODS["exponential_"](times, 1.0, generator=generator)
    keys = input.detach() / times
    found = keys.argmax(-1, keepdim=True) if samples == 1 else keys.topk(samples)[1]
    made.copy_(found)
