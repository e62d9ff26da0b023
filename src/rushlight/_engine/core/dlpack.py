"""DLPack (https://dmlc.github.io/dlpack): sharing memory with other libraries, through NumPy's implementation of the
protocol.
"""

from __future__ import annotations

from typing import Any

from rushlight._backends.registry import backend_of, backends
from rushlight._base.lazy import LazyModule
from rushlight._base.lazy import numpy as np
from rushlight._engine.core.creation import from_numpy, to_array
from rushlight._engine.core.memory import is_host_memory
from rushlight._engine.core.tensor import Tensor
from rushlight._types.device import Device, as_device
from rushlight._types.dtype import BFLOAT16

capsules: Any = LazyModule("rushlight._engine.core.dlpack_capsules")

__all__ = ["from_dlpack", "to_dlpack"]

CPU_DEVICE = (1, 0)  # kDLCPU
EXTERNAL_DEVICE = 12  # kDLExtDev


def _export(
    self: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
) -> Any:
    """A capsule over this tensor's memory, or over a copy of it; the memory lives as long as the capsule or what was
    made from it.
    """
    _check(self)
    if not is_host_memory(self._spec):
        return _export_of_device(self, stream, max_version, dl_device, copy)
    if self._spec.dtype is BFLOAT16:
        raise BufferError(
            "rushlight exports no bfloat16 over DLPack: NumPy, which carries the protocol here, lacks that dtype"
        )
    if dl_device is not None and tuple(dl_device) != CPU_DEVICE:
        raise BufferError(f"rushlight has only CPU memory to share, not device {dl_device}")
    if stream is not None and type(stream) is not int:
        raise TypeError("stream must be ``int`` or ``none``")
    if stream not in (None, -1):
        raise BufferError("a CPU tensor takes no stream")
    array = to_array(self.clone() if copy else self)
    return array.__dlpack__(max_version=max_version) if max_version is not None and _versioned() else array.__dlpack__()


def _check(self: Tensor) -> None:
    """BufferError for a tensor that means more than its memory says, or that has none."""
    if self._rg:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if self._spec.conj:
        raise BufferError(
            f"Can't export tensors with the {'conjugate' if self._spec.dtype.is_complex else 'negative'} bit set"
        )
    if self._storage is None:
        raise BufferError("a meta tensor has no memory to share")
    if not is_host_memory(self._spec) and backend_of(self._spec.device).dlpack_type == EXTERNAL_DEVICE:
        raise BufferError(
            f"rushlight has only the host's memory to share, not that of {self.device}: share `tensor.cpu()`"
        )


def _versioned() -> bool:
    """Whether NumPy makes capsules that say whether they may be written to (DLPack 1.0, NumPy 2.1)."""
    return tuple(int(part) for part in np.__version__.split(".")[:2]) >= (2, 1)


def _device(self: Tensor) -> tuple[int, int]:
    return backend_of(self._spec.device).dlpack_type, self.device.index or 0


def _export_of_device(self: Tensor, stream: Any, max_version: Any, dl_device: Any, copy: bool | None) -> Any:
    """A capsule over a device's memory, for work that the consumer's stream gets from now on."""
    if dl_device is not None and tuple(dl_device) != _device(self):
        if tuple(dl_device) == CPU_DEVICE and copy is not False:
            return _export(self.cpu(), max_version=max_version)
        raise BufferError(f"memory of {self.device} is not shared with device {tuple(dl_device)}: copy it there first")
    if stream is not None and type(stream) is not int:
        raise TypeError("stream must be ``int`` or ``none``")
    backend, device = backend_of(self._spec.device), self._spec.device
    shared = self.clone() if copy else self
    if backend.asynchronous and stream != -1:
        mark = backend.event(device)
        mark.record(backend.current_stream(device))
        backend.external_stream(0 if stream in (None, 1) else stream, device).wait(mark)
    return capsules.capsule(shared, _device(self), max_version is not None and tuple(max_version) >= (1, 0))


Tensor.__dlpack__ = _export  # type: ignore[attr-defined]
Tensor.__dlpack_device__ = _device  # type: ignore[attr-defined]


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule over a tensor."""
    return _export(tensor)


class _Window:
    """An array's memory as NumPy's array interface, to be written to; keeps the array alive."""

    def __init__(self, array: Any) -> None:
        self.array = array
        shown = array.__array_interface__
        self.__array_interface__ = {**shown, "data": (shown["data"][0], False)}


class _Capsule:
    """Lets NumPy read a bare capsule."""

    def __init__(self, capsule: Any, place: tuple[int, int]) -> None:
        self.capsule, self.place = capsule, place

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of anything that speaks DLPack, or of a capsule.

    `copy=True` makes it new; `copy=False` raises ValueError where another `device` needs a copy; None copies where that
    must be.

    >>> x = torch.arange(3)
    >>> y = torch.from_dlpack(x, copy=True)
    >>> y[0] = 7
    >>> x
    tensor([0, 1, 2])
    """
    if not hasattr(ext_tensor, "__dlpack__"):
        if device is not None or copy is not None:
            raise AssertionError("device and copy kwargs not supported when ext_tensor is already a DLPack capsule.")
        if type(ext_tensor).__name__ != "PyCapsule":
            raise RuntimeError(
                f"from_dlpack received an invalid capsule: {type(ext_tensor).__name__} has no __dlpack__"
            )
        return _shared(_Capsule(ext_tensor, capsules.place_of(ext_tensor)))
    place = None if device is None else as_device(device)
    moves = place is not None and not backend_of(place).host_readable
    if moves and copy is False:
        raise ValueError(f"cannot move DLPack tensor to {place} without copying. Set copy=None or copy=True.")
    made = _shared(ext_tensor)
    if moves:
        return made.to(place)
    return made.clone() if copy else made


def _shared(source: Any) -> Tensor:
    """A tensor over the memory of what has `__dlpack__`."""
    if isinstance(source, Tensor):
        _check(source)
        return source.detach()
    device = source.__dlpack_device__()
    if int(device[0]) != CPU_DEVICE[0]:
        return _of_device(source, int(device[0]), int(device[1]))
    array = np.from_dlpack(source)
    if not array.flags.writeable:
        if isinstance(source, np.ndarray) and not source.flags.writeable:
            return from_numpy(np.array(array))
        # NumPy shows memory from the first version of the protocol, which knew no read-only flag, as read-only: it may
        # be written to.
        array = np.asarray(_Window(array))
    return from_numpy(array)


def _of_device(source: Any, kind: int, index: int) -> Tensor:
    """A tensor over memory of a device that is not the host, in the order of its current stream."""
    types = [type for type in backends() if type != "meta" and backend_of(Device(type, 0)).dlpack_type == kind]
    if not types or kind == EXTERNAL_DEVICE:
        raise BufferError(f"rushlight reads CPU memory over DLPack, this is on device {(kind, index)}")
    device = as_device(Device(types[0], index))
    backend = backend_of(device)
    options = {"stream": backend.current_stream(device).id or 1} if backend.asynchronous else {}
    try:
        found = source.__dlpack__(max_version=(1, 0), **options)
    except TypeError:  # a producer from before versions
        found = source.__dlpack__(**options)
    return capsules.consumed(found, device)
