"""Functions that make tensors: `zeros`, `arange`, `eye`, ..., their `_like` and `new_` forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.errors import warn_user
from rushlight._base.lazy import LazyModule
from rushlight._base.tracebacks import shorten
from rushlight._engine.core import creation
from rushlight._engine.core.creation import as_shape, finish, generate, like_strides, python_dtype, spec_for
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.integers import as_flag, as_int, as_ints, is_numpy_scalar, number_in_range
from rushlight._engine.core.memory import empty_spec, has_memory, pinned, zeros_spec
from rushlight._engine.core.packing import check_number
from rushlight._engine.core.state import FUNCTION_MODE, INFERENCE, RECORDING, STATE, SYMBOLIC, new_plan_table
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.determinism import MODE, fill, fresh
from rushlight._engine.dispatch.plans.bind import scalar
from rushlight._engine.dispatch.plans.native_lookup import RUNS, not_cacheable, ran
from rushlight._engine.dispatch.plans.native_plans import fresh_plan
from rushlight._ops.bodies import CPP_NAME
from rushlight._ops.forms import forms
from rushlight._ops.table import OPERATORS
from rushlight._surface.registry import SPACES, SPARSE_FACTORIES, composite
from rushlight._types.device import as_device
from rushlight._types.dtype import BOOL, COMPLEX64, COMPLEX128, INT32, INT64, DType
from rushlight._types.formats import SPARSE_LAYOUTS
from rushlight._types.layout import LARGEST, extent, filled_strides, overflowed
from rushlight._types.promotion import default_dtype, number_dtype
from rushlight._types.spec import Spec
from rushlight._types.symbols import as_double, finite, truncated

mapped: Any = LazyModule("rushlight._engine.sharing.mapped")

__all__ = ["check_out"]


def _options(kwargs: dict[str, Any], name: str) -> tuple[Any, Any, Any, Any]:
    """(dtype, device, requires_grad, out) from the keywords that every factory takes."""
    dtype, device = kwargs.pop("dtype", None), kwargs.pop("device", None)
    requires_grad, out = kwargs.pop("requires_grad", False), kwargs.pop("out", None)
    layout = kwargs.pop("layout", None)
    if out is not None:
        check_out(name, out, layout=layout)
    if layout is not None and getattr(layout, "name", "strided") != "strided":
        raise NotImplementedError(f"rushlight has no layout {layout!r} yet ({name})")
    for ignored in ("pin_memory", "generator"):
        if kwargs.pop(ignored, None):
            raise NotImplementedError(f"rushlight has no argument '{ignored}' of {name} yet")
    if dtype is not None and not isinstance(dtype, DType):
        dtype = creation.python_dtype(dtype)
    if out is not None:
        check_out(name, out, dtype, device=device)
    return dtype, device, requires_grad, out


def check_out(name: str, out: Any, dtype: DType | None = None, layout: Any = None, device: Any = None) -> None:
    """RuntimeError where a factory's `out=` is not of the dtype, layout or device that the call names as well."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if dtype not in (None, out.dtype):
        raise RuntimeError(
            f"dtype {CPP_NAME[dtype.name]} does not match dtype of out parameter ({CPP_NAME[out.dtype.name]})"
        )
    if layout is not None and layout is not out.layout:
        mine, its = (x.name.title().replace("_", "").removesuffix("Coo") for x in (layout, out.layout))
        raise RuntimeError(f"layout {mine} does not match layout of out parameter ({its})")
    if device is not None and as_device(device) is not out.device:
        raise RuntimeError(
            f"device type {as_device(device)} does not match device type of out parameter ({out.device})"
        )


def _sparse(layout: Any) -> bool:
    return layout is not None and layout.name in SPARSE_LAYOUTS


def _reject(kwargs: dict[str, Any], name: str) -> None:
    if kwargs:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(kwargs))}'")


def _into(out: Tensor | None, made: Tensor) -> Tensor:
    if out is None:
        return made
    if out.shape != made.shape:
        out.resize_(made.shape)
    out.copy_(made)
    return out


