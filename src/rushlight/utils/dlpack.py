"""Sharing memory with other libraries over DLPack."""

from __future__ import annotations

from enum import IntEnum

from rushlight._engine.core.dlpack import from_dlpack, to_dlpack

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]


class DLDeviceType(IntEnum):
    """Numbers of device types in the DLPack standard; the first of a tensor's `__dlpack_device__()`.

    >>> torch.utils.dlpack.DLDeviceType.kDLCPU == torch.ones(1).__dlpack_device__()[0]
    True
    """

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17
