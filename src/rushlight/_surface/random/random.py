"""Functions that make random tensors of a size: `rand`, `randn`, `randint`, `randperm` and their `_like` forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.tracebacks import shorten
from rushlight._engine.core.creation import as_shape, finish, like_strides, spec_for
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.integers import as_int
from rushlight._engine.core.memory import empty_spec
from rushlight._engine.core.state import (
    FUNCTION_MODE,
    INFERENCE,
    RECORDING,
    STATE,
    SYMBOLIC,
    TRANSFORMS,
    VMAP,
    new_plan_table,
)
from rushlight._engine.core.tensor import Tensor, plain_classes
from rushlight._engine.dispatch.plans.bind import only_tensors
from rushlight._engine.dispatch.plans.native_lookup import RUNS, ran, unwatched
from rushlight._engine.random import random as streams
from rushlight._engine.random import sampling
from rushlight._engine.random.random import Generator
from rushlight._engine.random.sampling import METHODS, check_generator, fit, fresh, not_implemented, overridable, quick
from rushlight._ops.bodies import CPP_NAME
from rushlight._ops.forms import forms
from rushlight._surface.factories import check_out
from rushlight._surface.registry import composite
from rushlight._types.device import as_device
from rushlight._types.dtype import BOOL, FLOAT8, FLOAT16, FLOAT32, FLOAT64, INT64, DType

__all__ = ["destination", "named", "quickly"]

# Methods that write numbers to a whole tensor and do nothing else.
_WRITING = ("uniform_", "normal_", "log_normal_", "exponential_", "cauchy_", "geometric_", "random_")
for _name, _method in METHODS.items():
    _code = _method.__wrapped__.__code__  # type: ignore[attr-defined]
    _cached = _code.co_varnames[: _code.co_argcount + _code.co_kwonlyargcount] if _name in _WRITING else ()
    composite(_name, spaces=("torch",) if _name == "bernoulli" else (), method=True, overridable=False, cached=_cached)(
        _method
    )

# States in which a call may need more than its plan does.
_UNPLANNED = INFERENCE | FUNCTION_MODE | RECORDING | SYMBOLIC | VMAP
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
    return as_shape(size, name)


def destination(name: str, out: Tensor, shape: Sequence[int], dtype: DType | None, layout: Any, device: Any) -> Tensor:
    """`out`, checked and resized."""
    check_out(name, out, dtype, layout, device)
    fit(out, shape)
    return out


def _marked(out: Tensor, requires_grad: bool) -> Tensor:
    return out.requires_grad_() if requires_grad else out


def _filled(name: str, kernel: str, method: Callable[..., Tensor], fill: Callable[..., None], doc: str) -> None:
    """A factory `name(*size, generator=None, out=None, dtype=None, ...)`; `fill` is the quick way for float dtypes."""
    plans = new_plan_table()
    state = STATE

    def full(
        *size: Any,
        generator: Generator | None = None,
        out: Tensor | None = None,
        dtype: DType | None = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
        names: Any = None,
        **kwargs: Any,
    ) -> Tensor:
        check_generator(name, generator)
        shape = _shape(name, size, kwargs)
        if kwargs or names is not None:
            raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(kwargs), 'names')}'")
        if out is not None:
            made = method(destination(name, out, shape, dtype, layout, device), generator=generator)
            return _marked(made, requires_grad)
        _layout(name, layout)
        spec = spec_for(shape, dtype, device)
        generator = check_generator(name, generator, spec.device)
        made = empty_spec(spec)
        if spec.dtype.is_floating_point and spec.dtype not in FLOAT8:
            if made._storage is not None and spec.numel:
                fill(generator, made._ptr, spec.numel, spec.dtype)
        else:
            method(made, generator=generator)
        return made if requires_grad is False and not state.word & INFERENCE else finish(made, requires_grad)

    @forms("(*size: int, **options: Random) -> Tensor", "(size: Sequence[int], *, **options: Random) -> Tensor")
    def factory(*size: Any, **kwargs: Any) -> Tensor:
        if not size or state.word & _UNPLANNED or kwargs and not planned(kwargs, True):
            return _slowly(factory, full, size, kwargs)
        key = size[0] if len(size) == 1 and isinstance(size[0], tuple) else size
        for n in key:
            if type(n) is not int:  # 2.0 equals 2 as a key, but is no size
                return full(*size, **kwargs)
        if kwargs:
            key = key, options(kwargs)
        plan = plans.get(key)
        if plan is not None:
            if not kwargs:
                return plan()
            made = plan(kwargs.get("generator"))
            made._rg = kwargs.get("requires_grad", False)
            return made
        made = full(*size, **kwargs)
        spec = made._spec
        if spec.numel and spec.dtype.is_floating_point and made._storage is not None:
            plans[key] = quick(kernel, spec, 0.0, 1.0)
        return made

    factory.__doc__ = doc
    composite(name, overridable=False)(named(factory, name))


_PLANNED = frozenset(("dtype", "device", "generator"))


def planned(kwargs: dict[str, Any], floats: bool = False) -> bool:
    """Whether these keywords ask for nothing that a plan cannot do (see `sampling.quick`); numbers that are `floats`
    may want a gradient.
    """
    if not kwargs.keys() <= _PLANNED and not (
        floats and kwargs.keys() - _PLANNED == {"requires_grad"} and type(kwargs["requires_grad"]) is bool
    ):
        return False
    generator, dtype = kwargs.get("generator"), kwargs.get("dtype")
    return (generator is None or type(generator) is Generator) and (dtype is None or type(dtype) is DType)


def options(kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The part of a plan's key that comes from keywords."""
    return kwargs.get("dtype"), kwargs.get("device")


