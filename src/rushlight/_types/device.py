"""Devices: `cpu` holds memory and computes, `meta` has shapes alone; a backend can register other types."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from rushlight._base.errors import MissingDeviceError

__all__ = [
    "CPU",
    "META",
    "Device",
    "add_type",
    "as_device",
    "current_device_changed",
    "on_default_device",
    "on_recorded_device",
    "on_removed_type",
    "private_type",
    "remove_type",
    "rename_private_type",
    "set_default_device",
]

# The device types that PyTorch names, with or without a backend; `add_type` appends to them.
_NAMED = [
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy", "vulkan", "mps",
    "meta", "hpu", "mtia", "privateuseone",
]  # fmt: skip
_IN_TREE = frozenset(_NAMED)
_PRIVATE = "privateuseone"  # the type for external devices, until it is renamed
_private: list[str] = [_PRIVATE]  # and its names since


_DEVICES: dict[tuple[str, int | None], Device] = {}
_TEXTS: dict[str, Device] = {}  # by the text given


class Device:
    """`Device("cpu")`, `Device("cuda", 1)`, `Device("cuda:1")`; printed and compared as PyTorch does.  Equal ones are
    one object."""

    __slots__ = ("backend", "index", "type")

    type: str
    index: int | None
    backend: Any  # the result of `_backends.registry.backend_of`, None before

    def __new__(cls, type: str | int | Device, index: int | None = None) -> Device:
        if type.__class__ is str and index is None and (device := _TEXTS.get(type)) is not None:
            return device
        if isinstance(type, Device):
            return type
        if type.__class__ is int:  # the index of an accelerator
            if type < 0:
                raise RuntimeError("Device index must not be negative")
            found = next((name for name in reversed(_ACCELERATORS) if _ACCELERATORS[name]()), None)
            if found is None:
                raise RuntimeError(f"Cannot access accelerator device when none is available: device({type})")
            return Device(found, type)
        if not isinstance(type, str):
            raise TypeError(f"device(): expected a string or a device, got {type.__class__.__name__}")
        if index is not None and not isinstance(index, int):
            raise TypeError(f"device(): argument 'index' (position 2) must be int, not {index.__class__.__name__}")
        text = type if index is None else ""
        name, colon, number = type.partition(":")
        if name not in _NAMED:
            if not text and index is None:
                raise RuntimeError("Device string must not be empty")
            if not name.replace("_", "a").isalpha():
                raise RuntimeError(f"Invalid device string: '{type}'")
            raise RuntimeError(f"Expected one of {', '.join(_NAMED)} device type at start of device string: {name}")
        if colon:
            if index is not None:
                raise RuntimeError(
                    f"type (string) must not include an index because index was passed explicitly: {type}"
                )
            if not number.isdigit() or (number[0] == "0" and number != "0"):
                raise RuntimeError(f"Invalid device string: '{type}'")
            index = int(number)
        device = _DEVICES.get((name, index))
        if device is None:
            device = _DEVICES[name, index] = object.__new__(cls)
            device.type, device.index, device.backend = name, index, None
        if text and len(_TEXTS) < 100:
            _TEXTS[text] = device
        return device

    @property
    def real(self) -> Device:
        """Itself; what a device stands for, for one of a program that is recorded."""
        return self

    def __repr__(self) -> str:
        return (
            f"device(type='{self.type}')" if self.index is None else f"device(type='{self.type}', index={self.index})"
        )

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Device, (self.type, self.index))

    def __enter__(self) -> Device:
        found = as_device(self)
        _FLOATING.append(_floats(self))
        _change(lambda: _DEFAULTS.append(found))
        return self

    def __exit__(self, *exc: object) -> None:
        _FLOATING.pop()
        _change(_DEFAULTS.pop)


# Device types that tensors can be on -> the device with its index; those that count as accelerators, in reverse order
# of preference -> whether this machine has one.
_TYPES: dict[str, Callable[[Device], Device]] = {"cpu": lambda device: CPU, "meta": lambda device: META}
_ACCELERATORS: dict[str, Callable[[], bool]] = {}


def add_type(name: str, canonical: Callable[[Device], Device], present: Callable[[], bool] = lambda: True) -> None:
    """Let tensors be on devices of a type; `canonical` returns such a device with its index, or raises.

    The type counts as an accelerator where `present()` says that there is one.
    """
    if name not in _NAMED:
        _NAMED.append(name)
    _TYPES[name] = canonical
    _ACCELERATORS[name] = present


def remove_type(name: str) -> None:
    """Refuse further tensors on devices of a type; existing devices forget their backend."""
    del _TYPES[name]
    _ACCELERATORS.pop(name, None)
    for (type, _), device in _DEVICES.items():
        if type == name:
            device.backend = None
    for hook in _TYPE_REMOVED:
        hook(name)


_TYPE_REMOVED: list[Callable[[str], None]] = []


def on_removed_type(hook: Callable[[str], None]) -> None:
    """Call `hook(name)` when a type of device goes away."""
    _TYPE_REMOVED.append(hook)


def private_type() -> str:
    """The name of the device type reserved for external backends (PyTorch's PrivateUse1)."""
    return _private[-1]


def rename_private_type(name: str) -> None:
    """Give that type another name, once; RuntimeError for a second name, or for one that is in use."""
    if not name.isidentifier():
        raise RuntimeError(f"a device type is a name, not {name!r}")
    if name == _private[-1]:
        return
    if len(_private) > 1:
        raise RuntimeError(f"torch.rename_privateuse1_backend() has been called already, with '{_private[-1]}'")
    if name in _NAMED and (name in _IN_TREE or name not in _ACCELERATORS):
        raise RuntimeError(f"Cannot register privateuse1 backend with in-tree device name: {name}")
    if name not in _NAMED:
        _NAMED[_NAMED.index(_PRIVATE)] = name
    _private.append(name)


CPU: Device = Device("cpu")
META: Device = Device("meta")
# The device of factories: the process's choice, then those of `with torch.device(...)` blocks.
_DEFAULTS = [CPU]
# Of each of them: the type where it was named without a number, which follows the current device
_FLOATING: list[str | None] = [None]
_DEFAULT_CHANGED: list[Callable[[], None]] = []
# The stand-in for a device in this thread, set when a module that records programs is loaded.
_stand_in: Callable[[Device], Device] | None = None


def on_recorded_device(stand_in: Callable[[Device], Device]) -> None:
    """Let `stand_in(device)` say which device a program of this thread means by a canonical one."""
    global _stand_in
    _stand_in = stand_in


def on_default_device(hook: Callable[[], None]) -> None:
    """Call `hook` when the default device changes."""
    _DEFAULT_CHANGED.append(hook)


def _change(step: Callable[[], Any]) -> None:
    before = _DEFAULTS[-1]
    step()
    if _DEFAULTS[-1] is not before:
        for hook in _DEFAULT_CHANGED:
            hook()


def _floats(named: Any) -> str | None:
    device = named if isinstance(named, Device) else Device(named)
    return device.type if type(device) is Device and device.index is None and device.type in _ACCELERATORS else None


def set_default_device(named: Any) -> None:
    """Set the device of factories, outside of `with` blocks: None, a device, or its name.

    One without a number is the current device, also when that changes later.
    """
    device = CPU if named is None else as_device(named)
    _FLOATING[0] = None if named is None else _floats(named)
    _change(lambda: _DEFAULTS.__setitem__(0, device))


def current_device_changed(type: str, index: int) -> None:
    """Let defaults that were named without a number follow the current device of the main thread.

    Plans of factories are the process's, so in other threads such a default stays that of the main thread.
    """
    if type not in _FLOATING or threading.current_thread() is not threading.main_thread():
        return

    def move() -> None:
        for place, floating in enumerate(_FLOATING):
            if floating == type:
                _DEFAULTS[place] = Device(type, index)

    _change(move)


def as_device(value: Any) -> Device:
    """The canonical device for a user's argument: None (the default), a string or a device.  Devices we lack raise."""
    if value is None:
        value = _DEFAULTS[-1]
        return value if _stand_in is None else _stand_in(value)
    if value is CPU or value == "cpu":
        return CPU if _stand_in is None else _stand_in(CPU)
    device = value if isinstance(value, Device) else Device(value)
    if type(device) is not Device:  # what stands for another device is a device of its own
        return device
    canonical = _TYPES.get(device.type)
    if canonical is None:
        raise MissingDeviceError(f"rushlight was asked for device '{device}', but has only: {', '.join(_TYPES)}")
    found = canonical(device)
    return found if _stand_in is None else _stand_in(found)
