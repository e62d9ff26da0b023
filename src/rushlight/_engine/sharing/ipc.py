"""How tensors travel in the messages of `multiprocessing`: their memory moves to shared memory, and what is sent is
where it lies.

The receiver's tensor looks at the very same bytes.  `join` teaches `multiprocessing`'s pickler; it is called when
`rushlight.multiprocessing` is imported, or when that pickler meets its first tensor.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.lazy import LazyModule
from rushlight._engine.core.hooks import OPS
from rushlight._engine.core.memory import MEMORY, is_host_memory, root_of
from rushlight._engine.core.storage import UntypedStorage
from rushlight._engine.core.tensor import Tensor, alias
from rushlight._engine.sharing.pickling import rebuild_tensor, rebuild_wrapper
from rushlight._engine.sharing.shared import NamedBlock, SharedBlock, count_holders, place_of, share, share_tensor
from rushlight._types.device import Device

reduction: Any = LazyModule("multiprocessing.reduction")

__all__ = ["NON_LEAF", "join", "reduce_storage", "reduce_tensor"]

NON_LEAF = (
    "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing process boundaries.  "
    "If you just want to transfer the data, call detach() on the tensor before serializing (e.g., putting it on the queue)."
)
# Storages that came from other processes, by their file and place: what arrives twice is one storage.
_ARRIVED: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
_known: set[type] = set()


def join() -> None:
    """Make `multiprocessing`'s pickler hand tensors over by their memory."""
    register = reduction.ForkingPickler.register
    register(Tensor, reduce_tensor)
    register(UntypedStorage, _reduce_untyped)


def joins(storage_type: type, frame: Any) -> bool:
    """Whether an ordinary pickle, asked for in this frame, is `multiprocessing`'s first one with memory of tensors.

    A pickler takes the table of reducers with it when it is made; those that are made from now on know what to do.
    """
    if storage_type in _known:
        return False
    _known.add(storage_type)
    join()
    reduction.ForkingPickler.register(storage_type, reduce_storage)
    return frame.f_globals.get("__name__") == "multiprocessing.reduction"


def reduce_tensor(x: Tensor) -> tuple[Any, ...]:
    """How a message takes a tensor apart; RuntimeError for one that has a history."""
    if x._rg and x._node is not None:
        raise RuntimeError(NON_LEAF)
    if x._spec.conj:  # the values of a conjugated view are not what its memory says
        return reduce_tensor(OPS["clone"](alias(x)).requires_grad_(x._rg))
    place, storage = 0, None
    if x._storage is not None and not is_host_memory(x._spec):
        storage = _reduce_of_device(root_of(x._storage), x._spec.device)
        place = x._ptr - root_of(x._storage).ptr
    elif x._storage is not None:
        share_tensor(x)
        place, storage = x._ptr - x._storage.ptr, reduce_storage(x._storage)
    spec = x._spec
    if storage is None and spec.released:
        return rebuild_wrapper, (type(x), spec.dtype, tuple(spec.shape), spec.strides, spec.device, x._rg), x._state()
    args = (type(x), storage, spec.dtype, place, tuple(spec.shape), spec.strides, x._rg)
    return _rebuild_tensor, args, x._state() or None


def _reduce_of_device(storage: Any, device: Device) -> tuple[Any, ...]:
    """How a message takes the storage of a device apart; who sends keeps the memory while others use it."""
    return _of_device, (device.type, backend_of(device).export_memory(storage.ptr, device), storage.nbytes)


def _of_device(type: str, data: Any, nbytes: int) -> Any:
    block = backend_of(Device(type, 0)).import_memory(data, nbytes)
    return MEMORY.from_owner(block.address, nbytes, block)


def _rebuild_tensor(cls: type[Tensor], storage: tuple[Any, ...] | None, *view: Any) -> Tensor:
    return rebuild_tensor(cls, storage[0](*storage[1]) if storage is not None else None, *view)


def _reduce_untyped(storage: UntypedStorage) -> tuple[Any, ...]:
    storage.share_memory_()
    return _untyped, reduce_storage(storage._native)


def _untyped(rebuild: Any, args: tuple[Any, ...]) -> UntypedStorage:
    return UntypedStorage(native=rebuild(*args))


def reduce_storage(storage: Any) -> tuple[Any, ...]:
    """How a message takes a storage apart: its block's descriptor or name, and the place in it."""
    if not storage.nbytes:
        return _nothing, ()
    place = place_of(storage)
    if place is None:
        place = place_of(share(storage))
    assert place is not None
    block, offset = place
    if isinstance(block, NamedBlock):
        count_holders(block.name, block.nbytes, +1)  # the message holds it too, until it arrives
        return _from_name, (block.name, block.nbytes, offset, storage.nbytes)
    if block.handle < 0:
        raise RuntimeError(
            "this tensor came from a worker of a DataLoader, which had to close the descriptor of its memory: send a clone of it"
        )
    return _from_handle, (reduction.DupFd(block.handle), block.nbytes, offset, storage.nbytes)


def _nothing() -> Any:
    return MEMORY.alloc(0)


def _from_handle(sent: Any, total: int, offset: int, nbytes: int) -> Any:
    handle = sent.detach()
    try:
        status = os.fstat(handle)
        key = (status.st_dev, status.st_ino)
        block = _ARRIVED.get(key)
        if block is None:
            block = _ARRIVED[key] = SharedBlock(total, os.dup(handle))
    finally:
        os.close(handle)
    return _part(block, key, offset, nbytes)


def _from_name(name: str, total: int, offset: int, nbytes: int) -> Any:
    block = _ARRIVED.get((name,))
    if block is None:
        block = _ARRIVED[(name,)] = NamedBlock(total, name)  # takes over the message's share
    else:
        count_holders(name, total, -1)
    return _part(block, (name,), offset, nbytes)


def _part(block: SharedBlock, key: tuple[Any, ...], offset: int, nbytes: int) -> Any:
    if offset < 0 or nbytes < 0 or offset + nbytes > block.nbytes:
        raise RuntimeError(f"a message names bytes {offset} to {offset + nbytes} of a shared block of {block.nbytes}")
    place = (*key, offset, nbytes)
    storage = _ARRIVED.get(place)
    if storage is None:
        storage = _ARRIVED[place] = MEMORY.from_owner(block.address + offset, nbytes, block)
    return storage
