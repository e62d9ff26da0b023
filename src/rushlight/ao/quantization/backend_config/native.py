"""The patterns that this library computes on integers."""

from __future__ import annotations

import operator
from typing import Any

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import nn
from rushlight.ao.nn import intrinsic as nni
from rushlight.ao.nn.quantized import reference as nnqr
from rushlight.ao.quantization.backend_config.configs import (
    BackendConfig,
    BackendPatternConfig,
    DTypeConfig,
    ObservationType,
)
from rushlight.ao.quantization.fuser_method_mappings import _DEFAULT_OP_LIST_TO_FUSER_METHOD
from rushlight.ao.quantization.quantization_mappings import DEFAULT_QAT_MODULE_MAPPINGS

__all__: list[str] = []

_OWN, _SHARED, _NONE = ObservationType
_STATIC = DTypeConfig(torch.quint8, torch.quint8, torch.qint8, torch.float)
_PLAIN = DTypeConfig(torch.quint8, torch.quint8)
_DYNAMIC = DTypeConfig(torch.quint8, torch.float, torch.qint8, torch.float, is_dynamic=True)
_WEIGHT_ONLY = DTypeConfig(torch.float, torch.float, torch.quint8)
RELUS = (nn.ReLU, F.relu, torch.relu, "relu", "relu_")
WEIGHTED = (  # modules with a weight of integers
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
WEIGHTED_FUNCTIONS = {
    F.linear: "linear", F.conv1d: "conv1d", F.conv2d: "conv2d", F.conv3d: "conv3d", torch.conv1d: "conv1d", torch.conv2d: "conv2d",
    torch.conv3d: "conv3d",
}  # fmt: skip
PAIRS = {
    operator.add: "add",
    torch.add: "add",
    operator.mul: "mul",
    torch.mul: "mul",
    operator.iadd: "add",
    operator.imul: "mul",
}
OWN_MODULES = (  # modules whose result has a scale of its own
    nn.ELU, nn.LeakyReLU, nn.Hardswish, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.GroupNorm, nn.LayerNorm, nn.PReLU,
    nn.BatchNorm2d, nn.BatchNorm3d, nni.BNReLU2d, nni.BNReLU3d, nn.Softmax, nn.Dropout,
)  # fmt: skip
OWN_FUNCTIONS = {
    F.elu: "elu", F.hardswish: "hardswish", F.leaky_relu: "leaky_relu", F.dropout: "dropout", F.group_norm: "group_norm",
    F.instance_norm: "instance_norm", F.layer_norm: "layer_norm", torch.matmul: "matmul", operator.matmul: "matmul",
}  # fmt: skip
FIXED = (  # what returns numbers of a known range
    nn.Sigmoid, nn.Tanh, nn.Hardsigmoid, torch.sigmoid, F.sigmoid, "sigmoid", "sigmoid_", torch.tanh, F.tanh, "tanh", "tanh_",
    F.hardsigmoid, "hardsigmoid", "hardsigmoid_",
)  # fmt: skip
SHARED = (  # what chooses, moves or averages numbers
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.Hardtanh, nn.Identity,
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.PixelShuffle, nn.PixelUnshuffle, nn.ReLU, nn.ReLU6, nn.Flatten, F.adaptive_avg_pool1d,
    F.adaptive_avg_pool2d, F.adaptive_avg_pool3d, F.hardtanh, F.hardtanh_, F.interpolate, F.max_pool1d, F.max_pool2d, F.max_pool3d,
    F.pixel_shuffle, F.pixel_unshuffle, F.relu, F.relu6, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d, torch.relu, torch.avg_pool1d,
    torch.clamp, torch.flatten, torch.mean, torch.narrow, torch.repeat_interleave, torch.transpose, torch.squeeze, torch.stack,
    torch.unsqueeze, torch.cat, torch.max_pool2d, torch.max_pool1d, torch.reshape, torch.permute, "contiguous", "clamp", "detach",
    "detach_", "mean", "permute", "repeat", "repeat_interleave", "reshape", "resize_", "relu", "relu_", "squeeze", "squeeze_",
    "transpose", "unsqueeze", "unsqueeze_", "view", "flatten",
)  # fmt: skip
SIZES = ("shape", "size", "dim")
_DYNAMIC_MODULES = (nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell)
_WEIGHT_ONLY_MODULES = (nn.Embedding, nn.EmbeddingBag)


def _row(pattern: Any, how: ObservationType = _OWN, *dtypes: DTypeConfig) -> BackendPatternConfig:
    return BackendPatternConfig(pattern).set_observation_type(how).set_dtype_configs(list(dtypes) or [_PLAIN])


def _weighted() -> list[BackendPatternConfig]:
    rows = []
    for module in WEIGHTED:
        row = _row(module, _OWN, _STATIC, *([_DYNAMIC] if module is nn.Linear else []))
        row.set_root_module(module).set_reference_quantized_module(getattr(nnqr, module.__name__))
        rows.append(row.set_qat_module(DEFAULT_QAT_MODULE_MAPPINGS.get(module)))
    for name in nni.__all__:
        fused = getattr(nni, name)
        if name.startswith(("Conv", "Linear")) and "Add" not in name:
            rows.append(_row(fused, _OWN, _STATIC).set_qat_module(DEFAULT_QAT_MODULE_MAPPINGS.get(fused)))
    for function in WEIGHTED_FUNCTIONS:
        row = _row(function, _OWN, _STATIC)._set_input_type_to_index({"weight": 1, "bias": 2})
        rows += [row, *(_row((function, relu), _OWN, _STATIC) for relu in RELUS)]
    return rows


def _fused() -> list[BackendPatternConfig]:
    return [
        _row(pattern, _OWN, _STATIC).set_fuser_method(fuse)
        for pattern, fuse in _DEFAULT_OP_LIST_TO_FUSER_METHOD.items()
    ]


def _pairs() -> list[BackendPatternConfig]:
    by_count = {0: _OWN, 1: _SHARED, 2: _OWN}
    rows = []
    for function in PAIRS:
        for pattern in (function, *((function, relu) for relu in RELUS)):
            rows.append(_row(pattern)._set_num_tensor_args_to_observation_type(by_count))
    return rows


def _made(name: str) -> BackendConfig:
    made = BackendConfig(name)
    made.set_backend_pattern_configs(_weighted() + _fused() + _pairs())
    made.set_backend_pattern_configs([_row(p) for p in (*OWN_MODULES, *OWN_FUNCTIONS, *FIXED)])
    made.set_backend_pattern_configs([_row(p, _SHARED) for p in SHARED])
    made.set_backend_pattern_configs([_row(p, _NONE) for p in SIZES])
    made.set_backend_pattern_configs([_row(p, _OWN, _DYNAMIC) for p in _DYNAMIC_MODULES[1:]])
    made.set_backend_pattern_configs([_row(p, _OWN, _WEIGHT_ONLY) for p in _WEIGHT_ONLY_MODULES])
    return made


def get_native_backend_config() -> BackendConfig:
    """The patterns that this library computes on integers."""
    return _made("native")


def get_fbgemm_backend_config() -> BackendConfig:
    """The same: there is one engine."""
    return _made("fbgemm")


def get_onednn_backend_config() -> BackendConfig:
    """The same: there is one engine."""
    return _made("onednn")


def get_qnnpack_backend_config() -> BackendConfig:
    """The same: there is one engine."""
    return _made("qnnpack")


def get_executorch_backend_config() -> BackendConfig:
    """The patterns of this library, for models that leave as reference models."""
    return _made("executorch")


def get_tensorrt_backend_config() -> BackendConfig:
    """The patterns of this library, for models that leave as reference models."""
    return _made("tensorrt")


def get_native_backend_config_dict() -> dict[str, Any]:
    """`get_native_backend_config` as a dict."""
    return get_native_backend_config().to_dict()


def get_tensorrt_backend_config_dict() -> dict[str, Any]:
    """`get_tensorrt_backend_config` as a dict."""
    return get_tensorrt_backend_config().to_dict()