def _in_order(out: Tensor | None, made: Tensor) -> Tensor:
    """A row of numbers as the elements of `out`, whose shape stays where it has so many."""
    if out is None:
        return made
    if out._spec.numel != made._spec.numel:
        out.resize_(made.shape)
    out.copy_(made.view(out.shape))
    return out


def _sizes(args: Sequence[Any], name: str) -> Sequence[Any]:
    """The sizes of a call; TypeError where there are none, or a tensor of several."""
    if not args:
        raise TypeError(f'{name}() missing 1 required positional argument: "size"')
    if isinstance(args[0], Tensor) and args[0]._spec.ndim and (len(args) > 1 or args[0]._spec.numel != 1):
        raise TypeError(f"{name}(): argument 'size' (position 1) must be tuple of ints, not Tensor")
    return args


def _size(args: Sequence[Any], kwargs: dict[str, Any], name: str) -> tuple[int, ...]:
    return as_shape(_sizes(args if args or "size" not in kwargs else (kwargs.pop("size"),), name), name)


def _pinned(made: Tensor) -> Tensor:
    """A fresh tensor in pinned memory; a plan would forget that, so none is kept."""
    not_cacheable()
    return pinned(made)


def _sized(name: str, make: Callable[[Spec], Tensor]) -> None:
    """A factory of the form `name(*size, dtype=None, ...)`."""

    known = new_plan_table()  # sizes -> spec of the default dtype

    @forms("(*size: int, **options: Factory) -> Tensor", "(size: Sequence[int], *, **options: Factory) -> Tensor")
    def factory(*size: Any, **kwargs: Any) -> Tensor:
        if not kwargs and not STATE.word & (INFERENCE | FUNCTION_MODE | RECORDING | SYMBOLIC):
            plain = all(type(s) is int for s in size)  # True and 1.0 are keys that equal 1
            spec = known.get(size) if plain else None
            if spec is None:
                spec = spec_for(as_shape(_sizes(size, name), name), None, None)
                if plain:
                    known[size] = spec
            return _noted(make(spec), spec, make)
        if STATE.word & FUNCTION_MODE:
            handled, made = HOOKS.override(shown[0], size, kwargs)
            if handled:
                return made
        if _sparse(layout := kwargs.get("layout")):
            if (out := kwargs.pop("out", None)) is not None:
                check_out(name, out, kwargs.get("dtype"), layout, kwargs.get("device"))
                kwargs["dtype"] = out.dtype
            return _into(out, SPARSE_FACTORIES[name](*(size or (kwargs.pop("size"),)), **kwargs))
        pins = kwargs.pop("pin_memory", False)
        dtype, device, requires_grad, out = _options(kwargs, name)
        memory_format = kwargs.pop("memory_format", None)
        shape = _size(size, kwargs, name)
        _reject(kwargs, name)
        if out is not None and dtype is None:
            dtype = out.dtype
        spec = spec_for(shape, dtype, device)
        if memory_format is not None and str(memory_format) != "torch.contiguous_format":
            spec = Spec.of(spec.dtype, spec.device, shape, like_strides(Tensor_of(spec), memory_format))  # type: ignore[arg-type]
        if pins:
            return _into(out, finish(_pinned(make(spec)), requires_grad))
        return _into(out, finish(_noted(make(spec), spec, make), requires_grad))

    factory.__name__ = factory.__qualname__ = name
    factory.__doc__ = f"`torch.{name}(*size, dtype=None, device=None, requires_grad=False)`"
    shown: list[Any] = [factory]  # the function that overrides see: the caching form
    factory.shown = shown  # type: ignore[attr-defined]
    composite(name, overridable=False, cached=("size", *_OPTIONS, "memory_format"), tensors=0)(factory)


# The keywords that `_options` reads
_OPTIONS = ("dtype", "device", "layout", "requires_grad", "pin_memory", "out", "names")


