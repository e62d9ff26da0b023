"""`triton.language.target_info`: what the kernel is compiled for, at compile time."""

from __future__ import annotations

from typing import Any

from .._semantics.ambient import compilation, is_compiling
from .._semantics.constants import constexpr_function

__all__ = ["cuda_capability_geq", "current_target", "is_cuda", "is_hip", "is_hip_cdna3", "is_hip_cdna4"]


@constexpr_function
def current_target() -> Any:
    """The target of the kernel; None outside of kernels."""
    return compilation().target if is_compiling() else None


@constexpr_function
def is_cuda() -> bool:
    """Whether the kernel is for a GPU of NVIDIA's."""
    target = current_target()
    return target is not None and target.warp_size > 1


@constexpr_function
def cuda_capability_geq(major: int, minor: int = 0) -> bool:
    """Whether the GPU has at least this compute capability."""
    return is_cuda() and bool(current_target().arch >= 10 * major + minor)


@constexpr_function
def is_hip() -> bool:
    """False: rushlight compiles for no GPU of AMD's."""
    return False


is_hip_cdna3 = is_hip_cdna4 = is_hip
