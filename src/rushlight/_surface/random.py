"""Functions that make random tensors: `rand`, `randn`, `randint`, `randperm`, `normal`, `multinomial`, `poisson`, `_like` forms, dropouts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._engine import random as streams
from rushlight._engine import sampling
from rushlight._engine.call import OVERRIDE
from rushlight._engine.creation import as_shape, finish, like_strides, spec_for
from rushlight._engine.fast import RUNS, ran, unwatched
from rushlight._engine.integers import as_int
from rushlight._engine.memory import empty_spec, zeros_spec
from rushlight._engine.random import Generator
from rushlight._engine.sampling import (
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
from rushlight._engine.state import FUNCTION_MODE, GRAD, INFERENCE, STATE, TRANSFORMS, VMAP, new_plan_table
from rushlight._engine.tensor import Tensor, plain_classes
from rushlight._ops.forms import forms
from rushlight._surface.registry import SPACES, composite
from rushlight._types.device import CPU, as_device
from rushlight._types.dtype import BOOL, FLOAT16, FLOAT32, FLOAT64, INT64, DType
from rushlight._types.layout import broadcast_shapes
from rushlight._types.spec import Spec

__all__: list[str] = []

_WRITING = ("uniform_", "normal_", "log_normal_", "exponential_", "cauchy_", "geometric_")  # numbers for a whole tensor, nothing else
for _name, _method in METHODS.items():
    _code = _method.__wrapped__.__code__  # type: ignore[attr-defined]
    _learns = _code.co_varnames[: _code.co_argcount + _code.co_kwonlyargcount] if _name in _WRITING else ()
    composite(_name, spaces=("torch",) if _name == "bernoulli" else (), method=True, overridable=False, learns=_learns)(_method)

_normal_, _uniform_ = METHODS["normal_"], METHODS["uniform_"]


# ***** filled tensors *****


def _layout(name: str, layout: Any) -> None:
    if layout is not None and getattr(layout, "name", "strided") != "strided" and not str(layout).endswith("strided"):
        raise NotImplementedError(f"rushlight has no layout {layout!r} yet ({name})")


def _shape(name: str, size: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """The size given as loose ints, as one sequence, or as `size=`."""
    if not size:
        if "size" not in kwargs:
            raise TypeError(f"{name}() received an invalid combination of arguments - got (), but expected a size")
        size = (kwargs.pop("size"),)
    if len(size) > 1 and any(isinstance(s, (tuple, list)) for s in size):
        raise TypeError(
            f"{name}() received an invalid combination of arguments: one tuple of ints, or ints, make a size"
        )
    first = size[0]
    if type(first) is not int and (
        isinstance(first, (float, str, complex)) or not hasattr(first, "__index__") and not hasattr(first, "__len__")
    ):
        raise TypeError(f"{name}(): argument 'size' (position 1) must be tuple of ints, not {type(first).__name__}")
    return as_shape(size)


def _destination(name: str, out: Tensor, shape: Sequence[int], dtype: DType | None) -> Tensor:
    """`out`, checked and resized."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if dtype is not None and dtype is not out._spec.dtype:
        raise RuntimeError(
            f"dtype {dtype.scalar} does not match dtype of out parameter ({out._spec.dtype.scalar})"
        )
    fit(out, shape)
    return out