def _noted(made: Tensor, spec: Spec, make: Callable[[Spec], Tensor]) -> Tensor:
    """A new tensor from `make`.  While a call is recorded, the recording notes how it is made."""
    if (
        RUNS.now is not None
        and make in (fresh, zeros_spec)
        and made._storage is not None
        and not (MODE.on and make is fresh)
    ):
        backend = backend_of(spec.device)
        ran(backend.bind(None, lambda: make(spec), lambda: fresh_plan(spec, make is zeros_spec)), (), made)
    return made


class Tensor_of:
    """A bare spec in the place of a tensor."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec


def ones_spec(spec: Spec) -> Tensor:
    """Ones."""
    return creation.full(tuple(spec.shape), 1, spec, varies=False)


_sized("empty", fresh)
_sized("zeros", zeros_spec)
_sized("ones", ones_spec)


def _liked(name: str, make: Callable[[Spec], Tensor]) -> None:
    def factory(
        input: Tensor,
        *,
        dtype: Any = None,
        device: Any = None,
        layout: Any = None,
        requires_grad: bool = False,
        memory_format: Any = None,
        pin_memory: bool = False,
    ) -> Tensor:
        if _sparse(layout):
            return _sparse_like(name, input, layout, dtype, requires_grad)
        spec = spec_for(
            tuple(input.shape),
            dtype or input.dtype,
            input.device if device is None else device,
            like_strides(input, memory_format),
        )
        if pin_memory:
            return finish(_pinned(make(spec)), requires_grad)
        return finish(_noted(make(spec), spec, make), requires_grad)

    factory.__doc__ = (
        f"`torch.{name}(input, dtype=None, device=None, requires_grad=False, memory_format=torch.preserve_format)`"
    )
    composite(name, cached=("input", "dtype", "device", "layout", "requires_grad", "memory_format", "pin_memory"))(
        factory
    )


def _sparse_like(name: str, input: Tensor, layout: Any, dtype: Any, requires_grad: bool) -> Tensor:
    if name != "zeros_like":
        raise NotImplementedError(f"{name}(): a strided tensor has no counterpart in layout {layout!r}")
    made: Tensor = SPARSE_FACTORIES["zeros"](
        tuple(input.shape), dtype=dtype or input.dtype, layout=layout, requires_grad=requires_grad
    )
    return made


_liked("empty_like", fresh)
_liked("zeros_like", zeros_spec)
_liked("ones_like", ones_spec)


@composite(
    "full_like",
    cached=("input", "fill_value*", "dtype", "device", "layout", "requires_grad", "memory_format", "pin_memory"),
)
def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    layout: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor shaped like `input`, filled with one number."""
    spec = spec_for(
        tuple(input.shape),
        dtype or input.dtype,
        input.device if device is None else device,
        like_strides(input, memory_format),
    )
    made = creation.full(tuple(spec.shape), _filling("full_like", fill_value, spec.dtype), spec)
    return finish(_pinned(made) if pin_memory else made, requires_grad)


def _filling(name: str, value: Any, dtype: DType) -> Any:
    """The number to fill a tensor of this dtype with; TypeError for what is none, RuntimeError for one that the dtype
    cannot hold.
    """
    number = scalar(value, name, "fill_value", 2)
    if isinstance(number, complex) and number.imag and not dtype.is_complex and dtype is not BOOL:
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")
    check_number(number, dtype)
    return number


def _end(value: Any, unknown: bool) -> Any:
    """A number that may be given as a tensor; zero for one without elements, where that is not asked for."""
    if unknown and isinstance(value, Tensor) and not has_memory(value._spec):
        return 0j if value._spec.dtype.is_complex else 0.0
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.item()
    return (
        number_in_range(value)
        if type(value) in (bool, int, float, complex)
        else value.item()
        if hasattr(value, "item")
        else value
    )


