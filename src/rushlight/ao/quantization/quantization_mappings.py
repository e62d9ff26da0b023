"""Which module becomes which: float ones trained or quantized ones."""

from __future__ import annotations

import copy
from typing import Any

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import nn
from rushlight.ao.nn import intrinsic as nni
from rushlight.ao.nn import qat as nnqat
from rushlight.ao.nn import quantized as nnq
from rushlight.ao.nn.intrinsic import qat as nniqat
from rushlight.ao.nn.intrinsic import quantized as nniq
from rushlight.ao.nn.qat import dynamic as nnqatd
from rushlight.ao.nn.quantized import dynamic as nnqd
from rushlight.ao.nn.quantized import reference as nnqr
from rushlight.ao.quantization.fake_quantize import (
    default_fixed_qparams_range_0to1_fake_quant,
    default_fixed_qparams_range_neg1to1_fake_quant,
)
from rushlight.ao.quantization.stubs import DeQuantStub, QuantStub

__all__ = [
    "DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS", "DEFAULT_DYNAMIC_SPARSE_QUANT_MODULE_MAPPINGS", "DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS",
    "DEFAULT_MODULE_TO_ACT_POST_PROCESS", "DEFAULT_QAT_MODULE_MAPPINGS", "DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS",
    "DEFAULT_STATIC_QUANT_MODULE_MAPPINGS", "DEFAULT_STATIC_SPARSE_QUANT_MODULE_MAPPINGS", "get_default_compare_output_module_list",
    "get_default_dynamic_quant_module_mappings", "get_default_dynamic_sparse_quant_module_mappings",
    "get_default_float_to_quantized_operator_mappings", "get_default_qat_module_mappings", "get_default_qconfig_propagation_list",
    "get_default_static_quant_module_mappings", "get_default_static_quant_reference_module_mappings",
    "get_default_static_sparse_quant_module_mappings", "get_dynamic_quant_module_class", "get_embedding_qat_module_mappings",
    "get_embedding_static_quant_module_mappings", "get_quantized_operator", "get_static_quant_module_class", "no_observer_set",
]  # fmt: skip

_SAME_NAME = (  # float modules that become the quantized module of the same name
    "BatchNorm2d", "BatchNorm3d", "Dropout", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "ELU",
    "Embedding", "EmbeddingBag", "GroupNorm", "Hardswish", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "LeakyReLU",
    "Linear", "ReLU6", "PReLU",
)  # fmt: skip
_FUSED = (
    "BNReLU2d", "BNReLU3d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "ConvAdd2d", "ConvAddReLU2d", "LinearReLU", "LinearLeakyReLU", "LinearTanh",
)  # fmt: skip
_Odd = nn.modules.linear.NonDynamicallyQuantizableLinear

DEFAULT_STATIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    QuantStub: nnq.Quantize,
    DeQuantStub: nnq.DeQuantize,
    **{getattr(nn, n): getattr(nnq, n) for n in _SAME_NAME},
    _Odd: nnq.Linear,
    nnq.FloatFunctional: nnq.QFunctional,
    **{getattr(nni, n): getattr(nniq, n) for n in _FUSED},
    **{getattr(nniqat, f"ConvBn{n}d"): getattr(nnq, f"Conv{n}d") for n in (1, 2, 3)},
    **{getattr(nniqat, f"ConvBnReLU{n}d"): getattr(nniq, f"ConvReLU{n}d") for n in (1, 2, 3)},
    **{getattr(nniqat, f"ConvReLU{n}d"): getattr(nniq, f"ConvReLU{n}d") for n in (1, 2, 3)},
    nniqat.LinearReLU: nniq.LinearReLU,
    nniqat.LinearBn1d: nnq.Linear,
    **{getattr(nnqat, n): getattr(nnq, n) for n in ("Linear", "Conv1d", "Conv2d", "Conv3d")},
}
DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    QuantStub: nnq.Quantize,
    DeQuantStub: nnq.DeQuantize,
    **{getattr(nn, n): getattr(nnqr, n) for n in nnqr.__all__},
}
DEFAULT_QAT_MODULE_MAPPINGS: dict[Any, Any] = {
    **{getattr(nn, n): getattr(nnqat, n) for n in ("Conv2d", "Conv3d", "Linear")},
    _Odd: nnqat.Linear,
    **{
        getattr(nni, n): getattr(nniqat, n)
        for n in (
            *(f"Conv{kind}{d}d" for kind in ("Bn", "BnReLU") for d in (1, 2, 3)),
            "ConvReLU2d",
            "ConvReLU3d",
            "LinearReLU",
            "LinearBn1d",
        )
    },
}
DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    **{getattr(nn, n): getattr(nnqd, n) for n in ("GRUCell", "Linear", "LSTM", "GRU", "LSTMCell", "RNNCell")},
    nnqatd.Linear: nnqd.Linear,
    _Odd: nnqd.Linear,
    nni.LinearReLU: nniq.dynamic.LinearReLU,
    nn.EmbeddingBag: nnq.EmbeddingBag,
    nn.Embedding: nnq.Embedding,
}
DEFAULT_STATIC_SPARSE_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {}
DEFAULT_DYNAMIC_SPARSE_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {}
_INCLUDE_QCONFIG_PROPAGATE_LIST = {nn.Sequential}
DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS: dict[Any, Any] = {
    getattr(F, n): getattr(torch.ops.quantized, n)
    for n in ("elu", "hardswish", "instance_norm", "layer_norm", "leaky_relu", "dropout")
}
DEFAULT_MODULE_TO_ACT_POST_PROCESS: dict[Any, Any] = {
    nn.Hardsigmoid: default_fixed_qparams_range_0to1_fake_quant,
    nn.Sigmoid: default_fixed_qparams_range_0to1_fake_quant,
    nn.Softmax: default_fixed_qparams_range_0to1_fake_quant,
    nn.Tanh: default_fixed_qparams_range_neg1to1_fake_quant,
}


