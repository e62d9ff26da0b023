"""Devices: `cpu` holds memory and computes, `meta` has shapes alone."""

from __future__ import annotations

from typing import Any

__all__ = ["CPU", "META", "Device", "as_device"]

_KNOWN = ("cpu", "meta")
_NAMED = (
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy", "vulkan", "mps",
    "meta", "hpu", "mtia", "privateuseone",
)  # fmt: skip


class Device:
    """`Device("cpu")`, `Device("cuda", 1)`, `Device("cuda:1")`; printed and compared as PyTorch does."""

    __slots__ = ("index", "type")

    type: str
    index: int | None

    def __init__(self, type: str | Device, index: int | None = None) -> None:
        if isinstance(type, Device):
            self.type, self.index = type.type, type.index
            return
        if not isinstance(type, str):
            raise TypeError(f"device(): expected a string or a device, got {type.__class__.__name__}")
        name, colon, number = type.partition(":")
        if name not in _NAMED:
            raise RuntimeError(f"Expected one of {', '.join(_NAMED)} device type at start of device string: {name}")
        if colon:
            if index is not None:
                raise RuntimeError(f"type (string) must not include an index because index was passed explicitly: {type}")
            if not number.isdigit():
                raise RuntimeError(f"Invalid device string: '{type}'")
            index = int(number)
        self.type, self.index = name, index

    def __repr__(self) -> str:
        return f"device(type='{self.type}')" if self.index is None else f"device(type='{self.type}', index={self.index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.type == other.type and self.index == other.index

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Device, (self.type, self.index))


CPU = Device("cpu")
META = Device("meta")


def as_device(value: Any) -> Device:
    """The canonical device for what a user gave: None, a string or a device.  Devices we lack raise."""
    if value is None or value is CPU or value == "cpu":
        return CPU
    device = value if isinstance(value, Device) else Device(value)
    if device.type == "cpu":
        return CPU
    if device.type == "meta":
        return META
    raise RuntimeError(f"rushlight was asked for device '{device}', but has only: {', '.join(_KNOWN)}")
