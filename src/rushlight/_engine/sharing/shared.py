"""Memory that processes share.

Two kinds, as PyTorch's two sharing strategies: anonymous files in memory, which are handed to another process by their
descriptor and which no crash leaves behind, because they have no name; and files in memory with a name, for systems
that allow few open descriptors.  A forked process has its parent's mappings of both.  When the last tensor over a block
is gone, so is the block.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from rushlight._backends.registry import host
from rushlight._base.lazy import LazyModule
from rushlight._base.trace_marks import changes_later_calls
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.memory import MEMORY, is_host_memory, own, root_of
from rushlight._engine.core.tensor import Tensor, make
from rushlight._types.device import CPU
from rushlight._types.spec import Spec

ctypes: Any = LazyModule("ctypes")
fcntl: Any = LazyModule("fcntl")
collector: Any = LazyModule("rushlight._base.collector")
gc: Any = LazyModule("gc")
mmap: Any = LazyModule("mmap")
tempfile: Any = LazyModule("tempfile")
posixshmem: Any = LazyModule("_posixshmem")
process_ends: Any = LazyModule("multiprocessing.util")
resource_tracker: Any = LazyModule("multiprocessing.resource_tracker")

__all__ = [
    "STRATEGIES", "NamedBlock", "SharedBlock", "count_holders", "is_shared", "new_block", "place_of", "relocate", "seen_by_others", "set_strategy", "share",
    "share_tensor", "strategy", "tensor_in",
]  # fmt: skip

STRATEGIES = ("file_descriptor", "file_system")


class Shared(Protocol):
    """Owner of memory inside of a block: the block itself, or the object that accounts for its parts."""

    @property
    def shared_block(self) -> SharedBlock: ...


class SharedBlock:
    """A mapping of shared memory, and the descriptor of its file; `SharedBlock(nbytes, handle)` maps one that another
    process made.
    """

    __slots__ = ("__weakref__", "address", "handle", "mapped", "nbytes")

    def __init__(self, nbytes: int, handle: int | None = None) -> None:
        self.mapped = 0
        self.handle = _anonymous(nbytes) if handle is None else handle
        self._map(self.handle, nbytes)
        self.nbytes = nbytes

    def _map(self, handle: int, nbytes: int) -> None:
        if os.fstat(handle).st_size < nbytes:  # reading beyond its end would kill the process
            raise RuntimeError(
                f"unable to map {nbytes} bytes of shared memory: the file has {os.fstat(handle).st_size}"
            )
        self.address = _system().mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, handle, 0)
        if self.address == _FAILED:
            raise RuntimeError(f"unable to map {nbytes} bytes of shared memory: {os.strerror(ctypes.get_errno())}")
        self.mapped = nbytes

    def __del__(self) -> None:
        if self.mapped:
            _system().munmap(self.address, self.mapped)
        self.close_handle()

    @property
    def shared_block(self) -> SharedBlock:
        return self

    def close_handle(self) -> None:
        """Let the descriptor go: the memory stays mapped here, and can no longer be handed to others."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            os.close(handle)


_FAILED = (1 << (8 * struct.calcsize("P"))) - 1


@cache
def _system() -> Any:
    """The system's own functions: a mapping of Python's `mmap` module keeps a second descriptor open."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return library


class NamedBlock(SharedBlock):
    """Shared memory with a name.  A counter behind its bytes says how many processes (and messages on their way) hold
    it: the last one removes the name.  What a process that was killed leaves behind is removed by Python's resource
    tracker when the program has ended.
    """

    __slots__ = ("name",)

    def __init__(self, nbytes: int, name: str | None = None) -> None:
        flags = os.O_RDWR if name else os.O_RDWR | os.O_CREAT | os.O_EXCL
        self.name = name or f"/rushlight_{os.getpid()}_{os.urandom(8).hex()}"
        self.handle, self.mapped = -1, 0
        handle = posixshmem.shm_open(self.name, flags, mode=0o600)
        try:
            if name is None:
                resource_tracker.register(self.name, "shared_memory")
                os.ftruncate(handle, _counter_of(nbytes) + 8)
            self._map(handle, _counter_of(nbytes) + 8)
        finally:
            os.close(handle)
        self.nbytes = nbytes
        if name is None:
            count_holders(self.name, nbytes, +1)
        process_ends.Finalize(self, count_holders, (self.name, nbytes, -1), exitpriority=0)


def _counter_of(nbytes: int) -> int:
    return -(-nbytes // 8) * 8


def count_holders(name: str, nbytes: int, step: int) -> None:
    """Change the number of holders; the name goes with the last one."""
    try:
        handle = posixshmem.shm_open(name, os.O_RDWR, mode=0o600)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        held = int.from_bytes(os.pread(handle, 8, _counter_of(nbytes)), "little") + step
        os.pwrite(handle, max(held, 0).to_bytes(8, "little"), _counter_of(nbytes))
        if held <= 0:
            posixshmem.shm_unlink(name)
            resource_tracker.unregister(name, "shared_memory")
    finally:
        os.close(handle)


def _anonymous(nbytes: int) -> int:
    """An open file of this size in memory, without a name."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("rushlight", os.MFD_CLOEXEC)
    else:
        place = "/dev/shm" if os.path.isdir("/dev/shm") else None
        handle, path = tempfile.mkstemp(prefix="rushlight-", dir=place)
        os.unlink(path)
    os.ftruncate(handle, nbytes)
    return handle


# ***** which kind *****

_strategy = [STRATEGIES[0]]


def strategy() -> str:
    """The strategy in force."""
    return _strategy[0]


