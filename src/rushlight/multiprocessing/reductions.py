"""How `multiprocessing`'s messages take tensors apart: see `rushlight._engine.sharing.ipc`."""

from __future__ import annotations

import hmac
import mmap
import weakref
from multiprocessing import resource_sharer
from multiprocessing.reduction import ForkingPickler as ForkingPickler
from typing import Any

from rushlight._engine.sharing.ipc import reduce_storage, reduce_tensor
from rushlight._engine.sharing.pickling import rebuild_tensor
from rushlight._interface.memory import MEMORY
from rushlight._interface.processes import join, share_tensor
from rushlight.nn.parameter import Parameter

# What the thread of a queue needs is imported here: a process that is forked while a thread imports waits for that
# import for ever.
NEEDED = (hmac, mmap, resource_sharer, MEMORY.Storage)

__all__ = ["StorageWeakRef", "init_reductions", "rebuild_tensor", "reduce_storage", "reduce_tensor"]


class StorageWeakRef:
    """Remembers a storage without keeping it: two are equal when they are of the same memory.

    >>> import rushlight as torch
    >>> x = torch.ones(2)
    >>> StorageWeakRef(x.untyped_storage()) == StorageWeakRef(x[1:].untyped_storage())
    True
    """

    __slots__ = ("_storage", "cdata")

    def __init__(self, storage: Any) -> None:
        native = storage.untyped()._native
        self._storage = weakref.ref(native)
        self.cdata = int(native.ptr)

    def expired(self) -> bool:
        """Whether the storage is gone."""
        return self._storage() is None

    def __hash__(self) -> int:
        return self.cdata

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, StorageWeakRef) and self.cdata == other.cdata)


def _reduce_parameter(parameter: Parameter) -> tuple[Any, ...]:
    # Its memory moves as a whole: what its own way of pickling hands over is another tensor over the same memory.
    share_tensor(parameter)
    return parameter.__reduce_ex__(2)


def init_reductions() -> None:
    """Teach `multiprocessing` to hand tensors over by their memory."""
    join()
    ForkingPickler.register(Parameter, _reduce_parameter)
