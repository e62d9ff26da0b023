"""Tensors in ordinary pickles (copies between processes, `pickle.dumps`); files of checkpoints have a format of their
own.

Tensors that share a storage share it again after loading, as far as they went into the same pickle.
"""

from __future__ import annotations

import copyreg
import sys
import threading
from collections.abc import Callable
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.lazy import LazyModule
from rushlight._engine.core.hooks import OPS
from rushlight._engine.core.memory import bytes_at, device_of, fresh_storage, write_bytes
from rushlight._engine.core.tensor import Tensor, alias, make
from rushlight._engine.dispatch.override import as_subclass
from rushlight._types.device import META, as_device
from rushlight._types.dtype import DType
from rushlight._types.layout import extent
from rushlight._types.spec import Spec

handing: Any = LazyModule("rushlight._engine.sharing.ipc")

__all__ = ["AS_THERE", "SAVING", "form_there", "rebuild_storage", "rebuild_tensor", "rebuild_wrapper", "reduce_tensor"]

_known: set[type] = set()
# Under the name torch: what takes a tensor apart so that PyTorch can put it together.
AS_THERE: list[Callable[[Tensor], Any]] = []


class _Saving(threading.local):
    """Whether this thread is writing a checkpoint, which has another form for tensors."""

    reduction: Callable[[Tensor], tuple[Any, ...]] | None = None


SAVING = _Saving()


def form_there(x: Tensor) -> Any:
    """How PyTorch takes `x` apart, under the name torch and where it has a form for it; otherwise None."""
    made = AS_THERE[0](x) if AS_THERE else NotImplemented
    return None if made is NotImplemented else made


def reduce_tensor(self: Tensor, protocol: Any) -> tuple[Any, ...]:
    """How pickle takes a tensor apart: its storage, and the view of it."""
    if SAVING.reduction is not None:  # a subclass whose own form builds on this one
        return SAVING.reduction(self)
    spec, storage = self._spec, self._storage
    place = 0
    if storage is not None:
        # The native storage type exists once the runtime is loaded, so it is made known to pickle here.
        if type(storage) not in _known:
            copyreg.pickle(type(storage), _reduce_storage)
            _known.add(type(storage))
        if "multiprocessing.reduction" in sys.modules and handing.joins(type(storage), sys._getframe(1)):
            return handing.reduce_tensor(_written(self) if spec.conj else self)
        place = self._ptr - storage.ptr
    if (made := form_there(self)) is not None:
        return made
    if storage is None and spec.released:
        return (
            rebuild_wrapper,
            (type(self), spec.dtype, tuple(spec.shape), spec.strides, spec.device, self._rg),
            self._state(),
        )
    args = (
        type(self),
        storage,
        spec.dtype,
        place,
        tuple(spec.shape),
        spec.strides,
        self._rg,
        *((True,) if spec.conj else ()),
    )
    return rebuild_tensor, args, self._state() or None


def _written(x: Tensor) -> Tensor:
    """A conjugated (or negated) view with what it shows in memory of its own."""
    made = OPS["clone"](alias(x))
    made._rg = x._rg
    return made


def _reduce_storage(storage: Any) -> tuple[Any, ...]:
    device = device_of(storage)
    data = bytes(bytes_at(storage, storage.ptr, storage.nbytes)) if storage.nbytes else b""
    return rebuild_storage, (data,) if backend_of(device).host_readable else (data, str(device))


def rebuild_storage(data: bytes, device: str = "cpu") -> Any:
    """A storage with these bytes on a device; MissingDeviceError where there is no such device."""
    storage = fresh_storage(len(data), as_device(device))
    write_bytes(storage, 0, data)
    return storage


def rebuild_wrapper(
    cls: type[Tensor], dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], device: Any, requires_grad: bool
) -> Tensor:
    """A tensor without memory whose class says what operators do with it."""
    made = make(None, Spec.of(dtype, as_device(device), shape, strides, False, True), 0)
    made._rg = requires_grad
    return made if cls is Tensor else as_subclass(made, cls)


def rebuild_tensor(
    cls: type[Tensor],
    storage: Any,
    dtype: DType,
    place: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    requires_grad: bool,
    conj: bool = False,
) -> Tensor:
    """A tensor at byte `place` of a storage (None: on the meta device); `conj` says that the numbers there are its
    conjugates.
    """
    if storage is None:
        made = make(None, Spec.of(dtype, META, shape, strides, conj), 0)
    else:
        released = place + extent(shape, strides) * dtype.itemsize > storage.nbytes
        made = make(storage, Spec.of(dtype, device_of(storage), shape, strides, conj, released), storage.ptr + place)
    if cls is not Tensor:
        made = as_subclass(made, cls)
    made._rg = requires_grad
    return made


Tensor.__reduce_ex__ = reduce_tensor  # type: ignore[method-assign, assignment]
