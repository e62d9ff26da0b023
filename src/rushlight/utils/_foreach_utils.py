"""Lists of tensors sorted by device and dtype, as `torch.utils._foreach_utils`."""

from __future__ import annotations

from rushlight.optim.authoring import group_tensors as _group_tensors_by_device_and_dtype

__all__ = [
    "_get_foreach_kernels_supported_devices",
    "_get_fused_kernels_supported_devices",
    "_group_tensors_by_device_and_dtype",
]


def _get_foreach_kernels_supported_devices() -> list[str]:
    """The devices on which `torch._foreach_*` is what optimizers choose: accelerators."""
    return ["cuda", "xpu", "mtia", "privateuseone"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """The devices that have fused optimizers, in PyTorch's order."""
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]
