"""The functions that a file names to make tensors again. They check everything, for a file may say anything."""

from __future__ import annotations

import reprlib
import threading
from collections.abc import Callable
from types import MemberDescriptorType
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight._interface.files import RANGES, SCHEMES, Quantizer, make_quantized
from rushlight.serialization import memory
from rushlight.storage import TypedStorage

nested: Any = LazyModule("rushlight.nested.tensors")

__all__ = [
    "CHECKS", "DimRange", "JaggedType", "get_layout", "rebuild_device_tensor", "rebuild_device_tensor_from_numpy", "rebuild_from_type_v2", "rebuild_meta_tensor_no_storage",
    "rebuild_nested_tensor", "rebuild_njt", "rebuild_parameter", "rebuild_parameter_with_state", "rebuild_qtensor", "rebuild_sparse_tensor",
    "rebuild_tensor", "rebuild_tensor_v2", "rebuild_tensor_v3", "rebuild_wrapper_subclass",
]  # fmt: skip


def shown(value: Any) -> str:
    """A value in an error: short, and without calling anything of it that could take long."""
    return (
        reprlib.repr(value)
        if isinstance(value, (str, bytes, int, float, type(None), tuple, list)) and not _holds_others(value)
        else f"a {type(value).__name__}"
    )


def _holds_others(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and not all(
        isinstance(v, (str, bytes, int, float, type(None))) for v in value
    )


class _Checks(threading.local):
    """Checks of contents: made at once, or, where storages are filled after the tensors are made, when they are."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] | None = None
        self.budget: int | None = None

    def charge(self, nbytes: int) -> None:
        """Account for memory that is made or looked through on a file's behalf: a small file must not ask for much, or
        again and again.
        """
        if self.budget is not None:
            self.budget -= nbytes
            if self.budget < 0:
                raise RuntimeError("corrupt file: it asks for far more memory than it has bytes")

    def soon(self, check: Callable[[], None]) -> None:
        """Check as soon as there are contents."""
        if self.waiting is None:
            check()
        else:
            self.waiting.append(check)


CHECKS = _Checks()


def _whole_numbers(values: Any, what: str) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)) or not all(type(v) is int and 0 <= v < 2**62 for v in values):
        raise RuntimeError(f"corrupt file: a tensor's {what} must be non-negative integers, got {shown(values)}")
    return tuple(values)


def _check_extent(dtype: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], nbytes: int) -> None:
    """A tensor must lie inside its storage."""
    if len(size) != len(stride):
        raise RuntimeError(f"corrupt file: a tensor has {len(size)} sizes but {len(stride)} strides")
    if len(size) > 64:
        raise RuntimeError(f"corrupt file: a tensor has {len(size)} dimensions")
    last = -1 if 0 in size else sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    needed = (offset + last + 1) * dtype.itemsize if last >= 0 else 0
    if needed > nbytes:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize "
            f"{dtype.itemsize} requiring a storage size of {needed} are out of bounds for storage of size {nbytes}"
        )


def _tensor(storage: Any, dtype: Any, offset: Any, size: Any, stride: Any) -> Any:
    if type(storage) is not TypedStorage:
        raise RuntimeError(f"corrupt file: a tensor needs a storage, got {type(storage).__name__}")
    if not isinstance(dtype, memory.DType):
        raise RuntimeError(f"corrupt file: a tensor needs a dtype, got {type(dtype).__name__}")
    sizes, strides = _whole_numbers(size, "sizes"), _whole_numbers(stride, "strides")
    (place,) = _whole_numbers((offset,), "storage offset")
    _check_extent(dtype, place, sizes, strides, storage.nbytes())
    if storage.device.type == "meta":
        return rushlight.empty_strided(sizes, strides, dtype=dtype, device="meta")
    return memory.tensor_over(memory.native(storage), dtype, place, sizes, strides)


def rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Any:
    """A tensor over `storage`, with the storage's dtype."""
    return _tensor(storage, getattr(storage, "dtype", None), storage_offset, size, stride)


def rebuild_tensor_v2(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Any:
    """A tensor over `storage`, with the storage's dtype; hooks are never restored."""
    made = _tensor(storage, getattr(storage, "dtype", None), storage_offset, size, stride)
    return _finished(made, requires_grad, metadata)


def rebuild_tensor_v3(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> Any:
    """A tensor of `dtype` over an untyped `storage`."""
    return _finished(_tensor(storage, dtype, storage_offset, size, stride), requires_grad, metadata)


def _finished(made: Any, requires_grad: Any, metadata: Any) -> Any:
    if metadata:
        if not isinstance(metadata, dict) or set(metadata) - {"conj", "neg"}:
            raise RuntimeError(f"corrupt file: unknown tensor metadata {shown(metadata)}")
        if metadata.get("conj"):
            if not made.is_complex():
                raise RuntimeError("corrupt file: only complex tensors are conjugated")
            made = made.conj()
        if metadata.get("neg"):
            if made.is_complex() or made.dtype is rushlight.bool:
                raise RuntimeError("corrupt file: only real tensors are negated")
            made = made._neg_view()
    return made.requires_grad_(True) if requires_grad else made


def rebuild_meta_tensor_no_storage(dtype: Any, size: Any, stride: Any, requires_grad: bool) -> Any:
    """A tensor without memory, on the meta device."""
    if not isinstance(dtype, memory.DType):
        raise RuntimeError(f"corrupt file: a tensor needs a dtype, got {type(dtype).__name__}")
    sizes, strides = _whole_numbers(size, "sizes"), _whole_numbers(stride, "strides")
    _check_extent(dtype, 0, sizes, strides, 2**62)
    made = rushlight.empty_strided(sizes, strides, dtype=dtype, device="meta")
    return made.requires_grad_(True) if requires_grad else made


def rebuild_device_tensor(data: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    """A tensor that was on an accelerator and went into the file as one in ordinary memory: it stays in ordinary
    memory.
    """
    if not isinstance(data, rushlight.Tensor) or not isinstance(dtype, memory.DType):
        raise RuntimeError("corrupt file: a tensor of an accelerator needs a tensor and a dtype")
    CHECKS.charge(data.numel() * 16)
    made = data.to(dtype=dtype)
    return made.requires_grad_(True) if requires_grad else made


def rebuild_device_tensor_from_numpy(data: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    """A tensor that was on an accelerator and went into the file as a NumPy array: it stays in ordinary memory."""
    if type(data).__module__ != "numpy" or not hasattr(data, "__array_interface__"):
        raise RuntimeError(f"corrupt file: a tensor of an accelerator needs an array, got {type(data).__name__}")
    return rebuild_device_tensor(rushlight.from_numpy(data), dtype, device, requires_grad)


def is_dispatched(cls: type) -> bool:
    """Whether a class of tensors says what operators do with them."""
    return cls.__torch_dispatch__ is not rushlight.Tensor.__torch_dispatch__  # type: ignore[attr-defined]


def rebuild_wrapper_subclass(
    cls: Any, dtype: Any, size: Any, stride: Any, storage_offset: Any, layout: Any, device: Any, requires_grad: Any
) -> Any:
    """The shell of a tensor subclass that wraps others: sizes and a dtype without memory; what it wraps are its
    attributes. One without `__torch_dispatch__` is on the meta device.
    """
    if not (isinstance(cls, type) and issubclass(cls, rushlight.Tensor)) or layout is not rushlight.strided:
        raise RuntimeError(f"corrupt file: cannot make the shell of {shown(cls)}")
    if not isinstance(dtype, memory.DType):
        raise RuntimeError(f"corrupt file: a tensor needs a dtype, got {type(dtype).__name__}")
    sizes, strides = _whole_numbers(size, "sizes"), _whole_numbers(stride, "strides")
    (place,) = _whole_numbers((storage_offset,), "storage offset")
    _check_extent(dtype, place, sizes, strides, 2**62)
    if is_dispatched(cls):
        where = {"dtype": dtype, "device": rushlight.device(device), "requires_grad": bool(requires_grad)}
        return rushlight.Tensor._make_wrapper_subclass(cls, sizes, strides, place, **where)  # type: ignore[attr-defined]
    made = rushlight.empty_strided(sizes, strides, dtype=dtype, device="meta").as_subclass(cls)
    return made.requires_grad_(True) if requires_grad else made


def get_layout(name: str) -> Any:
    """The layout that a file names, such as `torch.sparse_coo`."""
    found = (
        rushlight.SPARSE_LAYOUTS.get(str(name).removeprefix("torch.")) if name != "torch.strided" else rushlight.strided
    )
    if found is None:
        raise RuntimeError(f"corrupt file: unknown layout {shown(name)}")
    return found


# ***** sparse, quantized, nested *****


def rebuild_sparse_tensor(layout: Any, data: Any) -> Any:
    """A sparse tensor over its parts, every index of which is checked."""
    if not isinstance(layout, rushlight.layout) or not isinstance(data, tuple) or len(data) not in (3, 4):
        raise RuntimeError("corrupt file: a sparse tensor needs a layout and its parts")
    tensors = data[: 2 if layout is rushlight.SPARSE_LAYOUTS["sparse_coo"] else 3]
    if not all(isinstance(part, rushlight.Tensor) and part.layout is rushlight.strided for part in tensors):
        raise RuntimeError("corrupt file: the parts of a sparse tensor must be strided tensors")
    if not isinstance(data[len(tensors)], tuple):
        raise RuntimeError("corrupt file: a sparse tensor needs a size")
    size = _whole_numbers(tuple(data[len(tensors)]), "sizes")
    for part in tensors[:-1]:
        CHECKS.charge(part.numel() * 64)
    if len(tensors) == 3:
        made = rushlight.sparse_compressed_tensor(*tensors, size, layout=layout, check_invariants=False)

        def check_compressed() -> None:
            rushlight.sparse_compressed_tensor(*tensors, size, layout=layout, check_invariants=True)

        CHECKS.soon(check_compressed)
        return made
    made = rushlight.sparse_coo_tensor(*tensors, size, check_invariants=False)

    def check() -> None:
        rushlight.sparse_coo_tensor(*tensors, size, check_invariants=True)
        if len(data) == 4 and data[3] and _in_order(tensors[0], size):
            made._coalesced_(True)

    CHECKS.soon(check)
    return made


def _in_order(indices: Any, size: tuple[int, ...]) -> bool:
    """Whether coordinates are as strictly ordered as the file says."""
    places = indices.new_zeros(indices.shape[1])
    for row, extent in zip(indices, size, strict=False):
        places = places * extent + row
    return bool((places[1:] > places[:-1]).all())


def rebuild_qtensor(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    quantizer_params: Any,
    requires_grad: bool,
    backward_hooks: Any,
) -> Any:
    """A quantized tensor over the integers in `storage`."""
    dtype = getattr(storage, "dtype", None)
    if dtype not in RANGES or not isinstance(quantizer_params, tuple) or len(quantizer_params) not in (3, 4):
        raise RuntimeError("corrupt file: a quantized tensor needs a quantized dtype, a scheme and its scales")
    scheme, scale, zero_point, *axis = quantizer_params
    ints = _tensor(storage, RANGES[dtype][0], storage_offset, size, stride)
    if scheme is SCHEMES["per_tensor_affine"] and not axis:
        if not isinstance(scale, (int, float)) or type(zero_point) is not int:
            raise RuntimeError(
                "corrupt file: a quantized tensor needs a number for its scale and an integer for its zero point"
            )
        return make_quantized(ints, dtype, Quantizer(scheme, float(scale), zero_point))
    count = (ints.shape[axis[0]],) if axis and type(axis[0]) is int and 0 <= axis[0] < ints.dim() else None
    if not all(isinstance(v, rushlight.Tensor) and tuple(v.shape) == count for v in (scale, zero_point)):
        raise RuntimeError("corrupt file: a quantized tensor needs one scale and zero point for each channel")
    if scheme not in (SCHEMES["per_channel_affine"], SCHEMES["per_channel_affine_float_qparams"]):
        raise RuntimeError(f"corrupt file: unknown quantization scheme {shown(scheme)}")
    return make_quantized(ints, dtype, Quantizer(scheme, scale, zero_point, axis[0]))


def _table(x: Any, dims: int) -> list[Any]:
    if (
        not isinstance(x, rushlight.Tensor)
        or x.dtype is not rushlight.int64
        or x.dim() != dims
        or x.layout is not rushlight.strided
        or x.is_meta
    ):
        raise RuntimeError("corrupt file: the sizes, strides and offsets of a nested tensor must be tensors of int64")
    CHECKS.charge(x.numel() * 64)
    return x.tolist()


def rebuild_nested_tensor(buffer: Any, sizes: Any, strides: Any, storage_offsets: Any) -> Any:
    """A nested tensor over a flat buffer, given the shape, strides and offset of each item."""
    if CHECKS.waiting is not None:
        raise RuntimeError(
            "nested tensors cannot be read from a file in the legacy format; save them in the zip format"
        )
    if (
        not isinstance(buffer, rushlight.Tensor)
        or buffer.dim() != 1
        or buffer.layout is not rushlight.strided
        or buffer.is_meta
    ):
        raise RuntimeError("corrupt file: a nested tensor needs a flat buffer")
    if isinstance(sizes, rushlight.Tensor) and sizes.dim() == 0 or not len(sizes):
        return nested.from_items([])
    shapes, steps, places = _table(sizes, 2), _table(strides, 2), _table(storage_offsets, 1)
    if not len(shapes) == len(steps) == len(places):
        raise RuntimeError("corrupt file: a nested tensor needs as many strides and offsets as sizes")
    items, packed, end = [], True, 0
    for shape, step, place in zip(shapes, steps, places, strict=True):
        size, stride = _whole_numbers(shape, "sizes"), _whole_numbers(step, "strides")
        _whole_numbers((place,), "storage offset")
        _check_extent(buffer.dtype, place, size, stride, buffer.numel() * buffer.element_size())
        item = buffer.as_strided(size, stride, place)
        CHECKS.charge(item.numel() * item.element_size())
        packed, end = packed and place == end and item.is_contiguous(), end + item.numel()
        items.append(item)
    if packed and end == buffer.numel():
        return nested.make_strided(buffer.detach(), shapes)
    return nested.from_items(items).detach()


class JaggedType:
    """Stands for PyTorch's class of jagged nested tensors."""


class DimRange:
    """A remark of PyTorch's compiler on a tensor's dim, which is kept as it was found."""

    __slots__ = ("dim", "max", "min")

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, list) or len(state) != 3:
            raise RuntimeError("corrupt file: a range of a dim has three parts")
        self.dim, self.min, self.max = state


def rebuild_njt(parts: Any) -> Any:
    """A jagged nested tensor of its parts: values, offsets, and what says how they go together."""
    if not isinstance(parts, dict) or not all(
        isinstance(parts.get(name), rushlight.Tensor) for name in ("values", "offsets")
    ):
        raise RuntimeError("corrupt file: a jagged tensor needs values and offsets")
    values, offsets, lengths, ragged = (
        parts["values"],
        parts["offsets"],
        parts.get("lengths"),
        parts.get("_ragged_idx", 1),
    )
    if type(ragged) is not int or not 1 <= ragged <= values.dim():
        raise RuntimeError(
            f"corrupt file: a jagged tensor of {values.dim() + 1} dims cannot be ragged in dim {shown(ragged)}"
        )
    if (
        offsets.dim() != 1
        or not len(offsets)
        or lengths is not None
        and (not isinstance(lengths, rushlight.Tensor) or lengths.dim() != 1)
    ):
        raise RuntimeError("corrupt file: the offsets and lengths of a jagged tensor have one dim")

    def check() -> None:
        starts = _table(offsets.to(rushlight.int64), 1)
        ends = (
            starts[1:]
            if lengths is None
            else [a + b for a, b in zip(starts, _table(lengths.to(rushlight.int64), 1), strict=True)]
        )
        if any(not 0 <= a <= b <= values.size(ragged - 1) for a, b in zip(starts, ends, strict=False)):
            raise RuntimeError("corrupt file: the items of a jagged tensor must lie inside its values")

    CHECKS.soon(check)
    made = nested.make_jagged(values, offsets, lengths, ragged)
    return made.requires_grad_(True) if parts.get("requires_grad") else made


# ***** parameters and subclasses *****


def rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Any:
    """A parameter over `data`."""
    if not isinstance(data, rushlight.Tensor):
        raise RuntimeError(f"corrupt file: a parameter needs a tensor, got {type(data).__name__}")
    return rushlight.nn.Parameter(data, bool(requires_grad))


def rebuild_parameter_with_state(data: Any, requires_grad: bool, backward_hooks: Any, state: Any) -> Any:
    """A parameter over `data` with attributes of its own."""
    return _with_state(rebuild_parameter(data, requires_grad, backward_hooks), state)


def rebuild_from_type_v2(func: Any, new_type: Any, args: Any, state: Any) -> Any:
    """A tensor made by `func(*args)`, seen as the tensor subclass `new_type`, with attributes of its own."""
    if func is rebuild_njt and new_type is JaggedType and isinstance(args, tuple):
        return rebuild_njt(*args)
    if func not in _MAKERS or not (isinstance(new_type, type) and issubclass(new_type, rushlight.Tensor)):
        raise RuntimeError(f"corrupt file: cannot make a tensor of type {shown(new_type)} by {shown(func)}")
    if func is rebuild_wrapper_subclass and hasattr(new_type, "_from_pickled"):
        return new_type._from_pickled(args, state)
    made = func(*args)
    if new_type is not rushlight.Tensor and type(made) is not new_type:
        made = made.as_subclass(new_type)
    setter = getattr(new_type, "__setstate__", None)
    if setter is not None and setter is not getattr(rushlight.Tensor, "__setstate__", None):
        setter(made, state)
        return made
    return _with_state(made, state)


def _with_state(made: Any, state: Any) -> Any:
    parts = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if not all(part is None or isinstance(part, dict) for part in parts):
        raise RuntimeError("corrupt file: the attributes of a tensor must be a dict")
    # Into the instance's dictionary: a file must not reach properties such as `data` or `grad`.
    made.__dict__.update({str(key): value for key, value in (parts[0] or {}).items()})
    for key, value in (parts[1] or {}).items():
        if not _has_slot(type(made), key):
            raise RuntimeError(f"corrupt file: {type(made).__name__} has no slot {shown(key)}")
        setattr(made, key, value)
    return made


def _has_slot(cls: type, name: Any) -> bool:
    """Whether a subclass of Tensor has a slot of its own for this attribute."""
    slot = getattr(cls, str(name), None)
    return isinstance(slot, MemberDescriptorType) and slot.__objclass__ is not rushlight.Tensor


_MAKERS = (
    rebuild_tensor, rebuild_tensor_v2, rebuild_tensor_v3, rebuild_meta_tensor_no_storage, rebuild_sparse_tensor, rebuild_qtensor,
    rebuild_parameter, rebuild_parameter_with_state, rebuild_device_tensor, rebuild_device_tensor_from_numpy, rebuild_nested_tensor,
    rebuild_wrapper_subclass,
)  # fmt: skip

# Pickles name these functions by the pages where PyTorch has them: `rushlight._utils` here, `torch._utils` under the
# name torch.
BY_NAME: dict[str, Callable[..., Any]] = {
    "_rebuild_device_tensor_from_cpu_tensor": rebuild_device_tensor,
    "_rebuild_device_tensor_from_numpy": rebuild_device_tensor_from_numpy,
    "_rebuild_meta_tensor_no_storage": rebuild_meta_tensor_no_storage,
    "_rebuild_nested_tensor": rebuild_nested_tensor,
    "_rebuild_parameter": rebuild_parameter,
    "_rebuild_parameter_with_state": rebuild_parameter_with_state,
    "_rebuild_qtensor": rebuild_qtensor,
    "_rebuild_sparse_tensor": rebuild_sparse_tensor,
    "_rebuild_tensor": rebuild_tensor,
    "_rebuild_tensor_v2": rebuild_tensor_v2,
    "_rebuild_tensor_v3": rebuild_tensor_v3,
    "_rebuild_wrapper_subclass": rebuild_wrapper_subclass,
}
for _name, _function in BY_NAME.items():
    _function.__module__, _function.__qualname__ = "rushlight._utils", _name
rebuild_from_type_v2.__module__, rebuild_from_type_v2.__qualname__ = "rushlight._tensor", "_rebuild_from_type_v2"
get_layout.__module__, get_layout.__qualname__ = "rushlight.serialization", "_get_layout"
_get_layout = get_layout
