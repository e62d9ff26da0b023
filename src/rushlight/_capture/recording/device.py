"""Devices as a program sees them that is being recorded: devices of their own that print and compare as the real ones.

>>> from rushlight._capture.recording.device import recorded, shown
>>> from rushlight._types.device import CPU
>>> recorded(CPU), recorded(CPU) == CPU, recorded(CPU) is CPU, shown(recorded(CPU)) is CPU
(device(type='cpu'), True, False, True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._engine.core.state import RECORDING, STATE
from rushlight._types.device import CPU, META, Device, on_recorded_device

__all__ = ["TRACED", "RecordedDevice", "recorded", "shown", "with_backends"]


class RecordedDevice(Device):
    """Equal to the real device, but another object with another hash, so that specs and plans are never those of real
    tensors.
    """

    __slots__ = ("_real",)

    _real: Device

    @property
    def real(self) -> Device:
        """The device that this object stands for."""
        return self._real

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.real

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return id(self)


_KNOWN: dict[Device, RecordedDevice] = {}
_make_backend: Callable[[Device], Any] = lambda real: None  # until the backends module is loaded


def with_backends(make: Callable[[Device], Any]) -> None:
    """Let `make(real)` be the backend of what stands for a real device."""
    global _make_backend
    _make_backend = make
    for real, twin in _KNOWN.items():
        twin.backend = make(real)


def recorded(real: Device) -> RecordedDevice:
    """The stand-in for a device in recorded programs: one object for each device."""
    if isinstance(real, RecordedDevice):
        return real
    found = _KNOWN.get(real)
    if found is None:
        found = object.__new__(RecordedDevice)
        found.type, found.index, found._real = real.type, real.index, real
        found.backend = _make_backend(real)
        _KNOWN[real] = found
    return found


TRACED = recorded(CPU)
on_recorded_device(lambda device: device if device is META or not STATE.word & RECORDING else recorded(device))


def shown(device: Device) -> Device:
    """The device that programs see: the real one in the place of what stands for it."""
    return device.real
