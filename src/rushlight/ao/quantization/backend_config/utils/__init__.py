"""`torch.ao.quantization.backend_config.utils`: tables drawn from the description of a backend."""

from __future__ import annotations

from typing import Any

from rushlight.ao.quantization.backend_config.configs import BackendConfig, DTypeConfig

__all__ = [
    "get_fused_module_classes", "get_fuser_method_mapping", "get_module_to_qat_module", "get_pattern_to_dtype_configs",
    "get_pattern_to_input_type_to_index", "get_qat_module_classes", "get_root_module_to_quantized_reference_module",
]  # fmt: skip


def get_pattern_to_dtype_configs(backend_config: BackendConfig) -> dict[Any, list[DTypeConfig]]:
    """Pattern -> combinations of dtypes."""
    return {config.pattern: config.dtype_configs for config in backend_config.configs}


def get_qat_module_classes(backend_config: BackendConfig) -> tuple[type, ...]:
    """Classes of modules that are trained with rounded weights."""
    return tuple({config.qat_module for config in backend_config.configs if config.qat_module is not None})


def get_fused_module_classes(backend_config: BackendConfig) -> tuple[type, ...]:
    """Classes that several modules are fused into."""
    return tuple({config.fused_module for config in backend_config.configs if config.fused_module is not None})


def get_pattern_to_input_type_to_index(backend_config: BackendConfig) -> dict[Any, dict[str, int]]:
    """Pattern -> which argument is the weight, which the bias."""
    return {config.pattern: config._input_type_to_index for config in backend_config.configs}


def get_root_module_to_quantized_reference_module(backend_config: BackendConfig) -> dict[type, type]:
    """Class of the module with the weight -> its class in reference models."""
    return {
        config.root_module: config.reference_quantized_module
        for config in backend_config.configs
        if config.root_module is not None and config.reference_quantized_module is not None
    }


def get_fuser_method_mapping(backend_config: BackendConfig) -> dict[Any, Any]:
    """Pattern -> the function that fuses it."""
    return {config.pattern: config.fuser_method for config in backend_config.configs if config.fuser_method is not None}


def get_module_to_qat_module(backend_config: BackendConfig) -> dict[Any, type]:
    """Pattern -> the class that is trained."""
    return {config.pattern: config.qat_module for config in backend_config.configs if config.qat_module is not None}
