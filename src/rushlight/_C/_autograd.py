"""Facts about PyTorch's native autograd, as `torch._C._autograd`."""

from __future__ import annotations

from enum import IntEnum

from rushlight._engine.autograd.node import SavedTensor
from rushlight.autograd.graph import saved_tensors_hooks_error

__all__ = ["DeviceType", "SavedTensor"]


class DeviceType(IntEnum):
    """Kinds of devices by the numbers that profiles hold."""

    CPU = 0
    CUDA = 1
    MKLDNN = 2
    OPENGL = 3
    OPENCL = 4
    IDEEP = 5
    HIP = 6
    FPGA = 7
    MAIA = 8
    XLA = 9
    Vulkan = 10
    Metal = 11
    XPU = 12
    MPS = 13
    Meta = 14
    HPU = 15
    VE = 16
    Lazy = 17
    IPU = 18
    MTIA = 19
    PrivateUse1 = 20

    def __str__(self) -> str:
        return f"DeviceType.{self.name}"


def _saved_tensors_hooks_is_enabled() -> bool:
    """False inside `torch.autograd.graph.disable_saved_tensors_hooks`."""
    return saved_tensors_hooks_error() is None


def _saved_tensors_hooks_get_disabled_error_message() -> str | None:
    """The message given to `disable_saved_tensors_hooks`; None where hooks are allowed."""
    return saved_tensors_hooks_error()
