"""The CPU as a program sees it that is being recorded: a device of its own that prints and compares as `cpu`."""

from __future__ import annotations

from rushlight._engine.core.state import RECORDING, STATE
from rushlight._engine.random.random import _BY_DEVICE, default_generator
from rushlight._types.device import CPU, Device, on_host_device

__all__ = ["TRACED", "shown"]


class RecordedHost(Device):
    """Equal to the CPU, but another object with another hash, so that specs and plans are never those of real tensors."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other is self or other is CPU

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return id(self)


def _made() -> Device:
    device = object.__new__(RecordedHost)
    device.type, device.index, device.backend = "cpu", None, None
    return device


TRACED = _made()
_BY_DEVICE[TRACED] = default_generator
on_host_device(lambda: TRACED if STATE.word & RECORDING else CPU)


def shown(device: Device) -> Device:
    """The device that programs see: the CPU itself in the place of what stands for it."""
    return CPU if device is TRACED else device