@composite("full", cached=("size", "fill_value*", *_OPTIONS), tensors=0)
@forms("(size: Sequence[int], fill_value: Scalar, *, **options: Factory) -> Tensor")
def full(size: Any, fill_value: Any, **kwargs: Any) -> Tensor:
    """A tensor of this size, filled with one number, whose type gives the dtype."""
    if _sparse(kwargs.get("layout")):
        return SPARSE_FACTORIES["full"](size, **kwargs)
    dtype, device, requires_grad, out = _options(kwargs, "full")
    _reject(kwargs, "full")
    value = scalar(fill_value, "full", "fill_value", 2)
    if dtype is None:
        dtype = out.dtype if out is not None else number_dtype(value)
        if isinstance(value, complex) and out is None and dtype is not COMPLEX128:
            dtype = COMPLEX64  # even where a narrower float is the default, as in PyTorch
    spec = spec_for(as_shape((size,)), dtype, device)
    _filling("full", value, spec.dtype)
    return _into(out, finish(creation.full(tuple(spec.shape), value, spec), requires_grad))


def _new(name: str, make: Callable[[Spec], Tensor]) -> None:
    @forms(
        "(self: Tensor, *size: int, **options: Like) -> Tensor",
        "(self: Tensor, size: Sequence[int], *, **options: Like) -> Tensor",
    )
    def method(
        self: Tensor,
        *size: Any,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        layout: Any = None,
        pin_memory: bool = False,
        **kwargs: Any,
    ) -> Tensor:
        shape = _size(size, kwargs, name)
        _reject(kwargs, name)
        if _sparse(layout):
            factory = SPARSE_FACTORIES[name.removeprefix("new_")]
            return factory(shape, dtype=dtype or self.dtype, layout=layout, requires_grad=requires_grad)
        spec = spec_for(shape, dtype or self.dtype, self.device if device is None else device)
        if pin_memory:
            return finish(_pinned(make(spec)), requires_grad)
        return finish(_noted(make(spec), spec, make), requires_grad)

    method.__name__ = name
    method.__doc__ = f"`tensor.{name}(*size)`: dtype and device of this tensor unless given."
    composite(
        name,
        spaces=(),
        method=True,
        cached=("self", "size", "dtype", "device", "requires_grad", "layout", "pin_memory"),
    )(method)


_new("new_empty", fresh)
_new("new_zeros", zeros_spec)
_new("new_ones", ones_spec)


