"""Functions that pickles of PyTorch's tensors name (`torch._utils._rebuild_tensor_v2` and its kin), and how tensors are pickled
so that PyTorch reads them.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

import rushlight
from rushlight._interface.base import import_whole, trace_marks
from rushlight._interface.devices import private_type
from rushlight.compiler import is_compiling
from rushlight.serialization import rebuild
from rushlight.serialization.saving import reduction_of, save

__all__ = [
    "_element_size",
    "_flatten_dense_tensors",
    "_get_device_index",
    "_unflatten_dense_tensors",
    "is_compiling",
    "reduce_storage",
    "reduce_tensor",
]

globals().update(rebuild.BY_NAME)
torch = rushlight  # pickles of memory formats name `torch._utils.torch.channels_last`


def reduce_tensor(tensor: Any) -> Any:
    """How an ordinary pickle takes a tensor apart under the name torch; NotImplemented for what has no such form."""
    return reduction_of(tensor)


def reduce_storage(storage: Any) -> Any:
    """How an ordinary pickle takes a storage apart under the name torch: a small file in PyTorch's older format."""
    file = io.BytesIO()
    save(storage, file, _use_new_zipfile_serialization=False)
    return rushlight.storage._load_from_bytes, (file.getvalue(),)


def _element_size(dtype: Any) -> int:
    """Bytes of an element."""
    if not isinstance(dtype, rushlight.dtype):
        raise RuntimeError(f"expected torch.dtype, but got {type(dtype)}")
    return dtype.itemsize


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device: of a CPU, where that is allowed, -1; of none, if `optional`, that of the current one."""
    if isinstance(device, int):
        return device
    found = rushlight.device(device) if isinstance(device, str) else device
    if isinstance(found, rushlight.device):
        if found.type == "cpu" and not allow_cpu:
            raise ValueError(f"Expected a non cpu device, but got: {found}")
        if found.type == "cpu":
            return -1
        if found.index is not None:
            return found.index
    if optional and (found is None or isinstance(found, rushlight.device)):
        current = rushlight.accelerator.current_device_index
        return int(current()) if _get_available_device_type() is not None else -1
    raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")


def _get_available_device_type() -> str | None:
    """The kind of accelerator that there is; None where there is none."""
    return "cuda" if rushlight.cuda.is_available() else None


def _get_device_module(device_type: str) -> Any:
    """The page of a kind of device: `torch.cpu`, `torch.cuda`..."""
    found = getattr(rushlight, device_type, None)
    if found is None:
        raise RuntimeError(
            f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'."
        )
    return found


def _is_privateuse1_backend_available() -> bool:
    """Whether a backend from outside has registered its module and finds its device."""
    module = getattr(rushlight, private_type(), None)
    return module is not None and bool(module.is_available())


def _flatten_dense_tensors(tensors: Iterable[Any]) -> Any:
    """The elements of all tensors in one dim."""
    return rushlight.cat([t.contiguous().view(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Any, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Views of `flat` with the shapes of `tensors`."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple(part.view(t.shape) for part, t in zip(parts, tensors, strict=True))


@trace_marks.changes_later_calls
def _set_obj_state(obj: Any, state: Any) -> Any:
    """An object with what was kept of it: its attributes, or (attributes, slots)."""
    if isinstance(state, tuple):
        if len(state) != 2:
            raise RuntimeError(f"Invalid serialized state: {state}")
        attributes, slots = state
    else:
        attributes, slots = state, None
    if attributes:
        obj.__dict__.update(attributes)
    for name, value in (slots or {}).items():
        setattr(obj, name, value)
    return obj


def __getattr__(name: str) -> Any:
    if name == "ExceptionWrapper":  # an exception on its way to another process
        return import_whole("rushlight.utils.data._utils.worker").ExceptionWrapper
    raise AttributeError(f"rushlight has no '_utils.{name}' yet")
