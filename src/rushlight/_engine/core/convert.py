"""Tensor to tensor, to Python and to NumPy: copies, casts, detaching, reading out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.errors import warn_once
from rushlight._base.tracebacks import shorten
from rushlight._engine.autograd.node import Node
from rushlight._engine.core.creation import python_dtype, to_array
from rushlight._engine.core.elements import elements_of
from rushlight._engine.core.hooks import HOOKS, bump
from rushlight._engine.core.integers import as_int, as_ints
from rushlight._engine.core.memory import empty_spec, has_memory, is_host_memory, is_pinned, lend, moved, read_element
from rushlight._engine.core.state import FUNCTION_MODE, GRAD, INFERENCE, RECORDING, STATE, new_plan_table
from rushlight._engine.core.tensor import (
    Tensor,
    alias,
    dispatch_classes,
    edge_of,
    make,
    meta_of,
    plain_classes,
    window_of,
)
from rushlight._engine.dispatch.call import Caller, make_function
from rushlight._engine.dispatch.determinism import grown
from rushlight._engine.dispatch.inplace_calls import InplaceCaller, make_inplace
from rushlight._engine.dispatch.plans.native_lookup import (
    RUNS,
    make_dispatch,
    not_cacheable,
    ran,
    run_recorded,
    unwatched,
)
from rushlight._engine.dispatch.plans.native_plans import detach_plan, item_plan, nested_reader
from rushlight._engine.dispatch.underivable import underived
from rushlight._engine.dispatch_types.base import DispatchType
from rushlight._engine.indexing.inplace import check_captured, check_inference, check_writable, grow
from rushlight._engine.indexing.view import link_view
from rushlight._ops.bodies import C_NAME
from rushlight._ops.forms import forms
from rushlight._ops.shapes.memory import IMAGINARY
from rushlight._ops.table import OPERATORS
from rushlight._types.device import CPU, Device, as_device
from rushlight._types.dtype import BOOL, DType
from rushlight._types.formats import FORMATS, MemoryFormat
from rushlight._types.layout import (
    LARGEST,
    channels_last_strides,
    contiguous_strides,
    extent,
    filled_strides,
    is_channels_last,
    overflowed,
    preserved,
    suggests_channels_last,
)
from rushlight._types.spec import Spec, bytes_on, check_memory

__all__ = ["ITEMS", "clone", "contiguous", "copy_", "detach", "item", "numpy_of", "to", "to_device", "tolist"]

_CALLERS: dict[str, Caller] = {}
_DISPATCH: dict[str, Callable[..., Any]] = {}


def caller(name: str) -> Caller:
    """The caller of a table operator that the engine uses itself."""
    found = _CALLERS.get(name)
    if found is None:
        found = _CALLERS[name] = Caller(OPERATORS[name])
    return found


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a table operator by name."""
    if HOOKS.asks and _holds_kind(args):
        return make_function(caller(name))(*args, **kwargs)
    if RUNS.now is not None:
        row = caller(name)
        return run_recorded(row.prepare, args, kwargs, row.result, row.further)
    found = _DISPATCH.get(name)
    if found is None:
        row = caller(name)
        found = _DISPATCH[name] = make_dispatch(row.op, row.prepare, row.call, row.result, further=row.further)
    return found(*args, **kwargs)


_CASTS = new_plan_table()


def cast(x: Tensor, dtype: DType) -> Tensor:
    """`x` in another dtype; a copy also where it has that one."""
    if RUNS.now is not None:
        return run_recorded(caller("to_dtype").prepare, (x, dtype), {})
    key = (dtype, x._spec, x._rg, STATE.word)
    plan = _CASTS.get(key)
    if plan is not None and type(x) in plain_classes:
        return plan(x)
    if type(x) not in plain_classes or STATE.word & FUNCTION_MODE:
        return call("to_dtype", x, dtype)
    plan, inputs = caller("to_dtype").prepare((x, dtype), {})
    if len(inputs) == 1:
        _CASTS[key] = plan
    return plan(*inputs)


_INPLACE: dict[str, InplaceCaller] = {}


def _holds_kind(args: Any) -> bool:
    """Whether a tensor that is no block of memory is among the arguments."""
    for a in args:
        kind = type(a)
        if kind in plain_classes or kind is int or kind is float or a is None:
            continue
        if isinstance(a, DispatchType) or isinstance(a, (tuple, list)) and _holds_kind(a):
            return True
    return False


