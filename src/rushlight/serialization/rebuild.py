"""The functions that a file names to make tensors again. They check everything, for a file may say anything."""

from __future__ import annotations

from typing import Any

import rushlight

__all__ = [
    "LoadedStorage",
    "get_layout",
    "rebuild_from_type_v2",
    "rebuild_meta_tensor_no_storage",
    "rebuild_parameter",
    "rebuild_parameter_with_state",
    "rebuild_qtensor",
    "rebuild_sparse_tensor",
    "rebuild_tensor",
    "rebuild_tensor_v2",
    "rebuild_tensor_v3",
]


class LoadedStorage:
    """A storage read from a file, with the dtype that the file gives it. `storage` is None on the meta device."""

    __slots__ = ("dtype", "nbytes", "storage")

    def __init__(self, storage: Any, dtype: Any, nbytes: int) -> None:
        self.storage = storage
        self.dtype = dtype
        self.nbytes = nbytes


def _whole_numbers(values: Any, what: str) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)) or not all(type(v) is int and 0 <= v < 2**62 for v in values):
        raise RuntimeError(f"corrupt file: a tensor's {what} must be non-negative integers, got {values!r:.100}")
    return tuple(values)


def _check_extent(dtype: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], nbytes: int) -> None:
    """A tensor must lie inside its storage."""
    if len(size) != len(stride):
        raise RuntimeError(f"corrupt file: a tensor has {len(size)} sizes but {len(stride)} strides")
    last = -1 if 0 in size else sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    needed = (offset + last + 1) * dtype.itemsize if last >= 0 else 0
    if needed > nbytes:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize "
            f"{dtype.itemsize} requiring a storage size of {needed} are out of bounds for storage of size {nbytes}"
        )


def _tensor(storage: Any, dtype: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False) -> Any:
    from rushlight.serialization import memory

    if not isinstance(storage, LoadedStorage):
        raise RuntimeError(f"corrupt file: a tensor needs a storage, got {type(storage).__name__}")
    if not isinstance(dtype, memory.DType):
        raise RuntimeError(f"corrupt file: a tensor needs a dtype, got {type(dtype).__name__}")
    sizes, strides = _whole_numbers(size, "sizes"), _whole_numbers(stride, "strides")
    (place,) = _whole_numbers((offset,), "storage offset")
    _check_extent(dtype, place, sizes, strides, storage.nbytes)
    if storage.storage is None:
        made = rushlight.empty_strided(sizes, strides, dtype=dtype, device="meta")
    else:
        made = memory.tensor_over(storage.storage, dtype, place, sizes, strides)
    if requires_grad:
        made.requires_grad_(True)
    return made


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
    # Conjugation and negation may be bits on a view; here they are done at once.
    if metadata:
        unknown = set(metadata) - {"conj", "neg"}
        if unknown:
            raise RuntimeError(f"corrupt file: unknown tensor metadata {sorted(map(str, unknown))}")
        if metadata.get("conj"):
            made = made.conj_physical()
        if metadata.get("neg"):
            made = made.neg()
    return made.requires_grad_(True) if requires_grad else made


def rebuild_meta_tensor_no_storage(dtype: Any, size: Any, stride: Any, requires_grad: bool) -> Any:
    """A tensor without memory, on the meta device."""
    sizes, strides = _whole_numbers(size, "sizes"), _whole_numbers(stride, "strides")
    made = rushlight.empty_strided(sizes, strides, dtype=dtype, device="meta")
    return made.requires_grad_(True) if requires_grad else made


def get_layout(name: str) -> Any:
    """The layout that a file names, such as `torch.sparse_coo`."""
    found = rushlight.SPARSE_LAYOUTS.get(str(name).removeprefix("torch.")) if name != "torch.strided" else rushlight.strided
    if found is None:
        raise RuntimeError(f"corrupt file: unknown layout {name!r:.100}")
    return found


