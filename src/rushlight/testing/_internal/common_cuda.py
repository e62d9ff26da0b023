"""Questions of tests about GPUs, as `torch.testing._internal.common_cuda`: there is none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = [
    "PLATFORM_SUPPORTS_BF16", "PLATFORM_SUPPORTS_FLASH_ATTENTION", "PLATFORM_SUPPORTS_FP8", "PLATFORM_SUPPORTS_MEM_EFF_ATTENTION", "SM53OrLater", "SM60OrLater",
    "SM70OrLater", "SM75OrLater", "SM80OrLater", "SM89OrLater", "SM90OrLater", "SM100OrLater", "TEST_CUDA", "TEST_CUDNN", "TEST_MAGMA", "TEST_MULTIGPU",
    "tf32_is_not_fp32", "tf32_off", "tf32_on_and_off", "with_tf32_off",
]  # fmt: skip

TEST_CUDA = TEST_CUDNN = TEST_MAGMA = TEST_MULTIGPU = False
SM53OrLater = SM60OrLater = SM70OrLater = SM75OrLater = SM80OrLater = SM89OrLater = SM90OrLater = SM100OrLater = False
PLATFORM_SUPPORTS_BF16 = PLATFORM_SUPPORTS_FLASH_ATTENTION = PLATFORM_SUPPORTS_FP8 = (
    PLATFORM_SUPPORTS_MEM_EFF_ATTENTION
) = False


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
