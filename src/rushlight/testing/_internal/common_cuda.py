"""Questions of tests about GPUs, as `torch.testing._internal.common_cuda`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import rushlight as torch

__all__ = [
    "PLATFORM_SUPPORTS_BF16", "PLATFORM_SUPPORTS_FLASH_ATTENTION", "PLATFORM_SUPPORTS_FP8", "PLATFORM_SUPPORTS_MEM_EFF_ATTENTION", "SM53OrLater", "SM60OrLater",
    "SM70OrLater", "SM75OrLater", "SM80OrLater", "SM89OrLater", "SM90OrLater", "SM100OrLater", "TEST_CUDA", "TEST_CUDNN", "TEST_MAGMA", "TEST_MULTIGPU",
    "tf32_is_not_fp32", "tf32_off", "tf32_on_and_off", "with_tf32_off",
]  # fmt: skip

TEST_CUDA = TEST_MAGMA = torch.cuda.is_available()
TEST_CUDNN = TEST_CUDA and torch.backends.cudnn.is_available()
TEST_MULTIGPU = torch.cuda.device_count() > 1


def _has(*capability: int) -> bool:
    return TEST_CUDA and torch.cuda.get_device_capability() >= capability


SM53OrLater, SM60OrLater, SM70OrLater = _has(5, 3), _has(6, 0), _has(7, 0)
SM75OrLater, SM80OrLater, SM89OrLater = _has(7, 5), _has(8, 0), _has(8, 9)
SM90OrLater, SM100OrLater = _has(9, 0), _has(10, 0)
PLATFORM_SUPPORTS_MEM_EFF_ATTENTION = TEST_CUDA
PLATFORM_SUPPORTS_BF16 = PLATFORM_SUPPORTS_FLASH_ATTENTION = SM80OrLater
PLATFORM_SUPPORTS_FP8 = SM89OrLater


def tf32_is_not_fp32() -> bool:
    """Whether products may be rounded to TF32: False."""
    return False


@contextlib.contextmanager
def tf32_off() -> Iterator[None]:
    """A context that changes nothing."""
    yield


def with_tf32_off(f: Any) -> Any:
    """The test itself."""
    return f


def tf32_on_and_off(tf32_precision: float = 1e-5, *, only_if: bool = True) -> Any:
    """The test itself."""
    return lambda f: f
