"""Which backend stands for a type of device: one table, filled by `register`, asked by `backend_of`.

>>> from rushlight._backends.registry import backend_of
>>> from rushlight._types.device import CPU
>>> backend_of(CPU).type, backend_of(CPU).host_readable
('cpu', True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rushlight._base.errors import AcceleratorError, MissingDeviceError
from rushlight._base.lazy import require
from rushlight._types.device import CPU, Device, add_type, remove_type

if TYPE_CHECKING:
    from rushlight._backends.protocol import Backend

__all__ = ["accelerator", "backend_of", "backends", "backends_in_use", "host", "register", "unregister", "why_absent"]

_LOADERS: dict[str, Callable[[], Backend]] = {
    "cpu": lambda: require("rushlight._backends.cpu.backend").CpuBackend(),
    "meta": lambda: require("rushlight._backends.meta.backend").MetaBackend(),
}
_LOADED: dict[str, Backend] = {}
_BUILT_IN = frozenset(_LOADERS)
# Types that some machines have: why this one has not (None: it has), and their backend.
_OPTIONAL: dict[str, tuple[Callable[[], str | None], Callable[[], Backend]]] = {
    "cuda": (
        lambda: require("rushlight._backends.cuda.driver.choice").unavailable(),
        lambda: require("rushlight._backends.cuda.backend").CudaBackend(),
    )
}


def register(type: str, load: Callable[[], Backend]) -> None:
    """Let `load()` make the backend of a type of device when a device of the type is first used.

    The type becomes one that `torch.device` knows.  ValueError for a type that has a backend.
    """
    if type in _LOADERS and (type not in _OPTIONAL or _is_present(type)):
        raise ValueError(f"device type '{type}' has a backend already")
    _LOADERS[type] = load
    add_type(type, _canonical)


def unregister(type: str) -> None:
    """Take back what `register` did, for tests; tensors on devices of the type may not be used any longer."""
    if type in _BUILT_IN:
        raise ValueError(f"device type '{type}' is built in")
    del _LOADERS[type]
    _LOADED.pop(type, None)
    remove_type(type)
    if type in _OPTIONAL:
        _register_optional(type)


def _register_optional(type: str) -> None:
    _LOADERS[type] = _OPTIONAL[type][1]
    add_type(type, _canonical, lambda: why_absent(type) is None)


def why_absent(type: str) -> str | None:
    """Why this machine has no devices of a registered type; None where it has."""
    optional = _OPTIONAL.get(type)
    if optional is None or _LOADERS[type] is not optional[1]:  # or a backend from outside serves it
        return None
    return optional[0]()


def _is_present(type: str) -> bool:
    return why_absent(type) is None


def _canonical(device: Device) -> Device:
    """The device with its index; RuntimeError where there is no such device."""
    backend = _loaded(device.type)
    if device.index is None:
        return Device(device.type, backend.current_device())
    if device.index >= backend.device_count():
        kind = RuntimeError if device.type == "cpu" else AcceleratorError
        raise kind(
            f"invalid device {device}: there are {backend.device_count()} devices of type '{device.type}', numbered from 0"
        )
    return device


def _loaded(type: str) -> Backend:
    found = _LOADED.get(type)
    if found is None:
        if type not in _LOADERS:
            raise MissingDeviceError(
                f"device type '{type}' has no backend here; there are: {', '.join(sorted(_LOADERS))}"
            )
        found = _LOADED[type] = _LOADERS[type]()
        # Of the instance, too: CPython reads those of an instance faster than those of its class.
        found.host_readable = found.host_readable  # type: ignore[misc]
        if found.type != type:
            del _LOADED[type]
            raise TypeError(f"the backend registered for device type '{type}' says that it is for '{found.type}'")
    return found


def backend_of(device: Device) -> Backend:
    """The backend of a device, kept on the device once it is known."""
    found: Backend | None = device.backend
    if found is None:
        found = device.backend = _loaded(device.type)
    return found


def host() -> Backend:
    """The backend of the host's own memory."""
    return backend_of(CPU)


def backends() -> list[str]:
    """The types of device that have a backend on this machine."""
    return [type for type in _LOADERS if _is_present(type)]


def backends_in_use() -> list[Backend]:
    """The backends that were loaded, because a device of their type was used."""
    return list(_LOADED.values())


def accelerator() -> Backend | None:
    """The backend of the accelerator, the last that was registered; None where there is the CPU alone."""
    for type in reversed(_LOADERS):
        if type not in ("cpu", "meta") and _is_present(type) and _loaded(type).accelerator:
            return _loaded(type)
    return None


for _type in _OPTIONAL:
    _register_optional(_type)
del _type