def _slowly(
    shown: Callable[..., Any], function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A factory's call where somebody may have a say: a mode, a batch."""
    if STATE.word & FUNCTION_MODE:
        handled, made = HOOKS.override(shown, args, kwargs)
        if handled:
            return made
    return TRANSFORMS["draw"](shown, args, kwargs) if STATE.word & VMAP else function(*args, **kwargs)


def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
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
        input: Tensor,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
        memory_format: Any = None,
        generator: Generator | None = None,
    ) -> Tensor:
        made = _empty_like(name, input, dtype, device, memory_format)
        with unwatched():
            method(made, generator=generator)
        if RUNS.now is not None and quickly(made, generator):
            ran(quick(kernel, made._spec, 0.0, 1.0), (), made)
        return finish(made, requires_grad)

    factory.__doc__ = f"`{name.removesuffix('_like')}` with the shape, dtype, device and memory order of `input` unless they are given."
    cached = ("input", "dtype", "layout", "device", "requires_grad", "pin_memory", "memory_format", "generator")
    composite(name, overridable=False, cached=cached)(named(factory, name))


def quickly(made: Tensor, generator: Any) -> bool:
    """Whether a plan (see `sampling.quick`) can make the next tensor like this one."""
    spec = made._spec
    plain = (
        generator is None
        and spec.contiguous
        and spec.numel
        and spec.dtype.is_floating_point
        and made._storage is not None
    )
    return bool(plain and not STATE.word & VMAP)


