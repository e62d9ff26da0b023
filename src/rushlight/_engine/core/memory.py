"""Memory for tensors on any device, and reading single elements: the engine's door to the backends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight._backends.registry import accelerator, backend_of, backends_in_use
from rushlight._base.lazy import LazyModule, require
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import RECORDING, STATE
from rushlight._engine.core.tensor import Tensor, make
from rushlight._types.device import CPU, Device
from rushlight._types.spec import Spec, check_memory, check_sizes

if TYPE_CHECKING:
    from rushlight._backends.protocol import Backend

lazy_clone: Any = LazyModule("rushlight._engine.core.lazy_clone")

__all__ = [
    "MEMORY",
    "bytes_at",
    "check_resizable",
    "copy_storage",
    "device_of",
    "empty_spec",
    "fresh_storage",
    "from_address",
    "has_memory",
    "is_host_memory",
    "is_pinned",
    "is_resizable",
    "lend",
    "moved",
    "own",
    "pinned",
    "read_element",
    "root_of",
    "write_bytes",
    "zeros_spec",
]


class _Memory:
    """The host's own memory: the pool's functions and the type of all storages, loaded by the first use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        runtime = require("rushlight._host.runtime").runtime()
        self.alloc, self.from_owner, self.Storage = backend_of(CPU).allocator(CPU), runtime.from_owner, runtime.Storage
        return self.__dict__[name]


MEMORY: Any = _Memory()
HOOKS.storage_from_owner = lambda *args: MEMORY.from_owner(*args)


def empty_spec(spec: Spec) -> Tensor:
    """A tensor of this (dense) spec over fresh memory."""
    device = spec.device
    backend = device.backend or backend_of(device)
    if backend.shapes_only:
        return make(None, spec, 0)
    check_memory(spec)
    check_sizes(spec)
    storage = backend.allocate(spec.nbytes, device)
    return make(storage, spec, storage.ptr)


def zeros_spec(spec: Spec) -> Tensor:
    """A tensor of zeros."""
    device = spec.device
    backend = device.backend or backend_of(device)
    if backend.shapes_only:
        return make(None, spec, 0)
    check_memory(spec)
    check_sizes(spec)
    storage = backend.zeros(spec.nbytes, device)
    return make(storage, spec, storage.ptr)


def from_address(address: int, spec: Spec, nbytes: int, owner: Any) -> Tensor:
    """A tensor over memory that `owner` keeps alive."""
    storage = MEMORY.from_owner(address, nbytes, owner)
    return make(storage, spec, address)


def own(x: Any) -> None:
    """Give a tensor that is about to be written memory that no lazy clone shares."""
    if x._storage is not None and x._storage.born < 0:
        lazy_clone.separate(x)


def root_of(storage: Any) -> Any:
    """The storage whose memory this one shows: that of `x.data` is a window on that of `x`."""
    kind = type(storage)
    while type(storage.owner) is kind:
        storage = storage.owner
    return storage


def is_resizable(storage: Any) -> bool:
    """Whether a storage's memory may move: it is neither somebody else's (an array's, a file's) nor shown by an array."""
    if getattr(storage, "version", None) is None or not hasattr(storage, "owner"):  # of a tensor without memory
        return True
    root = root_of(storage)
    movable = root.owner is None or getattr(root.owner, "movable", False)
    return movable and not root.lent and storage.nbytes == root.nbytes


def check_resizable(storage: Any) -> None:
    """RuntimeError where a storage's memory may not move, or is a part of another's."""
    if not is_resizable(storage):
        if STATE.word & RECORDING:
            raise STATE.recording.refused("resizing memory that the program was given")
        raise RuntimeError("Trying to resize storage that is not resizable")


def lend(storage: Any) -> None:
    """Remember that an array shows the memory of a storage."""
    root_of(storage).lent = 1


def read_element(x: Tensor) -> Any:
    """The first element as a Python number."""
    spec = x._spec
    check_memory(spec)
    return backend_of(spec.device).reader(spec.dtype)(x._ptr)


def device_of(storage: Any) -> Device:
    """The device whose memory a storage has: the host where nobody says otherwise."""
    device = getattr(root_of(storage).owner, "device", None)  # of a `Block`; an array's is a string
    return device if isinstance(device, Device) else CPU