def call_inplace(name: str, *args: Any) -> Any:
    """Call the in-place form of a table operator by name."""
    if HOOKS.asks and _holds_kind(args):
        return make_inplace(inplace_caller(name))(*args)
    if RUNS.now is not None:
        return run_recorded(inplace_caller(name).prepare, args, {})
    found = _DISPATCH.get(name + "_")
    if found is None:
        row = inplace_caller(name)
        found = _DISPATCH[name + "_"] = make_dispatch(
            row.op, row.prepare, lambda args, kwargs: _run(row, args, kwargs), None, further=row.further
        )
    return found(*args)


def inplace_caller(name: str) -> InplaceCaller:
    """The caller of the in-place form of a table operator."""
    found = _INPLACE.get(name)
    if found is None:
        found = _INPLACE[name] = InplaceCaller(caller(name))
    return found


def _run(row: InplaceCaller, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    plan, inputs = row.prepare(args, kwargs)
    return plan(*inputs)


def format_name(memory_format: Any) -> str:
    """The name of a memory format; None counts as preserve_format."""
    if memory_format is None:
        return "preserve_format"
    if not isinstance(memory_format, MemoryFormat):
        raise TypeError(f"memory_format must be a torch.memory_format, not {type(memory_format).__name__}")
    return memory_format.name


def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy with memory of its own; the gradient flows through."""
    word = format_name(memory_format)
    if word == "preserve_format":
        return call("clone_core", input)
    if word == "contiguous_format":
        return call("clone_contiguous", input)
    if input._spec.ndim != (4 if word == "channels_last" else 5):
        raise RuntimeError(f"required rank {4 if word == 'channels_last' else 5} tensor to use {word} format")
    return call("clone_channels_last", input)


def is_in_format(spec: Spec, word: str) -> bool:
    """Whether a layout already has this memory format."""
    if word == "preserve_format":
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    if word == "contiguous_format":
        return spec.contiguous
    return spec.ndim == (4 if word == "channels_last" else 5) and is_channels_last(spec.shape, spec.strides)


def suggested_format(spec: Spec) -> str:
    """The memory format for which a layout is taken, also where sizes of 1 leave it open."""
    if not suggests_channels_last(spec.shape, spec.strides):
        return "contiguous_format"
    return "channels_last" if spec.ndim == 4 else "channels_last_3d"


def contiguous(x: Tensor, memory_format: Any = FORMATS["contiguous_format"]) -> Tensor:
    """`x` itself when it lies in this order already, else a copy that does."""
    if x._spec.contiguous and memory_format is FORMATS["contiguous_format"]:
        return clone(x) if x._spec.conj and not x._spec.dtype.is_complex else x
    return x if is_in_format(x._spec, format_name(memory_format)) else clone(x, memory_format=memory_format)


def detach(x: Tensor) -> Tensor:
    """The same memory outside of the graph."""
    if isinstance(x, DispatchType):
        return type(x).answer(detach, (x,), {})
    out = _detached(x)
    return ran(_DETACHING[0], (x,), out) if _DETACHING else out


_DETACHING: list[Any] = []  # the native plan, once it was asked for


def _detached(x: Tensor) -> Tensor:
    if RUNS.now is not None and not _DETACHING:
        _DETACHING.append(detach_plan(_detached))
    out = alias(x)
    if not STATE.word & INFERENCE:
        meta = meta_of(out)
        held = x._autograd_meta
        meta.inference = held.inference if held is not None else False
    else:
        meta_of(out).inference = True
    return out


@forms("(x: Tensor, source: Tensor | Scalar, non_blocking: bool = False) -> Tensor")
def copy_(x: Tensor, source: Any, non_blocking: bool = False) -> Tensor:
    """Write `source`, broadcast and cast, into `x`."""
    if not isinstance(source, (Tensor, bool, int, float, complex)):
        raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type(source).__name__}")
    if type(source) is complex and not x._spec.dtype.is_complex:
        if x._spec.dtype is BOOL:
            source = bool(source)
        elif source.imag:
            raise RuntimeError(f"value cannot be converted to type {x._spec.dtype.name} without overflow")
        else:
            source = source.real
    if isinstance(source, Tensor):
        if x.device is not source.device:
            if not has_memory(source._spec):
                raise NotImplementedError("Cannot copy out of meta tensor; no data!")
            if not has_memory(x._spec):
                check_writable(x, False)
                return x
            if non_blocking and is_host_memory(x._spec) and _arrives_as_it_is(x, source):
                return _copied_later(x, source)
            source = to_device(source, x.device, not (non_blocking and is_pinned(source._storage)))
        if source._spec.dtype.is_complex and not x._spec.dtype.is_complex:
            if x._spec.dtype is not BOOL:
                warn_once(IMAGINARY)
            source = source.real
        if not (x._spec.dtype.is_floating_point or x._spec.dtype.is_complex) and source._rg:
            source = detach(source)
    return _copy(x, source)


def _arrives_as_it_is(x: Tensor, source: Tensor) -> bool:
    """Whether a copy from a device is one of bytes, into pinned memory."""
    ours, theirs = x._spec, source._spec
    same = ours.dtype is theirs.dtype and ours.shape == theirs.shape and ours.strides == theirs.strides
    dense = ours.strides == preserved(ours.shape, ours.strides) and not (ours.conj or theirs.conj)
    return same and dense and not source._rg and not x._rg and is_pinned(x._storage)


def _copied_later(x: Tensor, source: Tensor) -> Tensor:
    check_writable(x, False)
    bump(x._storage)
    if x._spec.nbytes:
        backend_of(source._spec.device).copy_out(x._ptr, source._ptr, x._spec.nbytes, wait=False)  # type: ignore[call-arg]
    return x


def _copy(x: Tensor, source: Any) -> Tensor:
    found = call_inplace("copy", x, source, False)
    return found


def on_host(x: Tensor) -> Tensor:
    """`x`, or a copy of it in memory that the host can read, outside of any graph."""
    return x if is_host_memory(x._spec) else transferred(detach(x), CPU)


def transferred(x: Tensor, device: Device, wait: bool = True) -> Tensor:
    """A copy of a tensor on another device, outside of any graph, in dense memory of the same order of dims; `wait` as of
    `moved`.
    """
    spec, strides = x._spec, preserved(x._spec.shape, x._spec.strides)
    wanted = Spec.of(spec.dtype, device, spec.shape, strides)
    if not has_memory(wanted):
        return empty_spec(wanted)
    if not has_memory(spec):
        raise NotImplementedError(
            "Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to()."
        )
    check_memory(spec)
    return moved(x if strides == spec.strides and not spec.conj else clone(x), device, wait)


class ToCopyBackward0(Node):
    """The node of a copy to another device: the gradient goes back."""

    __slots__ = ("device",)

    device: Device

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        return [None if grads[0] is None else to_device(grads[0], self.device)]


def to_device(x: Tensor, device: Device, wait: bool = True) -> Tensor:
    """`x` on another device; the gradient flows through.  `wait` as of `moved`."""
    if x.device is device:
        return x
    if isinstance(x, DispatchType):
        return type(x).answer(to_device, (x, device), {})
    not_cacheable()
    before = STATE.word
    STATE.word = before & ~GRAD
    try:
        made = transferred(x, device, wait)
    finally:
        STATE.word = before
    if before & GRAD and x._rg:
        node = ToCopyBackward0()
        node._start([edge_of(x)])
        node.device = x.device
        made._node, made._rg = node, True
    return made


HOOKS.move = to_device


@forms(
    "(x: Tensor, dtype: dtype, non_blocking: bool = False, copy: bool = False, *, memory_format: memory_format | None = None) -> Tensor",
    "(x: Tensor, device: DeviceLike = None, dtype: dtype | None = None, non_blocking: bool = False, copy: bool = False, *, memory_format: memory_format | None = None) -> Tensor",
    "(x: Tensor, other: Tensor, non_blocking: bool = False, copy: bool = False, *, memory_format: memory_format | None = None) -> Tensor",
)
def to(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`x.to(dtype)`, `x.to(device)`, `x.to(device, dtype)`, `x.to(other)`; itself where nothing changes and `copy` is
    false.
    """
    try:
        if len(args) == 1 and not kwargs and type(args[0]) is DType:
            return x if args[0] is x._spec.dtype else cast(x, args[0])
        dtype, device, later, copy, memory_format = parse_to(*args, **kwargs)
        if device is not None and device is not x._spec.device:
            x = to_device(x, device, not later)
            copy = False
        changes = dtype is not None and dtype is not x._spec.dtype
        word = format_name(memory_format)
        if not changes and not copy:
            copy = word != "preserve_format" and suggested_format(x._spec) != word
        if changes:
            x = cast(x, dtype)  # type: ignore[arg-type]
            exact = (
                None
                if word == "preserve_format"
                else contiguous_strides
                if word == "contiguous_format"
                else channels_last_strides
            )
            return (
                x if exact is None or exact(x._spec.shape) == x._spec.strides else clone(x, memory_format=memory_format)
            )
        if not copy:
            return x
        return cast(x, x._spec.dtype) if memory_format is None else clone(x, memory_format=memory_format)
    except BaseException as error:
        shorten(error)
        raise


def parse_to(*args: Any, **kwargs: Any) -> tuple[DType | None, Device | None, bool, bool, Any]:
    """The forms of `to` as (dtype, device, non_blocking, copy, memory_format)."""
    dtype = kwargs.pop("dtype", None)
    device = kwargs.pop("device", None)
    other = kwargs.pop("other", None)
    flags = {k: kwargs.pop(k, d) for k, d in (("non_blocking", False), ("copy", False), ("memory_format", None))}
    if kwargs:
        raise TypeError(f"to() got an unexpected keyword argument '{next(iter(kwargs))}'")
    loose: list[Any] = []
    for value in args:
        if isinstance(value, Tensor) and not loose:
            other = value
        elif isinstance(value, DType):
            dtype = value
        elif isinstance(value, (str, Device)) and not loose:
            device = value
        elif type(value) is int and not loose:
            device = Device(value)
        elif isinstance(value, bool):
            loose.append(value)
        elif value is None:
            continue
        elif isinstance(value, type) and value in (float, int, bool, complex):
            dtype = python_dtype(value)
        else:
            raise TypeError(f"to() received an invalid combination of arguments: got {type(value).__name__}")
    for name, value in zip(("non_blocking", "copy"), loose):
        flags[name] = value
    if other is not None:
        dtype, device = dtype or other._spec.dtype, other._spec.device if device is None else device
    return (
        dtype,
        None if device is None else as_device(device),
        bool(flags["non_blocking"]),
        bool(flags["copy"]),
        flags["memory_format"],
    )


# ***** to Python and NumPy *****


ITEMS = new_plan_table()  # for specs of one element the function that reads it


@forms("(x: Tensor) -> Number")
def item(x: Tensor) -> Any:
    """The only element as a Python number."""
    try:
        reader = ITEMS.get(x._spec)
        if reader is not None and x._ptr and RUNS.now is None:
            return reader(x._ptr)
        not_cacheable()
        spec = x._spec
        if STATE.word & FUNCTION_MODE or type(x) in dispatch_classes:
            handled, made = HOOKS.below(item, (x,), {})
            if handled:
                return made
        if isinstance(x, DispatchType):
            return type(x).answer(item, (x,), {})
        if spec.numel != 1:
            raise RuntimeError(
                f"a Tensor with {spec.numel} elements cannot be converted to Scalar: its shape is {list(spec.shape)}; take one by an index, or all with tolist()"
            )
        if x._storage is None:
            raise RuntimeError("Tensor.item() cannot be called on meta tensors")
        check_memory(spec)
        if spec.conj:
            found = read_element(x)
            return found.conjugate() if spec.dtype.is_complex else -found
        reader = backend_of(spec.device).reader(spec.dtype)
        if not HOOKS.dispatch_modes:  # a mode is to see it, next time too
            ITEMS[spec] = reader
        return reader(x._ptr)
    except BaseException as error:
        shorten(error)
        raise


def answer(x: Tensor) -> Any:
    """`item`, for functions with cached plans that give it as it is."""
    if RUNS.now is None:
        return item(x)
    with unwatched():
        value = item(x)
    spec = x._spec
    plan = backend_of(x.device).bind(None, item, lambda: item_plan(item, spec))
    return ran(plan, (x,), value)


def tolist(x: Tensor) -> Any:
    """Nested lists of Python numbers; a number for a 0-dim tensor."""
    known = _ROWS.get(x._spec)
    if known is not None and x._ptr and RUNS.now is None and (type(x) is Tensor or not isinstance(x, DispatchType)):
        return known(x._ptr)
    not_cacheable()
    if not x._spec.ndim:
        return item(x)
    if x._storage is None and x._spec.device.type != "meta" and type(x) is not Tensor:
        raise RuntimeError(f".tolist() is not supported for tensor subclasses, got {type(x).__name__}")
    if x._storage is None:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    spec = x._spec
    check_memory(spec)
    if spec.numel and not isinstance(x, DispatchType) and is_host_memory(spec):
        reader = nested_reader(spec)
        if reader is not None:
            _ROWS[spec] = reader
            check_memory(x._spec)  # once more: another thread may have taken it away
            return reader(x._ptr)
    return elements_of(x).tolist()


_ROWS = new_plan_table()


def resolved(x: Tensor) -> Tensor:
    """The tensor with memory that holds its elements as they are, outside of the graph if it must be copied."""
    return clone(detach(x)) if x._spec.conj else x


@forms("(x: Tensor, *, force: bool = False) -> ndarray")
def numpy_of(x: Tensor, *, force: bool = False) -> Any:
    """A NumPy array that shares the tensor's memory."""
    try:
        if RUNS.now is not None:
            not_cacheable()
        if x._rg:
            if not force and STATE.word & GRAD:
                raise RuntimeError(
                    "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
                )
            x = detach(x)
        spec = x._spec
        if spec.conj:
            if not force:
                bit, way = ("conjugate", "resolve_conj") if spec.dtype.is_complex else ("negative", "resolve_neg")
                raise RuntimeError(
                    f"Can't call numpy() on Tensor that has {bit} bit set. Use tensor.{way}().numpy() instead."
                )
            x = resolved(x)
        if spec.dtype.numpy_name is None:
            raise TypeError(f"Got unsupported ScalarType {spec.dtype.scalar}")
        device = spec.device
        if x._storage is None and device.type != "meta":
            raise RuntimeError(".numpy() is not supported for tensor subclasses.")
        if x._storage is None:
            raise TypeError(
                "can't convert meta device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
            )
        if not (device.backend or backend_of(device)).host_readable:
            if STATE.word & RECORDING:
                raise STATE.recording.asked("numpy")
            if not force:
                raise TypeError(
                    f"can't convert {x.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
                )
            x = on_host(x)
        array = to_array(x)  # which gives a lazy clone memory of its own
        lend(x._storage)
        return array
    except BaseException as error:
        shorten(error)
        raise


def resize_(x: Tensor, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Tensor:
    """Another shape over the same storage, which grows (with undefined new elements) where it is too small.

    A shape that is there already keeps its strides, unless `strides` of dense memory are asked for.  The version counts
    only what changes the layout.
    """
    if x._rg and not STATE.word & INFERENCE:
        raise RuntimeError("cannot resize variables that require grad")
    check_inference(x)
    check_captured(x, "resize_")
    before, layout = 0 if x._storage is None else x._storage.nbytes, (x._spec.shape, x._spec.strides)
    grow(x, shape, strides)
    grown(x, before)
    if x._storage is not None and (x._spec.shape, x._spec.strides) != layout:
        bump(x._storage)
    return x


# ***** another tensor's memory *****


def set_(x: Tensor, source: Any = None, offset: int | None = None, shape: Any = None, strides: Any = None) -> Tensor:
    """Take over another tensor's (or storage's) memory, or a part of it; a storage that is too small grows."""
    wants = isinstance(source, Tensor) and source._rg
    if (
        (offset is None) is not (shape is None)
        or strides is not None
        and shape is None
        or source is None
        and shape is not None
    ):
        raise _no_form_of_set(source, offset, shape, strides)
    check_writable(x, wants)
    if source is None:
        empty = empty_spec(Spec.of(x._spec.dtype, x.device, (0,)))
        storage, spec, place = empty._storage, empty._spec, empty._ptr
    elif isinstance(source, Tensor) and shape is None:
        if source._spec.dtype is not x._spec.dtype:
            given, wanted = C_NAME[source.dtype.name], C_NAME[x.dtype.name]
            raise RuntimeError(f"Could not set tensor of type {given} to a tensor of type {wanted}")
        _same_device(x, source.device)
        storage, spec, place = source._storage, source._spec, source._ptr
    else:
        storage, spec, place = _shown_part(x, source, offset or 0, shape, strides)
    if STATE.word & GRAD and (x._rg or wants):
        node = underived("set_", [edge_of(x), edge_of(source) if wants else None])
        x._node, x._rg = node, True
        if x._autograd_meta is not None:
            x._autograd_meta.output_nr = 0
    elif x._autograd_meta is not None:
        x._autograd_meta.accumulator = None  # graphs of the old memory do not lead to the new
    if x._storage is not None:
        bump(x._storage)
    x._storage, x._spec, x._ptr = window_of(storage, x._storage), spec, place
    return x


def _no_form_of_set(*given: Any) -> TypeError:
    words = ", ".join(type(v).__name__ for v in given if v is not None)
    return TypeError(
        f"set_() received an invalid combination of arguments - got ({words}), but expected one of: (), (Storage source), (Tensor source), "
        "(Storage source, int storage_offset, tuple of ints size, tuple of ints stride), (Tensor source, int storage_offset, tuple of ints size, "
        "tuple of ints stride)"
    )


def _same_device(x: Tensor, device: Device) -> None:
    if x.device is not device:
        raise RuntimeError(
            f'Attempted to set the storage of a tensor on device "{x.device}" to a storage on different device "{device}".  '
            "This is no longer allowed; the devices must match."
        )


def _shown_part(x: Tensor, source: Any, offset: Any, shape: Any, strides: Any) -> tuple[Any, Spec, int]:
    """Storage, spec and address of a part of a tensor's or a storage's memory, all of it where `shape` is None."""
    dtype = x._spec.dtype
    if isinstance(source, Tensor):
        source = HOOKS.untyped_storage(source)
    elif hasattr(source, "untyped"):
        held = getattr(source, "dtype", dtype)
        if held is not dtype:
            raise RuntimeError(
                f"Expected a Storage of type {C_NAME[dtype.name]} or an UntypedStorage, but got type {held.scalar} for argument 1 'storage'"
            )
        source = source.untyped()
    else:
        raise _no_form_of_set(source, None, shape, strides)
    _same_device(x, source.device)
    start = as_int("set_", "storage_offset", offset)
    sizes = (source.nbytes() // dtype.itemsize,) if shape is None else as_ints("set_", "size", shape)
    given = () if strides is None else as_ints("set_", "stride", strides)
    steps = filled_strides(sizes, given) if given or not sizes else None
    if start < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {start}")
    spec = Spec.of(dtype, x.device, sizes, steps)
    need = (start + extent(spec.shape, spec.strides)) * dtype.itemsize if spec.numel else 0
    if need > LARGEST:
        raise RuntimeError(overflowed(spec.shape, spec.strides))
    step = bytes_on(spec, start)
    if not has_memory(spec):
        return None, spec, step
    if need > source.nbytes():
        source.resize_(need)
    return source._native, spec, source._native.ptr + step


def as_alias_view(x: Tensor) -> Tensor:
    """Another tensor object over the same memory that counts as a view (`x.view_as(x)`)."""
    out = make(x._storage, x._spec, x._ptr)
    link_view(x, out, "" if STATE.word & GRAD else "no_grad")
    return out


# ***** elements that only decide whether something rare happens *****


def deferred(x: Tensor, failed: Callable[[Tensor], Tensor]) -> bool:
    """Whether a check of the elements of `x` is left to the program that is being recorded.

    `failed(x)` gives a tensor that is true where an element is wrong.  Calls of the program look at it, and where it is
    true the calls that were recorded run one by one, so that this check raises its error where it stands.
    """
    recording = STATE.recording
    if recording is None or not recording.is_recorded(x):
        return False
    word, STATE.word = STATE.word, STATE.word & ~GRAD
    try:
        recording.check(failed(x.detach()).any())
    finally:
        STATE.word = word
    return True


def assumed_zero(x: Tensor) -> bool:
    """Whether a tensor of one element is not zero: a rare event.

    While a program is recorded the answer is False, and calls of the program for which it is not run as they are.
    """
    recording = STATE.recording
    if recording is not None and not recording.defers:  # who runs the program does not look
        return bool(item(x))
    return not deferred(x, lambda found: found.ne(0)) and bool(item(x))


__all__ += [
    "answer",
    "as_alias_view",
    "assumed_zero",
    "deferred",
    "call",
    "call_inplace",
    "caller",
    "parse_to",
    "resize_",
    "resolved",
    "set_",
]