@composite(
    "new_full",
    spaces=(),
    method=True,
    cached=("self", "size", "fill_value*", "dtype", "device", "requires_grad", "layout", "pin_memory"),
)
def new_full(
    self: Tensor,
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """A filled tensor with this tensor's dtype and device."""
    spec = spec_for(as_shape((size,)), dtype or self.dtype, self.device if device is None else device)
    made = creation.full(tuple(spec.shape), _filling("new_full", fill_value, spec.dtype), spec)
    return finish(_pinned(made) if pin_memory else made, requires_grad)


COPIES = (
    "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
    "sourceTensor.detach().clone().requires_grad_(True), rather than {}(sourceTensor)."
)


@composite("new_tensor", spaces=(), method=True)
def new_tensor(
    self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """`torch.tensor` with this tensor's dtype and device."""
    if isinstance(data, Tensor):
        warn_user(COPIES.format("tensor.new_tensor"))
    return creation.tensor(
        data, dtype=dtype or self.dtype, device=self.device if device is None else device, requires_grad=requires_grad
    )


@composite("empty_strided")
@forms("(size: Sequence[int], stride: Sequence[int], *, **options: Like) -> Tensor")
def empty_strided(size: Any, stride: Any, **kwargs: Any) -> Tensor:
    """Uninitialised memory with these strides."""
    dtype, device, requires_grad, _ = _options(kwargs, "empty_strided")
    shape, strides = as_shape((size,), "empty_strided"), as_ints("empty_strided", "stride", stride)
    if len(shape) != len(strides):
        raise RuntimeError(
            f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides ({len(strides)})"
        )
    base = spec_for(shape, dtype, device, filled_strides(shape, strides))
    span = extent(shape, base.strides)
    if span * base.dtype.itemsize > LARGEST:
        raise RuntimeError(overflowed(shape, strides))
    flat = empty_spec(Spec.of(base.dtype, base.device, (span,)))
    flat._spec = base
    return finish(fill(flat), requires_grad)


@composite("new_empty_strided", spaces=(), method=True)
def new_empty_strided(
    self: Tensor,
    size: Any,
    stride: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """`empty_strided` with this tensor's dtype and device."""
    made: Tensor = empty_strided(
        size,
        stride,
        dtype=dtype or self.dtype,
        device=self.device if device is None else device,
        requires_grad=requires_grad,
    )
    return made


# ***** ranges *****


def _range_dtype(values: Sequence[Any]) -> DType:
    return INT64 if all(isinstance(v, int) for v in values) else default_dtype()


@composite("arange", cached=("start", "end", "step", *_OPTIONS), tensors=0)
@forms(
    "(end: Scalar, *, **options: Factory) -> Tensor",
    "(start: Scalar, end: Scalar, step: Scalar = 1, *, **options: Factory) -> Tensor",
)
def arange(*args: Any, **kwargs: Any) -> Tensor:
    """`arange(end)`, `arange(start, end, step=1)`: values start + i * step below end."""
    dtype, device, requires_grad, out = _options(kwargs, "arange")
    given = [_plain(a) for a in args]
    start, end, step = kwargs.pop("start", None), kwargs.pop("end", None), kwargs.pop("step", None)
    _reject(kwargs, "arange")
    if len(given) == 1 and end is None:
        end = given[0]
    elif len(given) == 1:
        start = given[0]
    elif len(given) >= 2:
        start, end = given[0], given[1]
        step = given[2] if len(given) > 2 else step
    start, step = 0 if start is None else _plain(start), 1 if step is None else _plain(step)
    end = _plain(end)
    if end is None:
        raise TypeError('arange() missing 1 required argument: "end"')
    for value in (start, end, step):
        if type(value) is int and not -(1 << 63) <= value < 1 << 63:
            raise RuntimeError("value cannot be converted to type int64_t without overflow")
    dtype = dtype or (out.dtype if out is not None else _range_dtype((start, end, step)))
    if any(isinstance(v, complex) for v in (start, end, step)):
        raise RuntimeError("value cannot be converted to type double without overflow")
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not all(map(finite, (start, end))):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (step > 0 and end < start) or (step < 0 and end > start):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if dtype is BOOL or dtype.is_complex:
        raise NotImplementedError(f"\"arange_cpu\" not implemented for '{CPP_NAME[dtype.name]}'")
    count = _range_count(start, end, step, dtype)
    spec = spec_for((count,), dtype, device)
    cast = truncated if dtype.is_integer else as_double
    if out is not None and out._spec.numel not in (0, count):
        warn_user(
            f"The number of elements in the out tensor of shape {list(out.shape)} is {out._spec.numel} which does not match the computed number of elements "
            f"{count}. Note that this may occur as a result of rounding error. The out tensor will be resized to a tensor of shape ({count},)."
        )
    return _in_order(out, finish(_row("arange_core", spec, (cast(start), cast(step)), count), requires_grad))


def _range_count(start: Any, end: Any, step: Any, dtype: DType) -> int:
    """How many numbers there are: bounds of int64 are cut to integers before they are counted, those of narrower ones
    after.
    """
    if dtype is INT64 or all(isinstance(v, int) for v in (start, end, step)):
        start, end, step = truncated(start), truncated(end), truncated(step)
        if step == 0:
            raise ValueError("step must be nonzero")
        count = max(0, -((start - end) // step))
    else:
        count = max(0, math.ceil((end - start) / step))
    if count >= 1 << 63:
        raise RuntimeError("invalid size, possible overflow?")
    return count


def _row(name: str, spec: Spec, numbers: tuple[Any, ...], *rest: Any) -> Tensor:
    """A fresh tensor from a row of the table that takes numbers, further arguments that are part of its code, and a
    dtype.
    """
    row = OPERATORS[name]
    return generate(lambda spec, rest, *values: row(*values, *rest, spec.dtype), spec, name, numbers, rest)


@composite("linspace", cached=("start", "end", "steps", *_OPTIONS), tensors=0)
@forms("(start: Scalar | Tensor, end: Scalar | Tensor, steps: int, *, **options: Factory) -> Tensor")
def linspace(start: Any, end: Any, steps: int, **kwargs: Any) -> Tensor:
    """`steps` values evenly from start to end, both included; the second half is counted from the end, as PyTorch does."""
    spec, ends, (requires_grad, out) = _spaced("linspace", start, end, steps, kwargs)
    return _in_order(out, finish(_row("linspace_core", spec, ends, spec.shape[0]), requires_grad))


def _spaced(
    name: str, start: Any, end: Any, steps: Any, kwargs: dict[str, Any]
) -> tuple[Spec, tuple[Any, ...], tuple[bool, Any]]:
    """(spec of the result, both ends, (requires_grad, out)) of `linspace` and `logspace`."""
    dtype, device, requires_grad, out = _options(kwargs, name)
    _reject(kwargs, name)
    shapes = [tuple(v.shape) if isinstance(v, Tensor) else () for v in (start, end)]
    if any(shapes):
        raise RuntimeError(
            f"{name} only supports 0-dimensional start and end tensors, but got start with {len(shapes[0])} dimension(s) and end with "
            f"{len(shapes[1])} dimension(s)."
        )
    unknown = as_device(device).type == "meta"  # numbers decide nothing there but whether the result is complex
    ends = (_end(start, unknown), _end(end, unknown))
    steps = _steps(steps, name)
    in_complex = any(isinstance(v, complex) for v in ends)
    wanted = dtype or (out.dtype if out is not None else None)
    if wanted is None:
        wanted = default_dtype().to_complex() if in_complex else default_dtype()
    elif in_complex and not wanted.is_complex:
        raise RuntimeError(
            f"torch.{name}(): inferred dtype {default_dtype().to_complex()} can't be safely cast to passed dtype {wanted}"
        )
    if wanted is BOOL:
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for 'Bool'")
    cast = complex if wanted.is_complex else int if wanted.is_integer else float
    return spec_for((steps,), wanted, device), tuple(cast(v) for v in ends), (requires_grad, out)


def _steps(steps: Any, name: str) -> int:
    if isinstance(steps, float) or not hasattr(steps, "__index__"):
        raise TypeError(f"{name}(): argument 'steps' must be int, not {type(steps).__name__}")
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    return as_int(name, "steps", steps)


@composite("logspace", cached=True)
@forms(
    "(start: Scalar | Tensor, end: Scalar | Tensor, steps: int, base: float = 10.0, *, **options: Factory) -> Tensor"
)
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, **kwargs: Any) -> Tensor:
    """`base ** linspace(start, end, steps)`."""
    spec, ends, (requires_grad, out) = _spaced("logspace", start, end, steps, kwargs)
    row, count = OPERATORS["logspace_core"], spec.shape[0]
    made = generate(
        lambda spec, rest, first, last, b: row(first, last, *rest, b, spec.dtype),
        spec,
        "logspace_core",
        (*ends, float(base)),
        (count,),
    )
    return _in_order(out, finish(made, requires_grad))


@composite("range")
@forms(
    "(end: Scalar, *, **options: Factory) -> Tensor",
    "(start: Scalar, end: Scalar, step: Scalar = 1, *, **options: Factory) -> Tensor",
)
def range_(start: Any = 0, end: Any = None, step: Any = 1, **kwargs: Any) -> Tensor:
    """Deprecated form of `arange` that includes the end."""
    warn_user(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with Python's range builtin. "
        "Instead, use torch.arange, which produces values in [start, end)."
    )
    if end is None:
        start, end = 0, start
    if not step:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    out = kwargs.pop("out", None)
    if out is not None:
        check_out("range", out, *(kwargs.get(k) for k in ("dtype", "layout", "device")))
    kwargs.setdefault("dtype", default_dtype() if out is None else out.dtype)
    count = math.floor((end - start) / step) + 1
    return _in_order(out, arange(start, start + count * step, step, **kwargs)[:count])


@composite("eye", cached=("n", "m", *_OPTIONS), tensors=0)
@forms("(n: int, m: int | None = None, *, **options: Factory) -> Tensor")
def eye(n: int, m: int | None = None, **kwargs: Any) -> Tensor:
    """Ones on the diagonal, zeros elsewhere."""
    dtype, device, requires_grad, out = _options(kwargs, "eye")
    _reject(kwargs, "eye")
    rows = as_int("eye", "n", n)
    columns = rows if m is None else as_int("eye", "m", m)
    for name, size in (("n", rows), ("m", columns)):
        if size < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {size}")
    spec = spec_for((rows, columns), dtype or (out.dtype if out is not None else None), device)
    return _into(out, finish(_row("eye_core", spec, (), rows, columns), requires_grad))


def _below(row: int, col: int, offset: int) -> int:
    """How many elements of a matrix lie on or below a diagonal."""

    def filled(n: int) -> int:
        """Elements of the first n rows of a triangle whose rows grow from 1 to `col`."""
        return n * (n + 1) // 2 if 0 <= n <= col else max(n, 0) * col - col * (col - 1) // 2 if n > 0 else 0

    return filled(row + offset) - filled(offset)


def _triangle(name: str) -> None:
    def factory(
        row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, layout: Any = None
    ) -> Tensor:
        offset = as_int(name, "offset", offset)
        for word, size in (("row", row), ("col", col)):
            if as_int(name, word, size) < 0:
                raise RuntimeError(f"{word} must be non-negative, got {size}")
        dtype = dtype or INT64
        if dtype not in (INT32, INT64):
            raise NotImplementedError(f"\"{name}\" not implemented for '{CPP_NAME[dtype.name]}'")
        if name == "triu_indices":
            row = min(row, max(col - offset, 0))  # the rows below have nothing
        kept = _below(row, col, offset) if name == "tril_indices" else row * col - _below(row, col, offset - 1)
        return _row(f"{name}_core", spec_for((2, kept), dtype, device), (), row, col, offset)

    factory.__doc__ = f"Row and column numbers of the {name[:4]} part of a `row` by `col` matrix, as a (2, n) tensor."
    composite(name, cached=("row", "col", "offset", "dtype", "device", "layout"), tensors=0)(factory)


_triangle("tril_indices")
_triangle("triu_indices")


@composite("scalar_tensor")
@forms("(value: Scalar, *, **options: Like) -> Tensor")
def scalar_tensor(value: Any, **kwargs: Any) -> Tensor:
    """A 0-dim tensor of the default dtype."""
    dtype, device, requires_grad, _ = _options(kwargs, "scalar_tensor")
    return creation.tensor(
        number_in_range(value), dtype=dtype or default_dtype(), device=device, requires_grad=requires_grad
    )


def _given(**options: Any) -> dict[str, Any]:
    """The options that a call gave, as a mode is shown them."""
    return {name: value for name, value in options.items() if value is not None and value is not False}


@composite("tensor", overridable=False)
def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """A new tensor with the values of `data`: numbers, nested sequences, arrays.

    >>> import rushlight as torch
    >>> torch.tensor([[1, 2], [3, 4]]).dtype
    torch.int64
    """
    try:
        as_flag("tensor", "requires_grad", requires_grad)
        if STATE.word & FUNCTION_MODE:
            handled, seen = HOOKS.override(
                tensor, (data,), _given(dtype=dtype, device=device, requires_grad=requires_grad)
            )
            if handled:
                return seen
        if isinstance(data, Tensor):
            warn_user(COPIES.format("torch.tensor"))
        if pin_memory:
            return finish(_pinned(creation.tensor(data, dtype=dtype, device=device)), requires_grad)
        return creation.tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)
    except BaseException as error:
        shorten(error)
        raise


@composite("as_tensor", overridable=False)
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, sharing memory where that is possible."""
    try:
        if STATE.word & FUNCTION_MODE:
            handled, seen = HOOKS.override(as_tensor, (data,), _given(dtype=dtype, device=device))
            if handled:
                return seen
        return creation.as_tensor(data, dtype=dtype, device=device)
    except BaseException as error:
        shorten(error)
        raise


@composite("asarray", overridable=False)
def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool | None = None
) -> Tensor:
    """`obj` as a tensor: a tensor, an array, what speaks DLPack, a buffer (its bytes read as `dtype`, or as the default
    dtype), numbers and sequences.

    Memory is shared where it can be; `copy=True` always copies, `copy=False` never does and raises ValueError where it
    would have to.  Copies of a tensor keep its history.  `requires_grad=False` gives a tensor outside of the graph;
    left out, it is what `obj` has.

    >>> import rushlight as torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> torch.asarray(x) is x, torch.asarray(x * 2, requires_grad=False).grad_fn
    (True, None)
    >>> torch.asarray(bytearray(b"\\x01\\x02"), dtype=torch.uint8)
    tensor([1, 2], dtype=torch.uint8)
    """
    try:
        if requires_grad is not None:
            as_flag("asarray", "requires_grad", requires_grad)
        if STATE.word & FUNCTION_MODE:
            handled, seen = HOOKS.override(
                asarray, (obj,), _given(dtype=dtype, device=device, copy=copy, requires_grad=requires_grad)
            )
            if handled:
                return seen
        if device is None:
            device = creation.chosen_device()
        if dtype is device is copy is requires_grad is None:
            known = creation.over_known(obj)
            if known is not None:
                return known
        made = _held(obj, dtype, copy)
        if made is None:
            if copy is False:
                raise ValueError("can't alias arbitrary sequence into a tensor.")
            return creation.tensor(obj, dtype=dtype, device=device, requires_grad=bool(requires_grad))
        wanted = made.dtype if dtype is None else python_dtype(dtype) if isinstance(dtype, type) else dtype
        place = made.device if device is None else as_device(device)
        if copy is False and place != made.device:
            raise ValueError(f"can't alias tensor from device '{made.device}' to '{place}'.")
        if copy is False and wanted is not made.dtype:
            raise ValueError(
                f"can't alias tensor with dtype '{CPP_NAME[made.dtype.name]}' into dtype '{CPP_NAME[wanted.name]}'."
            )
        if wanted is not made.dtype or place != made.device:
            made = made.to(place, wanted)
        elif copy:
            made = made.clone()
        if made.requires_grad and requires_grad is False:
            return made.requires_grad_(False) if made.is_leaf else made.detach()
        return finish(made, True) if requires_grad and not made.requires_grad else made
    except BaseException as error:
        shorten(error)
        raise


def _held(obj: Any, dtype: Any, copy: bool | None) -> Tensor | None:
    """A tensor over the memory that an object holds; None for numbers, sequences and what else holds none."""
    if isinstance(obj, Tensor):
        return obj
    if creation.is_array(obj):
        return creation.from_numpy(obj)
    if is_numpy_scalar(obj):
        if copy is False:
            raise RuntimeError("can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray.")
        return None
    if hasattr(obj, "__dlpack__") or type(obj).__name__ == "PyCapsule":
        return SPACES["torch"]["from_dlpack"](obj)
    try:
        memoryview(obj)
    except TypeError:
        return None
    return mapped.frombuffer(obj, dtype=dtype or default_dtype())


@composite("from_numpy", overridable=False)
def from_numpy(ndarray: Any) -> Tensor:
    """A tensor over a NumPy array's memory."""
    if STATE.word & FUNCTION_MODE:
        handled, seen = HOOKS.override(from_numpy, (ndarray,), {})
        if handled:
            return seen
    return creation.from_numpy(ndarray)
