"""`torch.ao.quantization`: models of integers: observers, fake quantization, eager mode and graph mode.

A float model is *prepared* (values on their way are observed), run on examples or trained, and *converted*: modules
become those of `torch.ao.nn.quantized`, each of which is one product of bytes with its requantization.
"""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import absent_function, lazy_files

# functions that share their name with their file: the function is what the page shows
from rushlight.ao.quantization.fuse_modules import fuse_modules, fuse_modules_qat
from rushlight.ao.quantization.quantize import quantize

_NAMES = {
    "granularity": (),
    "observer": (
        "AffineQuantizedObserverBase FixedQParamsObserver Granularity HistogramObserver MappingType MinMaxObserver "
        "MovingAverageMinMaxObserver MovingAveragePerChannelMinMaxObserver NoopObserver ObserverBase PerAxis PerBlock "
        "PerChannelMinMaxObserver PerGroup PerRow PerTensor PerToken PlaceholderObserver RecordingObserver ReuseInputObserver "
        "TorchAODType UniformQuantizationObserverBase ZeroPointDomain default_affine_fixed_qparams_observer default_debug_observer "
        "default_dynamic_quant_observer default_fixed_qparams_range_0to1_observer default_fixed_qparams_range_neg1to1_observer "
        "default_float_qparams_observer default_float_qparams_observer_4bit default_histogram_observer default_observer "
        "default_per_channel_weight_observer default_placeholder_observer default_reuse_input_observer "
        "default_symmetric_fixed_qparams_observer default_weight_observer get_block_size get_observer_state_dict load_observer_state_dict "
        "per_channel_weight_observer_range_neg_127_to_127 weight_observer_range_neg_127_to_127"
    ).split(),
    "fake_quantize": (
        "FakeQuantize FakeQuantizeBase FixedQParamsFakeQuantize FusedMovingAvgObsFakeQuantize default_affine_fixed_qparams_fake_quant "
        "default_dynamic_fake_quant default_embedding_fake_quant default_embedding_fake_quant_4bit default_fake_quant "
        "default_fixed_qparams_range_0to1_fake_quant default_fixed_qparams_range_neg1to1_fake_quant default_fused_act_fake_quant "
        "default_fused_per_channel_wt_fake_quant default_fused_wt_fake_quant default_histogram_fake_quant "
        "default_per_channel_weight_fake_quant default_symmetric_fixed_qparams_fake_quant default_weight_fake_quant disable_fake_quant "
        "disable_observer enable_fake_quant enable_observer fused_per_channel_wt_fake_quant_range_neg_127_to_127 "
        "fused_wt_fake_quant_range_neg_127_to_127"
    ).split(),
    "qconfig": (
        "ObserverOrFakeQuantize QConfig QConfigAny QConfigDynamic default_activation_only_qconfig default_debug_qconfig "
        "default_dynamic_qat_qconfig default_dynamic_qconfig default_embedding_qat_qconfig default_embedding_qat_qconfig_4bit "
        "default_per_channel_qconfig default_per_channel_symmetric_qnnpack_qat_qconfig default_per_channel_symmetric_qnnpack_qconfig "
        "default_qat_qconfig default_qat_qconfig_v2 default_qconfig default_quint8_weight_qconfig default_reuse_input_qconfig "
        "default_symmetric_qnnpack_qat_qconfig default_symmetric_qnnpack_qconfig default_weight_only_qconfig float16_dynamic_qconfig "
        "float16_static_qconfig float_qparams_weight_only_qconfig float_qparams_weight_only_qconfig_4bit get_default_qat_qconfig "
        "get_default_qat_qconfig_dict get_default_qconfig get_default_qconfig_dict per_channel_dynamic_qconfig qconfig_equals"
    ).split(),
    "qconfig_mapping": ("QConfigMapping", "get_default_qat_qconfig_mapping", "get_default_qconfig_mapping"),
    "quant_type": ("QuantType",),
    "stubs": ("DeQuantStub", "QuantStub", "QuantWrapper"),
    "quantization_mappings": (
        "DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS DEFAULT_DYNAMIC_SPARSE_QUANT_MODULE_MAPPINGS DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS "
        "DEFAULT_MODULE_TO_ACT_POST_PROCESS DEFAULT_QAT_MODULE_MAPPINGS DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS "
        "DEFAULT_STATIC_QUANT_MODULE_MAPPINGS DEFAULT_STATIC_SPARSE_QUANT_MODULE_MAPPINGS get_default_compare_output_module_list "
        "get_default_dynamic_quant_module_mappings get_default_dynamic_sparse_quant_module_mappings "
        "get_default_float_to_quantized_operator_mappings get_default_qat_module_mappings get_default_qconfig_propagation_list "
        "get_default_static_quant_module_mappings get_default_static_quant_reference_module_mappings "
        "get_default_static_sparse_quant_module_mappings get_dynamic_quant_module_class get_embedding_qat_module_mappings "
        "get_embedding_static_quant_module_mappings get_quantized_operator get_static_quant_module_class no_observer_set"
    ).split(),
    "fuser_method_mappings": (
        "fuse_conv_bn fuse_conv_bn_relu fuse_convtranspose_bn fuse_linear_bn get_fuser_method get_fuser_method_new"
    ).split(),
    "quantize": (
        "add_quant_dequant convert default_eval_fn get_default_custom_config_dict prepare prepare_qat propagate_qconfig_ "
        "quantize_dynamic quantize_qat swap_module"
    ).split(),
}
_OF_SCRIPTS = (
    "convert_dynamic_jit", "convert_jit", "fuse_conv_bn_jit", "prepare_dynamic_jit", "prepare_jit", "quantize_dynamic_jit", "quantize_jit",
    "script_qconfig", "script_qconfig_dict",
)  # fmt: skip
_FROM = {name: page for page, names in _NAMES.items() for name in names}
_PAGES = (
    "backend_config",
    "exported",
    "fx",
    "kv_cache",
    "quantize_fx",
    "utils",
    "weight_only",
    *(page for page in _NAMES if page not in _FROM),
)

__all__ = ["fuse_modules", "fuse_modules_qat", "quantize", *_FROM, *_OF_SCRIPTS]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _OF_SCRIPTS:
        value: Any = absent_function(
            f"torch.ao.quantization.{name}", "scripted models are not quantized; modules and graphs are"
        )
    elif name in _FROM:
        value = getattr(import_module(f"rushlight.ao.quantization.{_FROM[name]}"), name)
    else:
        return _files(name)
    globals()[name] = value
    return value


_files = lazy_files(__name__, {}, _PAGES)