def fresh_storage(nbytes: int, device: Device) -> Any:
    """A storage of a device's memory with whatever is in it; None where tensors have no memory."""
    return backend_of(device).allocate(nbytes, device)


def copy_storage(storage: Any) -> Any:
    """A storage on the same device with the same bytes."""
    device = device_of(storage)
    if STATE.word & RECORDING:
        STATE.recording.burn_in()
    made = fresh_storage(storage.nbytes, device)
    if storage.nbytes:
        backend_of(device).copy(made.ptr, storage.ptr, storage.nbytes, device)
    return made


def bytes_at(storage: Any, address: int, nbytes: int) -> memoryview:
    """The bytes at an address within a storage: those of the host's memory themselves, of another device's a copy."""
    device = device_of(storage)
    backend = backend_of(device)
    if backend.host_readable:
        start = address - storage.ptr
        return memoryview(storage).cast("B")[start : start + nbytes]
    copied = MEMORY.alloc(nbytes)
    if nbytes:
        backend.copy_out(copied.ptr, address, nbytes)
    return memoryview(copied).cast("B")


def write_bytes(storage: Any, start: int, data: Any) -> None:
    """Put bytes into a storage from `start` on."""
    device, nbytes = device_of(storage), len(data)
    backend = backend_of(device)
    if backend.host_readable:
        memoryview(storage).cast("B")[start : start + nbytes] = data
    elif nbytes:
        staged = MEMORY.alloc(nbytes)
        memoryview(staged).cast("B")[:] = data
        backend.copy_in(storage.ptr + start, staged.ptr, nbytes)


def moved(x: Tensor, device: Device, wait: bool = True) -> Tensor:
    """A copy of a dense tensor on another device, byte by byte and laid out as it is, outside of any graph.

    Without `wait` it may arrive later, in the order of the device's stream; then the host's copy is in pinned memory.
    """
    spec = x._spec
    if STATE.word & RECORDING:
        given: Tensor | None = STATE.recording.moved(x, device)
        if given is not None:
            return given
    here, there = backend_of(spec.device), backend_of(device)
    later = not wait and (here.asynchronous or there.asynchronous)
    wanted = Spec.of(spec.dtype, device, spec.shape, spec.strides)
    made = pinned_spec(here, wanted) if later and there.host_readable else empty_spec(wanted)
    if there.shapes_only or not spec.numel:
        return made
    nbytes, target, source = spec.nbytes, made._ptr, x._ptr
    how = {"wait": False} if later else {}
    if here is there:
        here.copy_peer(target, device, source, spec.device, nbytes)
    elif here.host_readable:
        there.copy_in(target, source, nbytes, **how)
    elif there.host_readable:
        here.copy_out(target, source, nbytes, **how)
    else:  # between two types of device there is only the way over the host
        return moved(moved(x, CPU), device)
    return made


def pinned_spec(backend: Backend, spec: Spec) -> Tensor:
    """A tensor of the host over fresh memory that is pinned for a backend's devices."""
    storage = backend.allocate_pinned(spec.nbytes)
    return make(storage, spec, storage.ptr)


def is_pinned(storage: Any) -> bool:
    """Whether a storage is of memory that is pinned for the devices of some backend."""
    return storage is not None and any(b.asynchronous and b.is_pinned(storage.ptr) for b in backends_in_use())


def pinned(x: Tensor) -> Tensor:
    """A dense tensor of the host, or its copy in memory that is pinned for the accelerator, outside of any graph."""
    backend = accelerator()
    if backend is None:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    if not is_host_memory(x._spec):
        raise RuntimeError(f"cannot pin '{x._spec.device}' memory: only dense CPU tensors can be pinned")
    if is_pinned(x._storage):
        return x
    made = pinned_spec(backend, x._spec)
    if x._spec.nbytes:
        backend_of(CPU).copy(made._ptr, x._ptr, x._spec.nbytes, CPU)
    return made


def has_memory(spec: Spec) -> bool:
    """Whether tensors of a spec have elements in memory, as they have on all devices but `meta`."""
    return not backend_of(spec.device).shapes_only


def is_host_memory(spec: Spec) -> bool:
    """Whether the host may read the elements of tensors of a spec at their address."""
    return backend_of(spec.device).host_readable