def _filled(name: str, kernel: str, method: Callable[..., Tensor], fill: Callable[..., None], doc: str) -> None:
    """A factory `name(*size, generator=None, out=None, dtype=None, ...)`; `fill` is the quick way for float dtypes."""
    plans = new_plan_table()
    state = STATE

    def full(
        *size: Any, generator: Generator | None = None, out: Tensor | None = None, dtype: DType | None = None, layout: Any = None,
        device: Any = None, requires_grad: bool = False, pin_memory: bool = False, names: Any = None, **kwargs: Any,
    ) -> Tensor:  # fmt: skip
        check_generator(name, generator)
        shape = _shape(name, size, kwargs)
        if kwargs or names is not None:
            raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(kwargs), 'names')}'")
        _layout(name, layout)
        if out is not None:
            return method(_destination(name, out, shape, dtype), generator=generator)
        spec = spec_for(shape, dtype, device)
        made = empty_spec(spec)
        if spec.dtype.is_floating_point:
            if made._storage is not None and spec.numel:
                fill(generator, made._ptr, spec.numel, spec.dtype)
        else:
            method(made, generator=generator)
        return made if not requires_grad and not state.word & INFERENCE else finish(made, requires_grad)

    @forms("(*size: int, **options: Random) -> Tensor", "(size: Sequence[int], *, **options: Random) -> Tensor")
    def factory(*size: Any, **kwargs: Any) -> Tensor:
        if kwargs or not size or state.word & (INFERENCE | FUNCTION_MODE | VMAP):
            return _slowly(factory, full, size, kwargs)  # type: ignore[no-any-return]
        key = size[0] if len(size) == 1 and isinstance(size[0], tuple) else size
        for n in key:
            if type(n) is not int:  # 2.0 equals 2 as a key, but is no size
                return full(*size)
        plan = plans.get(key)
        if plan is not None:
            return plan()  # type: ignore[no-any-return]
        made = full(*size)
        spec = made._spec
        if spec.numel and spec.dtype.is_floating_point:
            plans[key] = quick(kernel, spec, 0.0, 1.0)
        return made

    factory.__doc__ = doc
    composite(name, overridable=False)(_named(factory, name))