def rebuild_sparse_tensor(layout: Any, data: Any) -> Any:
    """A sparse tensor over its parts, every index of which is checked."""
    if not isinstance(layout, rushlight.layout) or not isinstance(data, tuple) or len(data) not in (3, 4):
        raise RuntimeError("corrupt file: a sparse tensor needs a layout and its parts")
    tensors = data[: 2 if layout is rushlight.SPARSE_LAYOUTS["sparse_coo"] else 3]
    if not all(isinstance(part, rushlight.Tensor) and part.layout is rushlight.strided for part in tensors):
        raise RuntimeError("corrupt file: the parts of a sparse tensor must be strided tensors")
    size = _whole_numbers(tuple(data[len(tensors)]), "sizes")
    if len(tensors) == 2:
        ordered = bool(data[3]) if len(data) == 4 else False
        made = rushlight.sparse_coo_tensor(*tensors, size, check_invariants=True)
        return made._coalesced_(True) if ordered and _in_order(tensors[0], size) else made
    return rushlight.sparse_compressed_tensor(*tensors, size, layout=layout, check_invariants=True)


def _in_order(indices: Any, size: tuple[int, ...]) -> bool:
    """Whether coordinates are as strictly ordered as the file says."""
    places = rushlight.zeros(indices.shape[1], dtype=rushlight.int64)
    for row, extent in zip(indices, size, strict=False):
        places = places * extent + row
    return bool((places[1:] > places[:-1]).all())


def rebuild_qtensor(
    storage: Any, storage_offset: int, size: Any, stride: Any, quantizer_params: Any, requires_grad: bool, backward_hooks: Any
) -> Any:
    """A quantized tensor over the integers in `storage`."""
    from rushlight._engine.quantized import RANGES, SCHEMES, Quantizer, make_quantized

    dtype = getattr(storage, "dtype", None)
    if dtype not in RANGES or not isinstance(quantizer_params, tuple) or len(quantizer_params) not in (3, 4):
        raise RuntimeError("corrupt file: a quantized tensor needs a quantized dtype, a scheme and its scales")
    scheme, scale, zero_point, *axis = quantizer_params
    ints = _tensor(storage, RANGES[dtype][0], storage_offset, size, stride)
    if scheme is SCHEMES["per_tensor_affine"] and not axis:
        return make_quantized(ints, dtype, Quantizer(scheme, float(scale), int(zero_point)))
    count = (ints.shape[axis[0]],) if axis and type(axis[0]) is int and 0 <= axis[0] < ints.dim() else None
    if not all(isinstance(v, rushlight.Tensor) and tuple(v.shape) == count for v in (scale, zero_point)):
        raise RuntimeError("corrupt file: a quantized tensor needs one scale and zero point for each channel")
    if scheme not in (SCHEMES["per_channel_affine"], SCHEMES["per_channel_affine_float_qparams"]):
        raise RuntimeError(f"corrupt file: unknown quantization scheme {scheme!r:.100}")
    return make_quantized(ints, dtype, Quantizer(scheme, scale, zero_point, axis[0]))


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
    if func not in _MAKERS or not (isinstance(new_type, type) and issubclass(new_type, rushlight.Tensor)):
        raise RuntimeError(f"corrupt file: cannot make a tensor of type {new_type!r:.100} by {func!r:.100}")
    made = func(*args)
    if new_type is not rushlight.Tensor and type(made) is not new_type:
        made = made.as_subclass(new_type)
    return _with_state(made, state)


def _with_state(made: Any, state: Any) -> Any:
    attributes = dict(state[0] or {}) if isinstance(state, tuple) and len(state) == 2 else dict(state or {})
    if isinstance(state, tuple) and len(state) == 2:
        attributes.update(state[1] or {})
    # Into the instance's dictionary: a file must not reach properties such as `data` or `grad`.
    made.__dict__.update({str(key): value for key, value in attributes.items()})
    return made


_MAKERS = (
    rebuild_tensor,
    rebuild_tensor_v2,
    rebuild_tensor_v3,
    rebuild_meta_tensor_no_storage,
    rebuild_sparse_tensor,
    rebuild_qtensor,
    rebuild_parameter,
    rebuild_parameter_with_state,
)
