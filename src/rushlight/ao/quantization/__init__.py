"""The places where a model would be quantized, as `torch.ao.quantization`: in floats they change nothing.  Converting
raises NotImplementedError.
"""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import absent_class, absent_function, absent_value
from rushlight.nn.modules.module import Module

_WHY = "models are not quantized yet; tensors are (torch.quantize_per_tensor)"
# What PyTorch has on this page: it may be imported, and asked for by `isinstance`; using it is an error that names it.
_MODULES = (
    "AffineQuantizedObserverBase", "FakeQuantize", "FixedQParamsFakeQuantize", "FixedQParamsObserver", "FusedMovingAvgObsFakeQuantize",
    "HistogramObserver", "MinMaxObserver", "MovingAverageMinMaxObserver", "MovingAveragePerChannelMinMaxObserver", "NoopObserver",
    "PerChannelMinMaxObserver", "PlaceholderObserver", "RecordingObserver", "ReuseInputObserver", "UniformQuantizationObserverBase",
    "default_debug_observer", "default_placeholder_observer", "default_reuse_input_observer",
)  # fmt: skip
_CLASSES = (
    "Granularity", "MappingType", "PerAxis", "PerBlock", "PerGroup", "PerRow", "PerTensor", "PerToken", "QConfig", "QConfigDynamic",
    "QConfigMapping", "QuantType", "TorchAODType", "ZeroPointDomain",
)  # fmt: skip
_FUNCTIONS = (
    "add_quant_dequant", "convert", "convert_dynamic_jit", "convert_jit", "default_eval_fn", "disable_fake_quant", "disable_observer",
    "enable_fake_quant", "enable_observer", "fuse_conv_bn", "fuse_conv_bn_jit", "fuse_conv_bn_relu", "fuse_convtranspose_bn",
    "fuse_linear_bn", "fuse_modules", "fuse_modules_qat", "get_block_size", "get_default_compare_output_module_list",
    "get_default_custom_config_dict", "get_default_dynamic_quant_module_mappings", "get_default_dynamic_sparse_quant_module_mappings",
    "get_default_float_to_quantized_operator_mappings", "get_default_qat_module_mappings", "get_default_qat_qconfig",
    "get_default_qat_qconfig_dict", "get_default_qat_qconfig_mapping", "get_default_qconfig", "get_default_qconfig_dict",
    "get_default_qconfig_mapping", "get_default_qconfig_propagation_list", "get_default_static_quant_module_mappings",
    "get_default_static_quant_reference_module_mappings", "get_default_static_sparse_quant_module_mappings",
    "get_dynamic_quant_module_class", "get_embedding_qat_module_mappings", "get_embedding_static_quant_module_mappings", "get_fuser_method",
    "get_fuser_method_new", "get_observer_state_dict", "get_quantized_operator", "get_static_quant_module_class",
    "load_observer_state_dict", "no_observer_set", "prepare", "prepare_dynamic_jit", "prepare_jit", "prepare_qat", "propagate_qconfig_",
    "qconfig_equals", "quantize", "quantize_dynamic", "quantize_dynamic_jit", "quantize_jit", "quantize_qat", "script_qconfig",
    "script_qconfig_dict", "swap_module",
)  # fmt: skip
_VALUES = (
    "DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS", "DEFAULT_DYNAMIC_SPARSE_QUANT_MODULE_MAPPINGS", "DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS",
    "DEFAULT_MODULE_TO_ACT_POST_PROCESS", "DEFAULT_QAT_MODULE_MAPPINGS", "DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS",
    "DEFAULT_STATIC_QUANT_MODULE_MAPPINGS", "DEFAULT_STATIC_SPARSE_QUANT_MODULE_MAPPINGS", "QConfigAny", "default_activation_only_qconfig",
    "default_affine_fixed_qparams_fake_quant", "default_affine_fixed_qparams_observer", "default_debug_qconfig",
    "default_dynamic_fake_quant", "default_dynamic_qat_qconfig", "default_dynamic_qconfig", "default_dynamic_quant_observer",
    "default_embedding_fake_quant", "default_embedding_fake_quant_4bit", "default_embedding_qat_qconfig",
    "default_embedding_qat_qconfig_4bit", "default_fake_quant", "default_fixed_qparams_range_0to1_fake_quant",
    "default_fixed_qparams_range_0to1_observer", "default_fixed_qparams_range_neg1to1_fake_quant",
    "default_fixed_qparams_range_neg1to1_observer", "default_float_qparams_observer", "default_float_qparams_observer_4bit",
    "default_fused_act_fake_quant", "default_fused_per_channel_wt_fake_quant", "default_fused_wt_fake_quant",
    "default_histogram_fake_quant", "default_histogram_observer", "default_observer", "default_per_channel_qconfig",
    "default_per_channel_symmetric_qnnpack_qat_qconfig", "default_per_channel_symmetric_qnnpack_qconfig",
    "default_per_channel_weight_fake_quant", "default_per_channel_weight_observer", "default_qat_qconfig", "default_qat_qconfig_v2",
    "default_qconfig", "default_quint8_weight_qconfig", "default_reuse_input_qconfig", "default_symmetric_fixed_qparams_fake_quant",
    "default_symmetric_fixed_qparams_observer", "default_symmetric_qnnpack_qat_qconfig", "default_symmetric_qnnpack_qconfig",
    "default_weight_fake_quant", "default_weight_observer", "default_weight_only_qconfig", "float16_dynamic_qconfig",
    "float16_static_qconfig", "float_qparams_weight_only_qconfig", "float_qparams_weight_only_qconfig_4bit",
    "fused_per_channel_wt_fake_quant_range_neg_127_to_127", "fused_wt_fake_quant_range_neg_127_to_127", "per_channel_dynamic_qconfig",
    "per_channel_weight_observer_range_neg_127_to_127", "weight_observer_range_neg_127_to_127",
)  # fmt: skip

__all__ = [  # noqa: PLE0604
    "DeQuantStub",
    "FakeQuantizeBase",
    "ObserverBase",
    "QuantStub",
    "QuantWrapper",
    *_MODULES,
    *_CLASSES,
    *_FUNCTIONS,
    *_VALUES,
]


# Modules that watch values on their way, for `isinstance`.
ObserverBase = absent_class("torch.ao.quantization.ObserverBase", _WHY, (Module,))
FakeQuantizeBase = absent_class("torch.ao.quantization.FakeQuantizeBase", _WHY, (Module,))


class QuantStub(Module):
    """Where floats would become integers; until a model is converted it returns its input."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """The input."""
        return x


class DeQuantStub(QuantStub):
    """Where integers would become floats; until a model is converted it returns its input."""


class QuantWrapper(Module):
    """A module between a `QuantStub` and a `DeQuantStub`."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        qconfig = getattr(module, "qconfig", None)
        self.quant, self.dequant, self.module = QuantStub(qconfig), DeQuantStub(qconfig), module
        self.train(module.training)

    def forward(self, X: Any) -> Any:
        """What the module makes of the input."""
        return self.dequant(self.module(self.quant(X)))


def _fill() -> None:
    page = globals()
    for name in _MODULES:
        page[name] = absent_class(
            f"torch.ao.quantization.{name}", _WHY, (FakeQuantizeBase if "Fake" in name else ObserverBase,)
        )
    for name in _CLASSES:
        page[name] = absent_class(f"torch.ao.quantization.{name}", _WHY)
    for name in _FUNCTIONS:
        page[name] = absent_function(f"torch.ao.quantization.{name}", _WHY)
    for name in _VALUES:
        page[name] = absent_value(f"torch.ao.quantization.{name}", _WHY)


_fill()
