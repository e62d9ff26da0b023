"""Tensor methods that copy, cast, resize and view, the views taken in place among them."""

from __future__ import annotations

from typing import Any

from rushlight._base.lazy import LazyModule
from rushlight._base.tracebacks import shorten
from rushlight._engine.autograd.node import OpNode, node_class
from rushlight._engine.core import convert, creation
from rushlight._engine.core.hooks import HOOKS, bump
from rushlight._engine.core.state import FUNCTION_MODE, INFERENCE, NOTING_PLANS, OBSERVED, STATE
from rushlight._engine.core.tensor import Tensor, dispatch_classes, plain_classes
from rushlight._engine.dispatch import override
from rushlight._engine.dispatch.override import NO_TENSOR_CLASS, handle
from rushlight._engine.dispatch.plans.native_lookup import RUNS
from rushlight._engine.dispatch_types.base import DispatchType
from rushlight._engine.indexing.inplace import check_writable
from rushlight._engine.indexing.view import as_strided, view_dtype
from rushlight._ops.forms import forms
from rushlight._surface.methods import method
from rushlight._surface.registry import composite, function_of, row_named
from rushlight._types.device import CPU, Device
from rushlight._types.dtype import ALL_DTYPES, BY_NAME, DType
from rushlight._types.layout import channels_last_strides, contiguous_strides
from rushlight._types.promotion import default_dtype
from rushlight._types.spec import Spec

lazy: Any = LazyModule("rushlight._engine.core.lazy_clone")

__all__ = ["TYPE_NAMES", "type_name"]

# ***** copies and casts *****

composite("clone", method=True, cached=("input", "memory_format"))(convert.clone)
composite("contiguous", spaces=(), method=True, cached=("self", "memory_format"))(convert.contiguous)
composite("to", spaces=(), method=True, cached=("self", "dtype?", "non_blocking", "copy", "memory_format", "device"))(
    convert.to
)
composite("detach", method=True, cached=("input",))(convert.detach)
composite("copy_", spaces=(), method=True, cached=("self", "src", "non_blocking"), tensors=2)(convert.copy_)
composite("as_strided", method=True, cached=True)(as_strided)


@composite("_lazy_clone", method=True)
def _lazy_clone(input: Tensor) -> Tensor:
    """A copy that shares memory with its source until either is written; the gradient flows through."""
    return lazy.lazy_clone(input)


def _cast(name: str, dtype: DType) -> None:
    def cast(self: Tensor, memory_format: Any = None) -> Tensor:
        if memory_format is not None:
            return convert.to(self, dtype, memory_format=memory_format)
        return self if self._spec.dtype is dtype else convert.cast(self, dtype)

    cast.__name__ = name
    cast.__doc__ = f"The same as `to(torch.{dtype.name})`."
    composite(name, spaces=(), method=True, cached=("self", "memory_format"))(cast)


for _name, _word in (
    ("float", "float32"),
    ("double", "float64"),
    ("half", "float16"),
    ("bfloat16", "bfloat16"),
    ("long", "int64"),
    ("int", "int32"),
    ("short", "int16"),
    ("char", "int8"),
    ("byte", "uint8"),
    ("bool", "bool"),
    ("cfloat", "complex64"),
    ("cdouble", "complex128"),
    ("chalf", "complex32"),
):
    _cast(_name, BY_NAME[_word])


def _cast_function(name: str, dtype: DType) -> None:
    def cast(input: Tensor, non_blocking: bool = False) -> Tensor:
        return convert.to(input, dtype)

    cast.__name__ = name
    cast.__doc__ = f"The tensor as torch.{dtype.name}; itself where it has that dtype."
    composite(name)(cast)


# functions of PyTorch's native library, which packages call
for _name, _word in (
    ("Byte", "uint8"),
    ("Char", "int8"),
    ("Double", "float64"),
    ("Float", "float32"),
    ("Half", "float16"),
    ("Int", "int32"),
    ("Long", "int64"),
    ("Short", "int16"),
):
    _cast_function(f"_cast_{_name}", BY_NAME[_word])