def no_observer_set() -> set[Any]:
    """Modules that are not observed themselves."""
    return {nnq.Quantize, nnq.DeQuantize}


def get_default_static_quant_module_mappings() -> dict[Any, Any]:
    """Float module to quantized module, by calibration."""
    return copy.deepcopy(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS)


def get_default_static_quant_reference_module_mappings() -> dict[Any, Any]:
    """Float module to reference module, by calibration."""
    return copy.deepcopy(DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS)


def get_embedding_static_quant_module_mappings() -> dict[Any, Any]:
    """The same with trained embeddings."""
    mapping = copy.deepcopy(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS)
    mapping[nnqat.EmbeddingBag] = nnq.EmbeddingBag
    mapping[nnqat.Embedding] = nnq.Embedding
    return mapping


def get_default_static_sparse_quant_module_mappings() -> dict[Any, Any]:
    """Sparse quantized modules: none are here."""
    return copy.deepcopy(DEFAULT_STATIC_SPARSE_QUANT_MODULE_MAPPINGS)


def get_default_dynamic_sparse_quant_module_mappings() -> dict[Any, Any]:
    """Sparse dynamic modules: none are here."""
    return copy.deepcopy(DEFAULT_DYNAMIC_SPARSE_QUANT_MODULE_MAPPINGS)


def get_default_qat_module_mappings() -> dict[Any, Any]:
    """Float module to trained module."""
    return copy.deepcopy(DEFAULT_QAT_MODULE_MAPPINGS)


def get_embedding_qat_module_mappings() -> dict[Any, Any]:
    """The same with embeddings."""
    mapping = copy.deepcopy(DEFAULT_QAT_MODULE_MAPPINGS)
    mapping[nn.EmbeddingBag] = nnqat.EmbeddingBag
    mapping[nn.Embedding] = nnqat.Embedding
    return mapping


def get_default_dynamic_quant_module_mappings() -> dict[Any, Any]:
    """Float module to dynamic module."""
    return dict(DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS)


def get_static_quant_module_class(
    float_module_class: Any, additional_static_quant_mapping: Any = None, is_reference: bool = False
) -> Any:
    """The quantized (or reference) class of a float one."""
    table = DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS if is_reference else DEFAULT_STATIC_QUANT_MODULE_MAPPINGS
    found = {**table, **(additional_static_quant_mapping or {})}.get(float_module_class)
    if found is None:
        raise AssertionError(
            f"Floating point module class {float_module_class} does not have a corresponding quantized module class"
        )
    return copy.deepcopy(found)


def get_dynamic_quant_module_class(float_module_class: Any, additional_dynamic_quant_mapping: Any = None) -> Any:
    """The dynamic class of a float one."""
    found = {**DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS, **(additional_dynamic_quant_mapping or {})}.get(
        float_module_class
    )
    if found is None:
        raise AssertionError(
            f"Floating point module class {float_module_class} does not have a corresponding quantized module class"
        )
    return copy.deepcopy(found)


def get_default_qconfig_propagation_list() -> set[Any]:
    """The classes of modules that take a qconfig from their parent."""
    return (
        set(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS)
        | set(DEFAULT_QAT_MODULE_MAPPINGS)
        | set(DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS)
        | {
            nni.ConvBn1d,
            nni.ConvBn2d,
            nni.ConvBn3d,
            nni.ConvBnReLU1d,
            nni.ConvBnReLU2d,
            nni.ConvBnReLU3d,
            nni.LinearBn1d,
        }
        | _INCLUDE_QCONFIG_PROPAGATE_LIST
    )


def get_default_compare_output_module_list() -> set[Any]:
    """The classes of modules whose results are compared by numeric suites."""
    static, dynamic, trained = (
        DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
        DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
        DEFAULT_QAT_MODULE_MAPPINGS,
    )
    found = {
        *static.values(),
        *trained.values(),
        *dynamic.values(),
        *static,
        *trained,
        *dynamic,
        *_INCLUDE_QCONFIG_PROPAGATE_LIST,
    }
    return found - {nnq.Quantize, nnq.DeQuantize}


def get_default_float_to_quantized_operator_mappings() -> dict[Any, Any]:
    """Function of floats to quantized operator."""
    return copy.deepcopy(DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS)


def get_quantized_operator(float_op: Any) -> Any:
    """The quantized operator of a function of floats."""
    found = DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS.get(float_op)
    if found is None:
        raise AssertionError(f"Operator {float_op} does not have corresponding quantized op")
    return found


def _get_special_act_post_process(module: Any) -> Any:
    return DEFAULT_MODULE_TO_ACT_POST_PROCESS.get(type(module))


def _has_special_act_post_process(module: Any) -> bool:
    return module.training and type(module) in DEFAULT_MODULE_TO_ACT_POST_PROCESS