def _slowly(shown: Callable[..., Any], function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A factory's call where somebody may have a say: a mode, a batch."""
    if STATE.word & FUNCTION_MODE:
        handled, made = OVERRIDE[0](shown, args, kwargs)
        if handled:
            return made
    return TRANSFORMS["draw"](shown, args, kwargs) if STATE.word & VMAP else function(*args, **kwargs)


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    return function


_filled(
    "rand",
    "uniform",
    _uniform_,
    streams.fill_uniform,
    """Uniform numbers from [0, 1).

    `rand(*size, *, generator=None, out=None, dtype=None, device=None, requires_grad=False)`; the default float dtype unless given.

        >>> torch.rand(2, 3).shape
        torch.Size([2, 3])
    """,
)
_filled(
    "randn",
    "normal",
    _normal_,
    streams.fill_normal,
    """Standard normal numbers.

    `randn(*size, *, generator=None, out=None, dtype=None, device=None, requires_grad=False)`; the default float dtype unless given.

        >>> torch.randn(2, 3).shape
        torch.Size([2, 3])
    """,
)


def _like(name: str, kernel: str, method: Callable[..., Tensor]) -> None:
    @overridable
    def factory(
        input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
        memory_format: Any = None, generator: Generator | None = None,
    ) -> Tensor:  # fmt: skip
        made = _empty_like(name, input, dtype, device, memory_format)
        with unwatched():
            method(made, generator=generator)
        if RUNS.now is not None and _quickly(made, generator):
            ran(quick(kernel, made._spec, 0.0, 1.0), (), made)
        return finish(made, requires_grad)

    factory.__doc__ = f"`{name.removesuffix('_like')}` with the shape, dtype, device and memory order of `input` unless they are given."
    learns = ("input", "dtype", "layout", "device", "requires_grad", "pin_memory", "memory_format", "generator")
    composite(name, overridable=False, learns=learns)(_named(factory, name))


def _quickly(made: Tensor, generator: Any) -> bool:
    """Whether a plan (see `sampling.quick`) can make the next tensor like this one."""
    spec = made._spec
    plain = generator is None and spec.contiguous and spec.numel and spec.dtype.is_floating_point and made._storage is not None
    return bool(plain and not STATE.word & VMAP)


def _empty_like(name: str, input: Any, dtype: Any, device: Any, memory_format: Any) -> Tensor:
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    return empty_spec(
        spec_for(tuple(input.shape), dtype or input.dtype, device or input.device, like_strides(input, memory_format))
    )


_like("rand_like", "uniform", _uniform_)
_like("randn_like", "normal", _normal_)


# ***** integers *****


def _bounds(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int, tuple[Any, ...]]:
    """(low, high, rest) of `(high, ...)`, `(low, high, ...)` and their keywords."""
    given = list(args)
    low = kwargs.pop("low", None)
    high = kwargs.pop("high", None)
    numbers = 0
    while numbers < min(len(given), 2) and not isinstance(given[numbers], (tuple, list)):
        numbers += 1
    values = given[:numbers]
    if low is None and (high is not None or len(values) == 2):
        low = values.pop(0) if values else 0
    if high is None:
        if not values:
            raise TypeError(f'{name}() missing 1 required argument: "high"')
        high = values.pop(0)
    if values:
        raise TypeError(f"{name}() received an invalid combination of arguments")
    return as_int(name, "low", 0 if low is None else low), as_int(name, "high", high), tuple(given[numbers:])


_RANDINTS = new_plan_table()


@composite("randint", overridable=False)
@forms(
    "(high: int, size: Sequence[int], *, **options: Random) -> Tensor",
    "(low: int, high: int, size: Sequence[int], *, **options: Random) -> Tensor",
)
def randint(*args: Any, **kwargs: Any) -> Tensor:
    """Integers from [low, high): `randint(low=0, high, size, *, generator=None, out=None, dtype=torch.int64, ...)`.

    RuntimeError if low >= high or the dtype cannot hold the bounds.

        >>> torch.randint(10, (2,)).dtype
        torch.int64
    """
    if kwargs or not args or type(args[-1]) is not tuple or STATE.word & (INFERENCE | FUNCTION_MODE | VMAP):
        return _slowly(randint, lambda *args, **kwargs: _randint(args, **kwargs), args, kwargs)  # type: ignore[no-any-return]
    for n in (*args[:-1], *args[-1]):
        if type(n) is not int:  # 2.0 equals 2 as a key, but is no bound
            return _randint(args)
    plan = _RANDINTS.get(args)
    if plan is not None:
        return plan()  # type: ignore[no-any-return]
    made = _randint(args)
    if made._spec.numel and made._spec.device is CPU:
        _RANDINTS[args] = quick(
            "integers", made._spec, *streams.integer_parameters(args[-3] if len(args) == 3 else 0, args[-2])
        )
    return made


def _randint(
    args: tuple[Any, ...], generator: Generator | None = None, out: Tensor | None = None, dtype: DType | None = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False, **kwargs: Any,
) -> Tensor:  # fmt: skip
    check_generator("randint", generator)
    low, high, rest = _bounds("randint", args, kwargs)
    size = kwargs.pop("size", rest[0] if rest else None)
    if kwargs or len(rest) > 1:
        raise TypeError(f"randint() got an unexpected argument {next(iter(kwargs), rest[1:])!r}")
    if not isinstance(size, (tuple, list)) and not (isinstance(size, Tensor) and size.ndim):
        raise TypeError(f"randint(): argument 'size' must be tuple of ints, not {type(size).__name__}")
    _layout("randint", layout)
    shape = as_shape((size,))
    if out is not None:
        made = _destination("randint", out, shape, dtype)
    else:
        if requires_grad and not (dtype is not None and (dtype.is_floating_point or dtype.is_complex)):
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        made = (
            fresh(INT64, CPU, shape)
            if dtype is None and device is None and as_device(None) is CPU
            else empty_spec(spec_for(shape, dtype or INT64, device))
        )
    METHODS["random_"](made, low, high, generator=generator)
    return made if out is not None else finish(made, requires_grad)


@composite("randint_like", overridable=False)
@overridable
@forms(
    "(input: Tensor, high: int, *, memory_format: memory_format | None = None, **options: Like) -> Tensor",
    "(input: Tensor, low: int, high: int, *, memory_format: memory_format | None = None, **options: Like) -> Tensor",
)
def randint_like(
    input: Tensor, *args: Any, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
    memory_format: Any = None, generator: Generator | None = None, **kwargs: Any,
) -> Tensor:  # fmt: skip
    """`randint` with the shape, dtype, device and memory order of `input` unless they are given."""
    low, high, rest = _bounds("randint_like", args, kwargs)
    if kwargs or rest:
        raise TypeError(f"randint_like() got an unexpected argument {next(iter(kwargs), rest)!r}")
    made = _empty_like("randint_like", input, dtype, device, memory_format)
    METHODS["random_"](made, low, high, generator=generator)
    return finish(made, requires_grad)


_RANDPERMS = new_plan_table()


@composite("randperm", overridable=False)
@forms("(n: int, *, **options: Random) -> Tensor")
def randperm(n: Any, **kwargs: Any) -> Tensor:
    """A random permutation of 0 .. n-1: `randperm(n, *, generator=None, out=None, dtype=torch.int64, ...)`.

    >>> sorted(torch.randperm(4).tolist())
    [0, 1, 2, 3]
    """
    if kwargs or type(n) is not int or STATE.word & (INFERENCE | FUNCTION_MODE | VMAP):
        return _slowly(randperm, _randperm, (n,), kwargs)  # type: ignore[no-any-return]
    plan = _RANDPERMS.get(n)
    if plan is None:
        if n <= 0 or as_device(None) is not CPU:
            return _randperm(n)
        plan = _RANDPERMS[n] = quick("permutation", Spec.of(INT64, CPU, (n,)))
    return plan()  # type: ignore[no-any-return]


def _randperm(
    n: Any, generator: Generator | None = None, out: Tensor | None = None, dtype: DType | None = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    check_generator("randperm", generator)
    _layout("randperm", layout)
    n = as_int("randperm", "n", n)
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    if out is not None:
        made = _destination("randperm", out, (n,), dtype)
    else:
        made = (
            fresh(INT64, CPU, (n,))
            if dtype is None and device is None and as_device(None) is CPU
            else empty_spec(spec_for((n,), dtype or INT64, device))
        )
    kind = made._spec.dtype
    if kind is BOOL or kind.is_complex or kind.name in ("uint16", "uint32", "uint64"):
        raise not_implemented("randperm", kind)
    _check_fits(n, kind)

    def fill(address: int, count: int, dtype: DType, _: bool) -> None:
        streams.fill_permutation(generator, address, count, dtype)

    sampling.write_random(made, "RandpermBackward0", fill)
    return made if out is not None else finish(made, requires_grad)


def _check_fits(n: int, dtype: DType) -> None:
    if dtype is FLOAT16 and n > 2049:
        raise RuntimeError("n cannot be greater than 2049 for Half type.")
    if not dtype.is_floating_point and n > 0 and n - 1 > (1 << dtype.itemsize * 8 - dtype.is_signed) - 1:
        raise RuntimeError(f"value cannot be converted to type {dtype.name}_t without overflow")


# ***** distributions with tensors as parameters *****


_NORMAL = ("mean?", "std?", "size", "generator", "out", "dtype", "layout", "device", "pin_memory", "requires_grad")


@composite("normal", overridable=False, learns=_NORMAL, tensors=0)
@overridable
@forms(
    "(mean: Tensor, std: Tensor | float = 1, *, generator: Generator | None = None, out: Tensor | None = None) -> Tensor",
    "(mean: float, std: Tensor, *, generator: Generator | None = None, out: Tensor | None = None) -> Tensor",
    "(mean: float, std: float, size: Sequence[int], *, **options: Random) -> Tensor",
)
def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None, out: Tensor | None = None, dtype: DType | None = None,
    layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Normal numbers: `normal(mean, std)` with tensors (or one tensor and one number) that broadcast, or `normal(mean, std, size)`.

    >>> torch.normal(torch.zeros(3), torch.ones(3)).shape
    torch.Size([3])
    """
    check_generator("normal", generator)
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        mu, sigma = as_float("normal", "mean", mean), as_float("normal", "std", std)
        if size is None:
            raise TypeError("normal() received an invalid combination of arguments - got two numbers without a size")
        shape = as_shape((size,))
        sampling.check_std(sigma)
        made = (
            _destination("normal", out, shape, dtype) if out is not None else empty_spec(spec_for(shape, dtype, device))
        )
        with unwatched():
            _normal_(made, mu, sigma, generator=generator)
        if out is not None:
            return made
        if RUNS.now is not None and _quickly(made, generator):
            ran(quick("normal", made._spec, mu, sigma), (), made)
        return finish(made, requires_grad)
    if size is not None:
        raise TypeError("normal() received an invalid combination of arguments: a size is given with two numbers only")
    if isinstance(std, Tensor):
        _check_std_tensor(std)
    else:
        std = as_float("normal", "std", std)
        sampling.check_std(std)
    return _normal_of(mean, std, generator, out)


def _check_std_tensor(std: Any) -> None:
    if std.dtype.is_complex:
        raise RuntimeError("normal expects standard deviation to be non-complex")
    if std._spec.numel and std._storage is not None and not std.detach().min().ge(0).item():
        raise RuntimeError("normal expects all elements of std >= 0.0")


def _normal_of(mean: Any, std: Any, generator: Generator | None, out: Tensor | None) -> Tensor:
    """Standard numbers first, then scaled and shifted in place, as PyTorch rounds."""
    first = mean if isinstance(mean, Tensor) else std
    other = std if isinstance(std, Tensor) and first is mean else None
    shape = first._spec.shape if other is None else _common_shape(first._spec.shape, other._spec.shape)
    node = f"NormalBackward{1 if other is None and first is mean else 3 if other is not None else 2}"
    made: Any = fresh(first._spec.dtype, first._spec.device, tuple(shape)) if out is None else out
    if out is not None:
        fit(out, shape)
    before = STATE.word
    STATE.word = before & ~GRAD
    try:
        numbers: Any = _normal_(made, 0.0, 1.0 if isinstance(std, Tensor) else std, generator=generator)
        if isinstance(std, Tensor):
            numbers.mul_(std.detach())  # type: ignore[attr-defined]
        numbers.add_(mean.detach() if isinstance(mean, Tensor) else mean)  # type: ignore[attr-defined]
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
    check_generator("poisson", generator)
    spec = input._spec
    if not spec.dtype.is_floating_point:
        raise not_implemented("poisson_cpu", spec.dtype)
    made = fresh(spec.dtype, spec.device, spec.shape)
    if made._storage is not None and spec.numel:
        rates = input.detach().to(FLOAT64).contiguous()  # type: ignore[attr-defined]
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
    check_generator("binomial", generator)
    spec = count._spec
    if spec.dtype is not prob._spec.dtype:
        raise RuntimeError(
            f"Found dtype {prob._spec.dtype.scalar} but expected {spec.dtype.scalar}"
        )
    if spec.dtype not in (FLOAT32, FLOAT64):
        raise not_implemented("binomial_cpu", spec.dtype)
    made = fresh(spec.dtype, spec.device, spec.shape)
    if made._storage is not None and spec.numel:
        counts: Any = count.detach().contiguous()  # type: ignore[attr-defined]
        chances: Any = prob.detach().expand(spec.shape).contiguous()  # type: ignore[attr-defined]
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
    """Indices drawn with the elements of each row of `input` ([n] or [rows, n]) as weights; int64 [num_samples] or [rows, num_samples].

    RuntimeError for weights that are negative, infinite or NaN, for a row without weight, and for more samples than categories
    without replacement.

        >>> torch.multinomial(torch.tensor([0.0, 1.0]), 1)
        tensor([1])
    """
    check_generator("multinomial", generator)
    samples = as_int("multinomial", "num_samples", num_samples)
    shape = _check_multinomial(input, samples, replacement, out)
    made = fresh(INT64, input._spec.device, shape)
    if made._storage is not None and made._spec.numel:
        _draw_categories(input, samples, replacement, generator, made)
    if out is None:
        return made
    fit(out, shape)
    out.copy_(made)  # type: ignore[attr-defined]
    return out


def _check_multinomial(input: Any, samples: int, replacement: bool, out: Any) -> tuple[int, ...]:
    """The shape of the result."""
    if not isinstance(input, Tensor):
        raise TypeError(f"multinomial(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
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
    categories = spec.shape[-1]
    rows = spec.shape[0] if spec.ndim == 2 else 1
    dtype = FLOAT64 if spec.dtype is FLOAT64 else FLOAT32
    weights = input if spec.contiguous and not spec.conj and spec.dtype is dtype else input.detach().to(dtype).contiguous()
    replacement = replacement and samples > 1  # a single sample is drawn in the way that puts nothing back
    if replacement:
        status = streams.fill_multinomial(generator, made._ptr, weights._ptr, dtype, rows, categories, samples)
    elif samples == 1 and weights is input:
        status = streams.fill_choice(generator, made._ptr, weights._ptr, dtype, rows, categories)
    else:
        status = streams.weights_status(weights._ptr, dtype, rows, categories)
    if status == 1:
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if status == 2 or not categories:
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    if replacement or samples == 1 and weights is input:
        return
    # the smallest of exponential numbers with these rates comes from each with the right chance; so do the k smallest
    times: Any = empty_spec(Spec.of(spec.dtype, spec.device, spec.shape, like_strides(input, None)))
    METHODS["exponential_"](times, 1.0, generator=generator)
    keys = input.detach() / times
    found = keys.argmax(-1, keepdim=True) if samples == 1 else keys.topk(samples)[1]
    made.copy_(found)  # type: ignore[attr-defined]


# ***** dropouts *****


def _dropout(name: str, channels: int, alpha: bool, what: str) -> None:
    """`torch.NAME(input, p, train)` and `torch.NAME_`."""

    @overridable
    def function(input: Tensor, p: float, train: bool) -> Tensor:
        return sampling.dropout_with(name, input, p, train, channels, alpha, False)  # type: ignore[no-any-return]

    @overridable
    def in_place(input: Tensor, p: float, train: bool) -> Tensor:
        return sampling.dropout_with(name + "_", input, p, train, channels, alpha, True)  # type: ignore[no-any-return]

    function.__doc__ = f"{what} with probability `p` if `train`; see `torch.nn.functional.{name}`."
    in_place.__doc__ = f"In-place form of `{name}`."
    composite(name, overridable=False)(_named(function, name))
    composite(name + "_", overridable=False)(_named(in_place, name + "_"))


_dropout("dropout", 0, False, "Set elements to 0 and scale the rest by 1 / (1 - p)")
_dropout("feature_dropout", 2, False, "Set whole channels to 0 and scale the rest by 1 / (1 - p)")
_dropout("alpha_dropout", 0, True, "Set elements to SELU's negative limit, keeping mean and variance,")
_dropout("feature_alpha_dropout", 2, True, "Set whole channels to SELU's negative limit, keeping mean and variance,")


def check_p(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


@composite("dropout", spaces=("nn.functional",), overridable=False)
def functional_dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Set each element to 0 with probability `p` and scale the others by 1 / (1 - p); the identity unless `training`."""
    if (
        training is True
        and not inplace
        and type(input) in plain_classes
        and type(p) is float
        and not STATE.word & (FUNCTION_MODE | VMAP)
    ):
        plan = sampling.NOISES.get((input._spec, p))
        if plan is not None:
            return input * plan()  # type: ignore[operator, no-any-return]
    return _functional_dropout(input, p, training, inplace)  # type: ignore[no-any-return]


@overridable
def _functional_dropout(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    check_p(p)
    return sampling.dropout_with("dropout", input, p, training, 0, False, inplace)  # type: ignore[no-any-return]


@composite("alpha_dropout", spaces=("nn.functional",), overridable=False)
@overridable
def functional_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for self-normalising networks: dropped elements get SELU's negative limit; mean and variance are kept."""
    check_p(p)
    return sampling.dropout_with("alpha_dropout", input, p, training, 0, True, inplace)  # type: ignore[no-any-return]


@composite("feature_alpha_dropout", spaces=("nn.functional",), overridable=False)
@overridable
def functional_feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of whole channels (dim 1)."""
    check_p(p)
    return sampling.dropout_with("feature_alpha_dropout", input, p, training, 2, True, inplace)  # type: ignore[no-any-return]


def _channels(name: str, batched: tuple[int, ...], single: int, warns: str) -> None:
    """`dropout1d`, `dropout2d`, `dropout3d`: whole channels of a batch or of a single sample."""

    @overridable
    def function(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        check_p(p)
        ndim = input.dim()
        if ndim not in (*batched, single):
            _wrong_rank(name, ndim, warns)
        elif name == "dropout2d" and ndim == 3:
            _warn_channels_first()
        # without a batch dim there is one dim less before the channels' own; three spatial dims are a batch only where there are five dims
        channels = 1 if name != "dropout2d" and ndim not in batched else 2
        return sampling.dropout_with("feature_dropout", input, p, training, channels, False, inplace)  # type: ignore[no-any-return]

    function.__doc__ = (
        f"Set whole channels of a batch ({warns}) to 0 with probability `p`, and scale the others by 1 / (1 - p)."
    )
    composite(name, spaces=("nn.functional",), overridable=False)(_named(function, name))


def _warn_channels_first() -> None:
    warnings.warn(
        "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired - input is interpreted as "
        "shape (N, C, L), where C is the channel dim. This behavior will change in a future release to interpret the input as one without a "
        "batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise dropout behavior, please switch to using dropout1d instead.",
        UserWarning,
        stacklevel=4,
    )


def _wrong_rank(name: str, ndim: int, warns: str) -> None:
    if name == "dropout1d":
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {ndim}D input. Note that dropout1d exists to provide {warns}"
        )
    warnings.warn(
        f"{name}: Received a {ndim}-D input to {name}, which is deprecated and will result in an error in a future release. To retain the "
        f"behavior and silence this warning, please use dropout instead. Note that {name} exists to provide {warns}",
        UserWarning,
        stacklevel=4,
    )


_channels(
    "dropout1d",
    (3,),
    2,
    "channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an optional batch dimension",
)
_channels(
    "dropout2d",
    (3, 4),
    4,
    "channel-wise dropout on inputs with 2 spatial dimensions, a channel dimension, and an optional batch dimension",
)
_channels(
    "dropout3d",
    (5,),
    4,
    "channel-wise dropout on inputs with 3 spatial dimensions, a channel dimension, and an optional batch dimension",
)


@composite("native_dropout", overridable=False)
@overridable
def native_dropout(input: Any, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(result, bool mask) of a dropout."""
    if input._spec.numel == 0:
        return input, zeros_spec(input._spec)
    p = as_float("native_dropout", "p", p)
    if train is False:
        return input, input.detach().new_ones(input.shape, dtype=BOOL)
    mask = METHODS["bernoulli_"](empty_spec(Spec.of(BOOL, input._spec.device, input._spec.shape)), 1 - p)
    scale = 0.0 if p == 1 else 1.0 / (1 - p)
    return input * mask * scale, mask


# ***** activations that draw *****


@composite("gumbel_softmax", spaces=("nn.functional",), overridable=False)
@overridable
def gumbel_softmax(logits: Any, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample of the Gumbel-softmax distribution along `dim`; with `hard` one-hot, with the gradient of the soft sample."""
    noise: Any = METHODS["exponential_"](empty_spec(Spec.of(logits.dtype, logits.device, logits.shape)))
    soft = ((logits - noise.log()) / tau).softmax(dim)
    if not hard:
        return soft  # type: ignore[no-any-return]
    index = soft.max(dim, keepdim=True)[1]
    one_hot = zeros_spec(soft._spec).scatter_(dim, index, 1.0)  # type: ignore[attr-defined]
    return one_hot - soft.detach() + soft  # type: ignore[no-any-return]


def _rrelu(input: Any, lower: float, upper: float, training: bool, generator: Generator | None) -> Any:
    """The slopes as a tensor, or the mean slope."""
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return (lower + upper) / 2
    dtype = input._spec.dtype
    if not dtype.is_floating_point:
        raise not_implemented("rrelu_with_noise_out_cpu", dtype)
    wide = FLOAT64 if dtype is FLOAT64 else FLOAT32
    slopes: Any = empty_spec(Spec.of(wide, input._spec.device, input._spec.shape))
    if slopes._storage is not None and slopes._spec.numel:
        values = input.detach().to(wide).contiguous()
        if (
            wide is FLOAT32
        ):  # the bounds have the dtype in which the tensor computes, the uniform between them is float64
            lower, upper = sampling.to_f32(lower), sampling.to_f32(upper)
        streams.fill_leaks(generator, slopes._ptr, slopes._spec.numel, wide, values._ptr, lower, upper)
    return slopes.to(dtype)


def _apply_slopes(input: Any, slopes: Any, inplace: bool) -> Tensor:
    if isinstance(slopes, Tensor):
        return input.mul_(slopes) if inplace else input * slopes  # type: ignore[no-any-return]
    leaky = SPACES["nn.functional"]["leaky_relu"](input, slopes)
    return input.copy_(leaky) if inplace else leaky  # type: ignore[no-any-return]


@composite("rrelu", spaces=("nn.functional",), overridable=False)
@overridable
def functional_rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Leaky rectifier whose slope is drawn from [lower, upper) for each element <= 0; the mean slope unless `training`."""
    return _apply_slopes(input, _rrelu(input, lower, upper, training, None), inplace)


@composite("rrelu", overridable=False)
@overridable
def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """`torch.nn.functional.rrelu` with a generator."""
    return _apply_slopes(input, _rrelu(input, lower, upper, training, generator), False)


@composite("rrelu_", spaces=("torch", "nn.functional"), overridable=False)
@overridable
def rrelu_(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """In-place form of `rrelu`."""
    return _apply_slopes(input, _rrelu(input, lower, upper, training, generator), True)
