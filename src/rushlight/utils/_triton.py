"""`torch.utils._triton`: whether kernels in the Triton language run here, as libraries beside PyTorch ask."""

from __future__ import annotations

import rushlight

__all__ = [
    "has_triton",
    "has_triton_package",
    "has_triton_tensor_descriptor_host_tma",
    "has_triton_tma",
    "has_triton_tma_device",
]


def has_triton_package() -> bool:
    """Whether `import triton` finds the language: rushlight brings it."""
    return True


def has_triton() -> bool:
    """Whether kernels of the language run: they do on every device of rushlight."""
    return True


def has_triton_tma() -> bool:
    """Whether a GPU is there that copies blocks by descriptors (sm_90 and later)."""
    return rushlight.cuda.is_available() and rushlight.cuda.get_device_capability() >= (9, 0)


def has_triton_tma_device() -> bool:
    """The same for descriptors that kernels make."""
    return has_triton_tma()


def has_triton_tensor_descriptor_host_tma() -> bool:
    """The same for descriptors that the host makes."""
    return has_triton_tma()
