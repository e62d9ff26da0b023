"""Devices of one's own: their name, and the methods that carry it; and the stack of C++, which is not in a package
without C++.

A device's backend is registered by `rushlight._backends.registry.register`; docs/add-a-device.md shows how.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import rushlight
from rushlight import dtype as DType
from rushlight._interface.devices import backends, private_type, rename_private_type

__all__ = ["generate_methods_for_privateuse1_backend", "get_cpp_backtrace", "rename_privateuse1_backend"]


def rename_privateuse1_backend(backend_name: str) -> None:
    """Give the device type that PyTorch keeps for backends from outside its name, once in a process.

    `torch.device(backend_name)` names devices of the type from then on, and `torch.library` knows its kernels as
    "PrivateUse1".  RuntimeError for a second name, and for the name of a type that PyTorch has.
    """
    rename_private_type(backend_name)


def generate_methods_for_privateuse1_backend(
    for_tensor: bool = True,
    for_module: bool = True,
    for_packed_sequence: bool = True,
    for_storage: bool = False,
    unsupported_dtype: Iterable[DType] | None = None,
) -> None:
    """Make the attributes and methods that carry the name of the renamed device type, here `foo`.

    `Tensor.is_foo`, `Tensor.foo()`, and the same of modules (`foo()` alone), packed sequences and storages.
    `unsupported_dtype`: dtypes that typed storages refuse to move.  RuntimeError where one of them is there already, or
    where no backend is registered under the name.
    """
    name = private_type()
    if name not in backends():
        raise RuntimeError(
            f"generate_methods_for_privateuse1_backend: no backend is registered for device type '{name}'; name it with "
            "rename_privateuse1_backend and register it first"
        )
    if for_tensor:
        _add_moving(rushlight.Tensor, name)
    if for_module:
        _check_absent(rushlight.nn.Module, name)
        setattr(rushlight.nn.Module, name, _module_method(name))
    if for_packed_sequence:
        _add_moving(rushlight.nn.utils.rnn.PackedSequence, name)
    if for_storage:
        _add_moving(rushlight.UntypedStorage, name)
        _add_moving(rushlight.TypedStorage, name, frozenset(unsupported_dtype or ()))


def _check_absent(cls: Any, name: str) -> None:
    if hasattr(cls, name):
        raise RuntimeError(
            f"The custom device module of {name} has already been registered with torch: {cls.__name__}.{name} exists"
        )


def _device(name: str, device: Any) -> Any:
    """The device that an index, a device or nothing means."""
    if device is None or isinstance(device, int):
        return rushlight.device(name) if device is None else rushlight.device(name, device)
    found = rushlight.device(device)
    if found.type != name:
        raise RuntimeError(f"Invalid device, must be {name} device, got {found}")
    return found


def _add_moving(cls: Any, name: str, refused: frozenset[DType] = frozenset()) -> None:
    """`is_foo`, and `foo(device=None, non_blocking=False)` which gives a copy on the device, or the object itself where
    it is there.
    """
    _check_absent(cls, name)
    _check_absent(cls, f"is_{name}")

    def is_there(self: Any) -> bool:
        return bool(self.device.type == name) if not hasattr(self, "data") else bool(self.data.device.type == name)

    def move(self: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        if refused and self.dtype in refused:
            raise RuntimeError(f"Cannot store {self.dtype} on {name} device")
        if "device" in kwargs:
            raise TypeError(f"{name}() got multiple values for argument 'device'")
        return self.to(device=_device(name, device), non_blocking=non_blocking, **kwargs)

    is_there.__name__, move.__name__ = f"is_{name}", name
    move.__doc__ = f"On a device of type '{name}': itself where it is there, else a copy."
    setattr(cls, f"is_{name}", property(is_there))
    setattr(cls, name, move)


def _module_method(name: str) -> Any:
    def move(self: Any, device: Any = None) -> Any:
        return self._apply(lambda t: t.to(_device(name, device)))

    move.__name__ = name
    move.__doc__ = f"Move every parameter and buffer to a device of type '{name}'."
    return move


def get_cpp_backtrace(frames_to_skip: int = 0, maximum_number_of_frames: int = 64) -> NoReturn:
    """NotImplementedError: there is no C++ on the stack; `traceback.format_stack()` has all of it."""
    raise NotImplementedError(
        "get_cpp_backtrace: rushlight has no C++ on the stack; traceback.format_stack() shows all of it"
    )
