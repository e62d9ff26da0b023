"""`torch.utils._triton`: whether there is a Triton: kernels are generated from Python here, without it."""

from __future__ import annotations

__all__ = ["has_triton", "has_triton_package"]


def has_triton_package() -> bool:
    """False: programs that ask take another way."""
    return False


def has_triton() -> bool:
    """False: programs that ask take another way."""
    return False
