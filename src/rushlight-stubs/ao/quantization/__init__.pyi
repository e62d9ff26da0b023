"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import dict as _dict, str as _str
from rushlight.ao.quantization.observer import PlaceholderObserver as _PlaceholderObserver, RecordingObserver as _RecordingObserver, ReuseInputObserver as _ReuseInputObserver, _PartialWrapper as _PartialWrapper
from types import UnionType as _UnionType
from typing import Any as _Any, NoReturn as _NoReturn

from rushlight.ao.quantization.observer import AffineQuantizedObserverBase as AffineQuantizedObserverBase
DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS: _dict[_str, _Any]
DEFAULT_DYNAMIC_SPARSE_QUANT_MODULE_MAPPINGS: _dict[_str, _Any]
DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS: _dict[_str, _Any]
DEFAULT_MODULE_TO_ACT_POST_PROCESS: _dict[_str, _Any]
DEFAULT_QAT_MODULE_MAPPINGS: _dict[_str, _Any]
DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS: _dict[_str, _Any]
DEFAULT_STATIC_QUANT_MODULE_MAPPINGS: _dict[_str, _Any]
DEFAULT_STATIC_SPARSE_QUANT_MODULE_MAPPINGS: _dict[_str, _Any]
from rushlight.ao.quantization.stubs import DeQuantStub as DeQuantStub
from rushlight.ao.quantization.fake_quantize import FakeQuantize as FakeQuantize
from rushlight.ao.quantization.fake_quantize import FakeQuantizeBase as FakeQuantizeBase
from rushlight.ao.quantization.fake_quantize import FixedQParamsFakeQuantize as FixedQParamsFakeQuantize
from rushlight.ao.quantization.observer import FixedQParamsObserver as FixedQParamsObserver
from rushlight.ao.quantization.fake_quantize import FusedMovingAvgObsFakeQuantize as FusedMovingAvgObsFakeQuantize
from rushlight.ao.quantization.granularity import Granularity as Granularity
from rushlight.ao.quantization.observer import HistogramObserver as HistogramObserver
from rushlight.ao.quantization.granularity import MappingType as MappingType
from rushlight.ao.quantization.observer import MinMaxObserver as MinMaxObserver
from rushlight.ao.quantization.observer import MovingAverageMinMaxObserver as MovingAverageMinMaxObserver
from rushlight.ao.quantization.observer import MovingAveragePerChannelMinMaxObserver as MovingAveragePerChannelMinMaxObserver
from rushlight.ao.quantization.observer import NoopObserver as NoopObserver
from rushlight.ao.quantization.observer import ObserverBase as ObserverBase
ObserverOrFakeQuantize: _UnionType
from rushlight.ao.quantization.granularity import PerAxis as PerAxis
from rushlight.ao.quantization.granularity import PerBlock as PerBlock
from rushlight.ao.quantization.observer import PerChannelMinMaxObserver as PerChannelMinMaxObserver
from rushlight.ao.quantization.granularity import PerGroup as PerGroup
from rushlight.ao.quantization.granularity import PerRow as PerRow
from rushlight.ao.quantization.granularity import PerTensor as PerTensor
from rushlight.ao.quantization.granularity import PerToken as PerToken
from rushlight.ao.quantization.observer import PlaceholderObserver as PlaceholderObserver
from rushlight.ao.quantization.qconfig import QConfig as QConfig
QConfigAny: _UnionType
from rushlight.ao.quantization.qconfig import QConfigDynamic as QConfigDynamic
from rushlight.ao.quantization.qconfig_mapping import QConfigMapping as QConfigMapping
from rushlight.ao.quantization.stubs import QuantStub as QuantStub
from rushlight.ao.quantization.quant_type import QuantType as QuantType
from rushlight.ao.quantization.stubs import QuantWrapper as QuantWrapper
from rushlight.ao.quantization.observer import RecordingObserver as RecordingObserver
from rushlight.ao.quantization.observer import ReuseInputObserver as ReuseInputObserver
from rushlight.ao.quantization.granularity import TorchAODType as TorchAODType
from rushlight.ao.quantization.observer import UniformQuantizationObserverBase as UniformQuantizationObserverBase
from rushlight.ao.quantization.granularity import ZeroPointDomain as ZeroPointDomain
from rushlight.ao.quantization.quantize import add_quant_dequant as add_quant_dequant
from rushlight.ao.quantization import backend_config as backend_config
from rushlight.ao.quantization.quantize import convert as convert
def convert_dynamic_jit(*args: _Any, **kwargs: _Any) -> _NoReturn: ...
def convert_jit(*args: _Any, **kwargs: _Any) -> _NoReturn: ...
default_activation_only_qconfig: _Any
default_affine_fixed_qparams_fake_quant: _PartialWrapper
from rushlight.ao.quantization.observer import default_affine_fixed_qparams_observer as default_affine_fixed_qparams_observer
default_debug_observer = _RecordingObserver
default_debug_qconfig: _Any
default_dynamic_fake_quant: _PartialWrapper
default_dynamic_qat_qconfig: _Any
default_dynamic_qconfig: _Any
from rushlight.ao.quantization.observer import default_dynamic_quant_observer as default_dynamic_quant_observer
default_embedding_fake_quant: _PartialWrapper
default_embedding_fake_quant_4bit: _PartialWrapper
default_embedding_qat_qconfig: _Any
default_embedding_qat_qconfig_4bit: _Any
from rushlight.ao.quantization.quantize import default_eval_fn as default_eval_fn
default_fake_quant: _PartialWrapper
default_fixed_qparams_range_0to1_fake_quant: _PartialWrapper
from rushlight.ao.quantization.observer import default_fixed_qparams_range_0to1_observer as default_fixed_qparams_range_0to1_observer
default_fixed_qparams_range_neg1to1_fake_quant: _PartialWrapper
from rushlight.ao.quantization.observer import default_fixed_qparams_range_neg1to1_observer as default_fixed_qparams_range_neg1to1_observer
from rushlight.ao.quantization.observer import default_float_qparams_observer as default_float_qparams_observer
from rushlight.ao.quantization.observer import default_float_qparams_observer_4bit as default_float_qparams_observer_4bit
default_fused_act_fake_quant: _PartialWrapper
default_fused_per_channel_wt_fake_quant: _PartialWrapper
default_fused_wt_fake_quant: _PartialWrapper
default_histogram_fake_quant: _PartialWrapper
from rushlight.ao.quantization.observer import default_histogram_observer as default_histogram_observer
from rushlight.ao.quantization.observer import default_observer as default_observer
default_per_channel_qconfig: _Any
default_per_channel_symmetric_qnnpack_qat_qconfig: _Any
default_per_channel_symmetric_qnnpack_qconfig: _Any
default_per_channel_weight_fake_quant: _PartialWrapper
from rushlight.ao.quantization.observer import default_per_channel_weight_observer as default_per_channel_weight_observer
default_placeholder_observer = _PlaceholderObserver
default_qat_qconfig: _Any
default_qat_qconfig_v2: _Any
default_qconfig: _Any
default_quint8_weight_qconfig: _Any
default_reuse_input_observer = _ReuseInputObserver
default_reuse_input_qconfig: _Any
default_symmetric_fixed_qparams_fake_quant: _PartialWrapper
from rushlight.ao.quantization.observer import default_symmetric_fixed_qparams_observer as default_symmetric_fixed_qparams_observer
default_symmetric_qnnpack_qat_qconfig: _Any
default_symmetric_qnnpack_qconfig: _Any
default_weight_fake_quant: _PartialWrapper
from rushlight.ao.quantization.observer import default_weight_observer as default_weight_observer
default_weight_only_qconfig: _Any
from rushlight.ao.quantization.fake_quantize import disable_fake_quant as disable_fake_quant
from rushlight.ao.quantization.fake_quantize import disable_observer as disable_observer
from rushlight.ao.quantization.fake_quantize import enable_fake_quant as enable_fake_quant
from rushlight.ao.quantization.fake_quantize import enable_observer as enable_observer
from rushlight.ao.quantization import exported as exported
from rushlight.ao.quantization import fake_quantize as fake_quantize
float16_dynamic_qconfig: _Any
float16_static_qconfig: _Any
float_qparams_weight_only_qconfig: _Any
float_qparams_weight_only_qconfig_4bit: _Any
from rushlight.ao.quantization.fuser_method_mappings import fuse_conv_bn as fuse_conv_bn
def fuse_conv_bn_jit(*args: _Any, **kwargs: _Any) -> _NoReturn: ...
from rushlight.ao.quantization.fuser_method_mappings import fuse_conv_bn_relu as fuse_conv_bn_relu
from rushlight.ao.quantization.fuser_method_mappings import fuse_convtranspose_bn as fuse_convtranspose_bn
from rushlight.ao.quantization.fuser_method_mappings import fuse_linear_bn as fuse_linear_bn
from rushlight.ao.quantization.fuse_modules import fuse_modules as fuse_modules
from rushlight.ao.quantization.fuse_modules import fuse_modules_qat as fuse_modules_qat
fused_per_channel_wt_fake_quant_range_neg_127_to_127: _PartialWrapper
fused_wt_fake_quant_range_neg_127_to_127: _PartialWrapper
from rushlight.ao.quantization import fuser_method_mappings as fuser_method_mappings
from rushlight.ao.quantization import fx as fx
from rushlight.ao.quantization.granularity import get_block_size as get_block_size
from rushlight.ao.quantization.quantization_mappings import get_default_compare_output_module_list as get_default_compare_output_module_list
from rushlight.ao.quantization.quantize import get_default_custom_config_dict as get_default_custom_config_dict
from rushlight.ao.quantization.quantization_mappings import get_default_dynamic_quant_module_mappings as get_default_dynamic_quant_module_mappings
from rushlight.ao.quantization.quantization_mappings import get_default_dynamic_sparse_quant_module_mappings as get_default_dynamic_sparse_quant_module_mappings
from rushlight.ao.quantization.quantization_mappings import get_default_float_to_quantized_operator_mappings as get_default_float_to_quantized_operator_mappings
from rushlight.ao.quantization.quantization_mappings import get_default_qat_module_mappings as get_default_qat_module_mappings
from rushlight.ao.quantization.qconfig import get_default_qat_qconfig as get_default_qat_qconfig
from rushlight.ao.quantization.qconfig import get_default_qat_qconfig_dict as get_default_qat_qconfig_dict
from rushlight.ao.quantization.qconfig_mapping import get_default_qat_qconfig_mapping as get_default_qat_qconfig_mapping
from rushlight.ao.quantization.qconfig import get_default_qconfig as get_default_qconfig
from rushlight.ao.quantization.qconfig import get_default_qconfig_dict as get_default_qconfig_dict
from rushlight.ao.quantization.qconfig_mapping import get_default_qconfig_mapping as get_default_qconfig_mapping
from rushlight.ao.quantization.quantization_mappings import get_default_qconfig_propagation_list as get_default_qconfig_propagation_list
from rushlight.ao.quantization.quantization_mappings import get_default_static_quant_module_mappings as get_default_static_quant_module_mappings
from rushlight.ao.quantization.quantization_mappings import get_default_static_quant_reference_module_mappings as get_default_static_quant_reference_module_mappings
from rushlight.ao.quantization.quantization_mappings import get_default_static_sparse_quant_module_mappings as get_default_static_sparse_quant_module_mappings
from rushlight.ao.quantization.quantization_mappings import get_dynamic_quant_module_class as get_dynamic_quant_module_class
from rushlight.ao.quantization.quantization_mappings import get_embedding_qat_module_mappings as get_embedding_qat_module_mappings
from rushlight.ao.quantization.quantization_mappings import get_embedding_static_quant_module_mappings as get_embedding_static_quant_module_mappings
from rushlight.ao.quantization.fuser_method_mappings import get_fuser_method as get_fuser_method
from rushlight.ao.quantization.fuser_method_mappings import get_fuser_method_new as get_fuser_method_new
from rushlight.ao.quantization.observer import get_observer_state_dict as get_observer_state_dict
from rushlight.ao.quantization.quantization_mappings import get_quantized_operator as get_quantized_operator
from rushlight.ao.quantization.quantization_mappings import get_static_quant_module_class as get_static_quant_module_class
from rushlight.ao.quantization import granularity as granularity
from rushlight.ao.quantization import histograms as histograms
from rushlight.ao.quantization import kv_cache as kv_cache
from rushlight.ao.quantization.observer import load_observer_state_dict as load_observer_state_dict
from rushlight.ao.quantization.quantization_mappings import no_observer_set as no_observer_set
from rushlight.ao.quantization import observer as observer
per_channel_dynamic_qconfig: _Any
from rushlight.ao.quantization.observer import per_channel_weight_observer_range_neg_127_to_127 as per_channel_weight_observer_range_neg_127_to_127
from rushlight.ao.quantization.quantize import prepare as prepare
def prepare_dynamic_jit(*args: _Any, **kwargs: _Any) -> _NoReturn: ...
def prepare_jit(*args: _Any, **kwargs: _Any) -> _NoReturn: ...
from rushlight.ao.quantization.quantize import prepare_qat as prepare_qat
from rushlight.ao.quantization.quantize import propagate_qconfig_ as propagate_qconfig_
from rushlight.ao.quantization import qconfig as qconfig
from rushlight.ao.quantization.qconfig import qconfig_equals as qconfig_equals
from rushlight.ao.quantization import qconfig_mapping as qconfig_mapping
from rushlight.ao.quantization import quant_type as quant_type
from rushlight.ao.quantization import quantization_mappings as quantization_mappings
from rushlight.ao.quantization.quantize import quantize as quantize
from rushlight.ao.quantization.quantize import quantize_dynamic as quantize_dynamic
def quantize_dynamic_jit(*args: _Any, **kwargs: _Any) -> _NoReturn: ...
from rushlight.ao.quantization import quantize_fx as quantize_fx
def quantize_jit(*args: _Any, **kwargs: _Any) -> _NoReturn: ...
from rushlight.ao.quantization.quantize import quantize_qat as quantize_qat
def script_qconfig(*args: _Any, **kwargs: _Any) -> _NoReturn: ...
def script_qconfig_dict(*args: _Any, **kwargs: _Any) -> _NoReturn: ...
from rushlight.ao.quantization import stubs as stubs
from rushlight.ao.quantization.quantize import swap_module as swap_module
from rushlight.ao.quantization import utils as utils
from rushlight.ao.quantization.observer import weight_observer_range_neg_127_to_127 as weight_observer_range_neg_127_to_127
from rushlight.ao.quantization import weight_only as weight_only