def _empty_like(name: str, input: Any, dtype: Any, device: Any, memory_format: Any) -> Tensor:
    only_tensors(name, input=input)
    return empty_spec(
        spec_for(
            tuple(input.shape),
            dtype or input.dtype,
            input.device if device is None else device,
            like_strides(input, memory_format),
        )
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


def _room_for_integers(
    name: str, out: Tensor | None, shape: tuple[int, ...], dtype: DType | None, layout: Any, device: Any
) -> Tensor:
    """The tensor that a function fills: `out`, or a new one, of int64 unless a dtype is given."""
    if out is not None:
        return destination(name, out, shape, dtype, layout, device)
    _layout(name, layout)
    if dtype is None and device is None:
        return fresh(INT64, as_device(None), shape)
    return empty_spec(spec_for(shape, dtype or INT64, device))


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
    try:
        if not args or type(args[-1]) is not tuple or STATE.word & _UNPLANNED or kwargs and not planned(kwargs):
            return _slowly(randint, lambda *args, **kwargs: _randint(args, **kwargs), args, kwargs)
        for n in (*args[:-1], *args[-1]):
            if type(n) is not int:  # 2.0 equals 2 as a key, but is no bound
                return _randint(args, **kwargs)
        key = (args, options(kwargs)) if kwargs else args
        plan = _RANDINTS.get(key)
        if plan is not None:
            return plan(kwargs.get("generator"))
        made = _randint(args, **kwargs)
        if made._spec.numel and made._storage is not None and made._spec.dtype.is_integer:
            _RANDINTS[key] = quick(
                "integers", made._spec, *streams.integer_parameters(args[-3] if len(args) == 3 else 0, args[-2])
            )
        return made
    except BaseException as error:
        shorten(error)
        raise


def _randint(
    args: tuple[Any, ...],
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **kwargs: Any,
) -> Tensor:
    check_generator("randint", generator)
    low, high, rest = _bounds("randint", args, kwargs)
    size = kwargs.pop("size", rest[0] if rest else None)
    if kwargs or len(rest) > 1:
        raise TypeError(f"randint() got an unexpected argument {next(iter(kwargs), rest[1:])!r}")
    if size is None:
        raise TypeError("randint() missing 1 required argument: 'size', a tuple of ints")
    if not isinstance(size, (tuple, list)) and not (isinstance(size, Tensor) and size.ndim):
        raise TypeError(f"randint(): argument 'size' must be tuple of ints, not {type(size).__name__}")
    shape = as_shape((size,))
    if out is None and requires_grad and not (dtype is not None and (dtype.is_floating_point or dtype.is_complex)):
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    made = _room_for_integers("randint", out, shape, dtype, layout, device)
    METHODS["random_"](made, low, high, generator=generator)
    return finish(made, requires_grad) if out is None else _marked(made, requires_grad)


@composite("randint_like", overridable=False)
@overridable
@forms(
    "(input: Tensor, high: int, *, memory_format: memory_format | None = None, **options: Like) -> Tensor",
    "(input: Tensor, low: int, high: int, *, memory_format: memory_format | None = None, **options: Like) -> Tensor",
)
def randint_like(
    input: Tensor,
    *args: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
    generator: Generator | None = None,
    **kwargs: Any,
) -> Tensor:
    """`randint` with the shape, dtype, device and memory order of `input` unless they are given."""
    key = None
    if (
        dtype is device is memory_format is generator is layout is None
        and not (requires_grad or kwargs)
        and type(input) in plain_classes
    ):
        key = (input._spec, *args)
        plan = None if STATE.word & INFERENCE else _RANDINTS.get(key)
        if plan is not None and all(type(n) is int for n in args):
            return plan(None)
    low, high, rest = _bounds("randint_like", args, kwargs)
    if kwargs or rest:
        raise TypeError(f"randint_like() got an unexpected argument {next(iter(kwargs), rest)!r}")
    made = _empty_like("randint_like", input, dtype, device, memory_format)
    METHODS["random_"](made, low, high, generator=generator)
    spec = made._spec
    # The second: bounds that every dtype holds.
    exact = spec.dtype.is_integer or spec.dtype.is_floating_point and max(-low, high) <= 256
    if key is not None and exact and spec.contiguous and spec.numel and made._storage is not None:
        _RANDINTS[key] = quick("integers", made._spec, *streams.integer_parameters(low, high))
    return finish(made, requires_grad)


_RANDPERMS = new_plan_table()


@composite("randperm", overridable=False)
@forms("(n: int, *, **options: Random) -> Tensor")
def randperm(n: Any, **kwargs: Any) -> Tensor:
    """A random permutation of 0 .. n-1: `randperm(n, *, generator=None, out=None, dtype=torch.int64, ...)`.

    >>> sorted(torch.randperm(4).tolist())
    [0, 1, 2, 3]
    """
    if type(n) is not int or STATE.word & _UNPLANNED or kwargs and not planned(kwargs):
        return _slowly(randperm, _randperm, (n,), kwargs)
    key = (n, options(kwargs)) if kwargs else n
    plan = _RANDPERMS.get(key)
    if plan is not None:
        return plan(kwargs.get("generator"))
    made = _randperm(n, **kwargs)
    if made._spec.numel and made._storage is not None:
        _RANDPERMS[key] = quick("permutation", made._spec)
    return made


def _randperm(
    n: Any,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    check_generator("randperm", generator)
    n = as_int("randperm", "n", n)
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    made = _room_for_integers("randperm", out, (n,), dtype, layout, device)
    generator = check_generator("randperm", generator, made.device)
    kind = made._spec.dtype
    if kind is BOOL or kind.is_complex or kind in FLOAT8 or kind.name in ("uint16", "uint32", "uint64"):
        raise not_implemented("randperm", kind)
    _check_fits(n, kind)

    def fill(address: int, count: int, dtype: DType, _: bool) -> None:
        streams.fill_permutation(generator, address, count, dtype)

    sampling.write_random(made, "RandpermBackward0", fill)
    return finish(made, requires_grad) if out is None else _marked(made, requires_grad)


# The most numbers that a permutation of a float dtype may have: all of them are exact.
_EXACT = {
    FLOAT16: (2**11 + 1, "2049"), FLOAT32: (2**24 + 1, "2^24+1"), FLOAT64: (2**53 + 1, "2^53+1"),
}  # fmt: skip


def _check_fits(n: int, dtype: DType) -> None:
    largest = _EXACT.get(dtype)
    if largest is not None and n > largest[0]:
        raise RuntimeError(f"n cannot be greater than {largest[1]} for {CPP_NAME[dtype.name]} type.")
    if not dtype.is_floating_point and n > 0 and n - 1 > (1 << dtype.itemsize * 8 - dtype.is_signed) - 1:
        raise RuntimeError(f"value cannot be converted to type {dtype.name}_t without overflow")
