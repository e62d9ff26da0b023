"""`torch.ao.quantization.backend_config`: which patterns of a graph a backend computes on integers, and how they are observed."""

from __future__ import annotations

from rushlight.ao.quantization.backend_config.configs import (
    BackendConfig,
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    ObservationType,
)
from rushlight.ao.quantization.backend_config.native import (
    get_executorch_backend_config,
    get_fbgemm_backend_config,
    get_native_backend_config,
    get_native_backend_config_dict,
    get_onednn_backend_config,
    get_qnnpack_backend_config,
    get_tensorrt_backend_config,
    get_tensorrt_backend_config_dict,
)

__all__ = [
    "BackendConfig", "BackendPatternConfig", "DTypeConfig", "DTypeWithConstraints", "ObservationType", "get_executorch_backend_config",
    "get_fbgemm_backend_config", "get_native_backend_config", "get_native_backend_config_dict", "get_onednn_backend_config",
    "get_qnnpack_backend_config", "get_tensorrt_backend_config", "get_tensorrt_backend_config_dict",
]  # fmt: skip