@changes_later_calls
def set_strategy(name: str) -> None:
    """Choose how new blocks are made; those that exist stay what they are."""
    if name == "file_system":
        resource_tracker.ensure_running()  # before the next fork, so that all processes of the program have the same one
    _strategy[0] = name


def new_block(nbytes: int) -> SharedBlock:
    """Shared memory of the kind that the strategy asks for."""
    return NamedBlock(nbytes) if _strategy[0] == "file_system" else SharedBlock(nbytes)


# ***** tensors over it *****


def place_of(storage: Any) -> tuple[SharedBlock, int] | None:
    """The shared block that a storage lies in, and where; None for private memory."""
    owner = storage.owner
    while owner is not None:
        block = getattr(owner, "shared_block", None)
        if block is not None:
            return block, storage.ptr - block.address
        if type(owner) is not type(storage):
            return None
        owner = owner.owner  # the storage of `x.data` is a window on that of `x`
    return None


def is_shared(storage: Any) -> bool:
    """Whether other processes can see a storage's memory."""
    return place_of(storage) is not None


def share(storage: Any) -> Any:
    """A storage's bytes in shared memory: itself where they are there, else a new storage to which all tensors over the
    old one move.
    """
    if is_shared(storage):
        return storage
    root = root_of(storage)
    return relocate(storage, _copy_of(root))


def share_tensor(x: Tensor) -> None:
    """Move a tensor's storage to shared memory, and all tensors over it."""
    if HOOKS.lazy_clones:
        own(x)
    storage = x._storage
    if not is_host_memory(x._spec) or is_shared(storage):
        return  # the memory of an accelerator counts as shared
    if storage.owner is None and not storage.windows and not seen_by_others(x):  # nobody else to be told: no search
        x._storage = fresh = _copy_of(storage)
        x._ptr += fresh.ptr - storage.ptr
    else:
        share(storage)


def seen_by_others(x: Tensor) -> bool:
    """Whether anybody holds the storage besides the tensor and one variable of the caller."""
    return _references(x) > _ALONE


def _references(x: Tensor) -> int:
    return sys.getrefcount(x._storage)


def _alone() -> int:
    """The result of `_references` for a storage that one tensor and one variable of the caller hold: measured, since
    interpreters differ.
    """
    lone: Any = object.__new__(Tensor)
    lone._storage = storage = object()
    found = _references(lone)
    del storage
    return found


_ALONE = _alone()


def _copy_of(storage: Any) -> Any:
    block = new_block(max(storage.nbytes, 1))
    fresh = MEMORY.from_owner(block.address, storage.nbytes, block)
    host().copy(fresh.ptr, storage.ptr, storage.nbytes, CPU)
    fresh.stamp = storage.stamp
    return fresh


def relocate(old: Any, new: Any) -> Any:
    """Let every tensor over one storage, and over others that show its memory, look at the memory of another, at the
    same offsets.

    `new` replaces the root of `old`.  The result replaces `old` itself.  Tensors keep the address of their first
    element, so each is told; the garbage collector knows where they are.  Those that reach beyond the end of the other
    storage lose their memory (`Spec.released`) until there is a storage with room for them.
    """
    root = root_of(old)
    # What stands for each storage: kept with it, so that no other has its address meanwhile
    told: dict[int, tuple[Any, Any]] = {}

    def moved(storage: Any) -> Any:
        if id(storage) not in told:
            fresh = new if storage is root else _moved_window(storage, root, new)
            fresh.stamp = storage.stamp
            told[id(storage)] = (storage, fresh)
        return told[id(storage)][1]

    with collector.thawed():
        holders = gc.get_objects() if root.windows else gc.get_referrers(root)
    for holder in holders:
        if issubclass(type(holder), Tensor):  # `isinstance` would ask the object, and some do more than answer
            _move_tensor(holder, root, moved)
        elif hasattr(type(holder), "_look_at") and _shows(holder._native, root):
            holder._look_at(moved(holder._native))
    return moved(old)


def _shows(storage: Any, root: Any) -> bool:
    return type(storage) is type(root) and root_of(storage) is root


def _moved_window(storage: Any, root: Any, new: Any) -> Any:
    """A window on `new` where `storage` is one on `root`: on all of it where it shows all."""
    start = storage.ptr - root.ptr
    whole = start == 0 and storage.nbytes == root.nbytes
    return MEMORY.from_owner(
        new.ptr + start, new.nbytes if whole else max(0, min(storage.nbytes, new.nbytes - start)), new
    )


def _move_tensor(holder: Tensor, root: Any, moved: Callable[[Any], Any]) -> None:
    """Let a tensor look at what stands for its storage, if that shows the memory of `root`."""
    while _shows(storage := getattr(holder, "_storage", None), root):
        assert storage is not None
        new, before = moved(storage), holder._spec
        released = holder._ptr - storage.ptr + _reach(before) > new.nbytes
        spec, place = before, holder._ptr + new.ptr - storage.ptr
        if spec.released is not released and spec.numel:
            spec = Spec.of(spec.dtype, spec.device, spec.shape, spec.strides, spec.conj, released)
        # No call between here and the last of the three: other threads see all of them, or none
        if holder._spec is before:
            holder._storage = new
            holder._ptr = place
            holder._spec = spec


def _reach(spec: Spec) -> int:
    """How many bytes a tensor with elements spans."""
    return (1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True))) * spec.dtype.itemsize


def tensor_in(block: Shared, address: int, nbytes: int, spec: Any) -> Tensor:
    """A tensor with a storage of its own inside of a block; `block` is kept as long as the storage lives."""
    return make(MEMORY.from_owner(address, nbytes, block), spec, address)