@method
def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """On the CPU; itself when it is there."""
    if type(self) not in plain_classes:
        named = {} if memory_format is None else {"memory_format": memory_format}
        return self.to(CPU, **named)
    if memory_format is not None:
        return convert.to(self, CPU, memory_format=memory_format)
    return self if self.device is CPU else convert.to(self, CPU)


@method
def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """On another device, in the words of the array API standard; there are no streams to choose from."""
    if stream is not None:
        raise ValueError(f"to_device: expected no stream, found {stream!r}")
    return convert.to(self, Device(device) if isinstance(device, str) else device)


@method
def cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """On a GPU, by default the current one; MissingDeviceError where there is none."""
    try:
        place = Device("cuda") if device is None else Device("cuda", device) if type(device) is int else device
        return convert.to(self, place, non_blocking=non_blocking, memory_format=memory_format)
    except BaseException as error:
        shorten(error)
        raise


@forms("(self: Tensor) -> str", "(self: Tensor, dtype: dtype | str | type, non_blocking: bool = False) -> Tensor")
def _type(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Without an argument the type's name (`torch.FloatTensor`), else a cast: a call of `to`, which modes see."""
    if dtype is None:
        return type_name(self)
    if isinstance(dtype, str):
        device, dtype = _named_type(dtype)
        return self.to(_kept(self, device), dtype, non_blocking=non_blocking)
    if dtype is Tensor:  # the type of new tensors
        dtype = default_dtype()
    elif isinstance(dtype, type) and isinstance(getattr(dtype, "dtype", None), DType):  # `torch.cuda.FloatTensor`
        place = _kept(self, Device(dtype.device_type))  # type: ignore[attr-defined]  # of TypedTensor
        return self.to(place, dtype.dtype, non_blocking=non_blocking)  # type: ignore[attr-defined]
    elif isinstance(dtype, type):
        raise ValueError(f"invalid type: '{dtype.__qualname__}'")
    return self.to(dtype, non_blocking=non_blocking)


def _kept(tensor: Tensor, device: Device) -> Device:
    """The tensor's own device where it is of the wanted type: any GPU has tensors of `torch.cuda.FloatTensor`."""
    return tensor.device if tensor.device.type == device.type else device


def type_name(tensor: Tensor) -> str:
    """The older name of a tensor's type: `torch.FloatTensor`, `torch.cuda.HalfTensor`, `torch.sparse.LongTensor`."""
    kind = tensor.device.type
    place = "" if kind == "cpu" else f"{kind}."
    sparse = "sparse." if tensor.is_sparse else ""
    return f"torch.{place}{sparse}{TYPE_NAMES[tensor._spec.dtype.name]}Tensor"


def _named_type(name: str) -> tuple[Device, DType]:
    """The device and the dtype of `torch.FloatTensor`, `torch.cuda.HalfTensor` or `torch.Tensor`."""
    word = name.removeprefix("torch.")
    device = Device("cuda") if word.startswith("cuda.") else CPU
    word = word.removeprefix("cuda.").removesuffix("Tensor")
    found = next((n for n, t in TYPE_NAMES.items() if t == word), None)
    if found is None and name != "torch.Tensor":
        raise ValueError(f"invalid type: '{name}'")
    return device, default_dtype() if found is None else BY_NAME[found]


Tensor.type = _type  # type: ignore[attr-defined]  # not named `type` here: this module needs the built-in one


TYPE_NAMES = {d.name: ("quantized." if d.kind == "q" else "") + d.scalar for d in ALL_DTYPES}


@composite("type_as", spaces=(), method=True, cached=True)
def type_as(self: Tensor, tensor: Tensor) -> Tensor:
    """Cast to the dtype of another tensor, on its device."""
    return convert.to(self, tensor.device, tensor._spec.dtype)


@method
@forms(
    "(self: Tensor, *sizes: int, memory_format: memory_format | None = None) -> Tensor",
    "(self: Tensor, sizes: Sequence[int], *, memory_format: memory_format | None = None) -> Tensor",
)
def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Change the shape in place; new elements are undefined."""
    shape = creation.as_shape(sizes)
    if STATE.word & FUNCTION_MODE or type(self) in dispatch_classes:
        options = {} if memory_format is None else {"memory_format": memory_format}
        handled, made = HOOKS.below(resize_, (self, list(shape)), options)
        if handled:
            return made
    if memory_format is not None and str(memory_format) == "torch.preserve_format":
        raise RuntimeError("Unsupported memory formatPreserve")
    return convert.resize_(self, shape, None if memory_format is None else _dense_strides(shape, memory_format))


def _dense_strides(shape: tuple[int, ...], memory_format: Any) -> tuple[int, ...]:
    return (
        contiguous_strides(shape) if str(memory_format) == "torch.contiguous_format" else channels_last_strides(shape)
    )


@method
def resize_as_(self: Tensor, other: Tensor, memory_format: Any = None) -> Tensor:
    """`resize_` to the shape of another tensor; `torch.preserve_format` also takes its order in memory."""
    shape = tuple(other.shape)
    if memory_format is not None and str(memory_format) == "torch.preserve_format":
        return convert.resize_(self, shape, creation.like_strides(other, memory_format))
    return self.resize_(shape, memory_format=memory_format)


@method
def set_(
    self: Tensor, source: Any = None, storage_offset: int | None = None, size: Any = None, stride: Any = None
) -> Tensor:
    """Use another tensor's or storage's memory."""
    # A storage does not say which class its tensors have; a trace refuses it.
    plain = source is None or isinstance(source, Tensor)
    if STATE.dispatch_modes or plain and (STATE.word & FUNCTION_MODE or type(self) in dispatch_classes):
        given = (source, storage_offset, size, stride)
        last = max((k for k, x in enumerate(given) if x is not None), default=-1)
        handled, made = HOOKS.below(set_, (self, *given[: last + 1]), {})
        if handled:
            return made
    return convert.set_(self, source, storage_offset, size, stride)


@method
def as_subclass(self: Tensor, cls: Any) -> Tensor:
    """The same tensor as an object of a subclass."""
    return override.shown_as(self, cls)


def _make_subclass(cls: Any, data: Tensor, require_grad: bool = False, **policies: Any) -> Tensor:
    """A detached alias of `data` as an object of `cls`."""
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"{NO_TENSOR_CLASS}, got {cls!r}")
    dtype = data._spec.dtype
    if require_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    plain = type(data) in plain_classes and (data._autograd_meta is None or not data._autograd_meta.inference)
    if (
        plain
        and (cls in plain_classes or cls not in dispatch_classes)
        and not STATE.word & (FUNCTION_MODE | INFERENCE | OBSERVED | NOTING_PLANS)
    ):
        made = object.__new__(cls)
        made._storage, made._spec, made._ptr = data._storage, data._spec, data._ptr
        made._rg, made._node, made._autograd_meta = require_grad, None, None
        return made
    STATE.dispatch_off += 1
    try:
        made = override.as_subclass(convert.detach(data), cls)
    finally:
        STATE.dispatch_off -= 1
    if require_grad:
        made.requires_grad = True
    return made


def _make_wrapper_subclass(
    cls: Any,
    size: Any,
    strides: Any = None,
    storage_offset: int | None = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    dispatch_sizes_strides_policy: str | None = None,
    dispatch_device: bool = False,
    dispatch_layout: bool = False,
    _extra_dispatch_keys: Any = None,
    storage_size: int | None = None,
) -> Tensor:
    """A tensor of `cls` that has a shape, a dtype and a device, and no memory: what operators do is said by
    `cls.__torch_dispatch__`.

    The layout in memory is a statement, too: `strides`, else those of `memory_format`, else row-major.  TypeError for a
    class that is no subclass of Tensor, RuntimeError for one without `__torch_dispatch__`.
    """
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"cls must be a type that inherits from Tensor, got {cls!r}")
    if cls not in dispatch_classes:
        raise RuntimeError(f"{cls.__name__} requires a nontrivial __torch_dispatch__: its tensors have no memory")
    if isinstance(size, Tensor):
        raise TypeError("_make_wrapper_subclass(): expected sizes, found a tensor")
    dtype = default_dtype() if dtype is None else dtype
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    if strides is None and memory_format is not None and "channels_last" in str(memory_format):
        strides = channels_last_strides(tuple(size))
    device = CPU if device is None else device if isinstance(device, Device) else Device(device)
    made = object.__new__(cls)
    made._storage, made._ptr = None, 0
    strides = None if strides is None else tuple(strides)
    made._spec = Spec.of(dtype, device, tuple(size), strides, released=device.type != "meta")
    made._rg, made._node, made._autograd_meta = bool(requires_grad), None, None
    return made


Tensor._make_subclass = staticmethod(_make_subclass)  # type: ignore[attr-defined]
Tensor._make_wrapper_subclass = staticmethod(_make_wrapper_subclass)  # type: ignore[attr-defined]


@composite("view", spaces=(), method=True, overridable=False, cached=("self", "size"), alike=True)
@forms(
    "(self: Tensor, *size: int) -> Tensor",
    "(self: Tensor, size: Sequence[int]) -> Tensor",
    "(self: Tensor, dtype: dtype) -> Tensor",
)
def view(self: Tensor, *size: Any, **kwargs: Any) -> Tensor:
    """The same elements under another shape, or the same bytes as another dtype (`x.view(torch.int32)`)."""
    dtype = size[0] if size else kwargs.get("dtype")
    if isinstance(dtype, type):  # `float`, `int`, ... stand for dtypes too
        dtype = creation.python_dtype(dtype)
    if type(dtype) is not DType:
        if RUNS.now is not None:
            return convert.call("view", self, *size, **kwargs)
        return function_of("view")(self, *size, **kwargs)
    handled, made = handle(Tensor.view, (self, dtype), {})  # type: ignore[attr-defined]
    return made if handled else view_dtype(self, dtype)


# ***** views taken in place *****


def _become(x: Tensor, shown: Tensor) -> None:
    """Give `x` the shape, the place and the history of its view; a change, for whoever saved `x` as it was."""
    x._spec, x._ptr, x._node = shown._spec, shown._ptr, shown._node
    if x._storage is not None:
        bump(x._storage)


def _restride(name: str, forms: int) -> None:
    """`x.t_()` and its kin: the tensor itself becomes its view, of which there are so many `forms`."""

    def change(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if (STATE.word & FUNCTION_MODE or type(self) not in plain_classes) and not isinstance(self, DispatchType):
            handled, made = handle(change, (self, *args), kwargs)
            if handled:
                return made
        check_writable(self, False)
        _become(self, getattr(self, name)(*args, **kwargs))
        # Of as many forms as the view has, those in place are counted after the others
        if isinstance(self._node, OpNode):
            stem, number = type(self._node).__name__[:-1], int(type(self._node).__name__[-1])
            self._node.__class__ = node_class(f"{stem}{number + forms}")
        if self._autograd_meta is not None:
            self._autograd_meta.output_nr = 0
        return self

    change.__name__ = name + "_"
    change.operator = row_named(name)  # type: ignore[attr-defined]
    change.__doc__ = f"`{name}` in place: shape and strides of this tensor change, its memory does not."
    setattr(Tensor, name + "_", change)


for _view in ("t", "transpose", "swapaxes", "swapdims", "squeeze", "unsqueeze"):
    _restride(_view, 3 if _view == "squeeze" else 1)


@method
def as_strided_(self: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """`as_strided` in place."""
    if STATE.word & FUNCTION_MODE or type(self) in dispatch_classes:
        place = () if storage_offset is None else (storage_offset,)
        handled, made = HOOKS.below(as_strided_, (self, list(size), list(stride), *place), {})
        if handled:
            return made
    check_writable(self, False)
    _become(self, as_strided(self, size, stride, storage_offset))
    return self
