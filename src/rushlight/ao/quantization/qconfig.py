"""QConfig: how a module is quantized: an observer (or fake quantization) for its results, and one for its weight."""

from __future__ import annotations

import copy
import warnings
from collections import namedtuple
from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.ao.quantization import fake_quantize as fake
from rushlight.ao.quantization import observer as watch
from rushlight.ao.quantization.fake_quantize import FakeQuantize, FakeQuantizeBase, FusedMovingAvgObsFakeQuantize
from rushlight.ao.quantization.observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    NoopObserver,
    ObserverBase,
    PlaceholderObserver,
    ReuseInputObserver,
    _PartialWrapper,
)

__all__ = [
    "QConfig", "QConfigAny", "QConfigDynamic", "default_activation_only_qconfig", "default_debug_qconfig", "default_dynamic_qat_qconfig",
    "default_dynamic_qconfig", "default_embedding_qat_qconfig", "default_embedding_qat_qconfig_4bit", "default_per_channel_qconfig",
    "default_per_channel_symmetric_qnnpack_qat_qconfig", "default_per_channel_symmetric_qnnpack_qconfig", "default_qat_qconfig",
    "default_qat_qconfig_v2", "default_qconfig", "default_quint8_weight_qconfig", "default_reuse_input_qconfig",
    "default_symmetric_qnnpack_qat_qconfig", "default_symmetric_qnnpack_qconfig", "default_weight_only_qconfig",
    "float16_dynamic_qconfig", "float16_static_qconfig", "float_qparams_weight_only_qconfig", "float_qparams_weight_only_qconfig_4bit",
    "get_default_qat_qconfig", "get_default_qat_qconfig_dict", "get_default_qconfig", "get_default_qconfig_dict",
    "per_channel_dynamic_qconfig", "qconfig_equals",
]  # fmt: skip


class QConfig(namedtuple("QConfig", ["activation", "weight"])):
    """Factories of the observers of results and of the weight.

    >>> import rushlight as torch
    >>> torch.ao.quantization.QConfig(torch.ao.quantization.MinMaxObserver, torch.ao.quantization.default_weight_observer).activation
    <class 'rushlight.ao.quantization.observer.MinMaxObserver'>
    """

    __slots__ = ()

    def __new__(cls, activation: Any, weight: Any) -> Any:
        if isinstance(activation, nn.Module) or isinstance(weight, nn.Module):
            raise ValueError(
                "QConfig received observer instance, please pass observer class instead. Use MyObserver.with_args(x=1) to override arguments to constructor if needed"
            )
        return super().__new__(cls, activation, weight)


class QConfigDynamic(namedtuple("QConfigDynamic", ["activation", "weight"])):
    """The older form of a `QConfig` for dynamic quantization."""

    __slots__ = ()

    def __new__(cls, activation: Any = nn.Identity, weight: Any = nn.Identity) -> Any:
        if isinstance(weight, nn.Module):
            raise ValueError(
                "QConfigDynamic received observer instance, please pass observer class instead. Use MyObserver.with_args(x=1) to override arguments to constructor if needed"
            )
        return super().__new__(cls, activation, weight)


QConfigAny = QConfig | None
ObserverOrFakeQuantize = ObserverBase | FakeQuantizeBase

# ***** usual ones *****

_EPS = 2**-12
_qint8 = {"dtype": torch.qint8, "eps": _EPS}
default_qconfig = QConfig(watch.default_observer, watch.default_weight_observer)
default_debug_qconfig = QConfig(watch.default_debug_observer, watch.default_weight_observer)
default_per_channel_qconfig = QConfig(watch.default_observer, watch.default_per_channel_weight_observer)
default_dynamic_qconfig = QConfig(watch.default_dynamic_quant_observer, watch.default_weight_observer)
per_channel_dynamic_qconfig = QConfig(watch.default_dynamic_quant_observer, watch.default_per_channel_weight_observer)
float16_dynamic_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=torch.float16, is_dynamic=True),
    PlaceholderObserver.with_args(dtype=torch.float16),
)
float16_static_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=torch.float16), PlaceholderObserver.with_args(dtype=torch.float16)
)
float_qparams_weight_only_qconfig = QConfig(watch.default_placeholder_observer, watch.default_float_qparams_observer)
float_qparams_weight_only_qconfig_4bit = QConfig(
    watch.default_placeholder_observer, watch.default_float_qparams_observer_4bit
)
default_qat_qconfig = QConfig(fake.default_fake_quant, fake.default_weight_fake_quant)
default_qat_qconfig_v2 = QConfig(fake.default_fused_act_fake_quant, fake.default_fused_wt_fake_quant)
default_dynamic_qat_qconfig = QConfig(fake.default_dynamic_fake_quant, fake.default_weight_fake_quant)
default_weight_only_qconfig = QConfig(nn.Identity, fake.default_weight_fake_quant)
default_activation_only_qconfig = QConfig(fake.default_fake_quant, nn.Identity)
default_reuse_input_qconfig = QConfig(watch.default_reuse_input_observer, NoopObserver)
default_embedding_qat_qconfig = QConfig(NoopObserver.with_args(dtype=torch.float32), fake.default_embedding_fake_quant)
default_embedding_qat_qconfig_4bit = QConfig(
    NoopObserver.with_args(dtype=torch.float32), fake.default_embedding_fake_quant_4bit
)
default_quint8_weight_qconfig = QConfig(HistogramObserver, MinMaxObserver)
default_symmetric_qnnpack_qconfig = QConfig(
    HistogramObserver.with_args(**_qint8, reduce_range=False), watch.weight_observer_range_neg_127_to_127
)
default_per_channel_symmetric_qnnpack_qconfig = QConfig(
    HistogramObserver.with_args(**_qint8, reduce_range=False), watch.per_channel_weight_observer_range_neg_127_to_127
)
_symmetric_act = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8, reduce_range=False, eps=_EPS
)
default_symmetric_qnnpack_qat_qconfig = QConfig(_symmetric_act, fake.fused_wt_fake_quant_range_neg_127_to_127)
default_per_channel_symmetric_qnnpack_qat_qconfig = QConfig(
    _symmetric_act, fake.fused_per_channel_wt_fake_quant_range_neg_127_to_127
)
_BACKENDS = ("fbgemm", "x86", "qnnpack", "onednn")


def _known(backend: str) -> None:
    if backend not in _BACKENDS:
        raise AssertionError(f"backend: {backend} not supported. backend must be one of {list(_BACKENDS)}")


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """The usual `QConfig` for calibration: a histogram for results, for weights a scale for each channel (`qnnpack`: one)."""
    _known(backend)
    if version != 0:
        raise AssertionError(
            f"Version number: {version} in get_default_qconfig is not supported. Version number must be 0"
        )
    weight = watch.default_weight_observer if backend == "qnnpack" else watch.default_per_channel_weight_observer
    return QConfig(HistogramObserver.with_args(reduce_range=backend in ("fbgemm", "x86")), weight)


def get_default_qat_qconfig(backend: str = "x86", version: int = 1) -> QConfig:
    """The usual `QConfig` for training: a moving average for results, for weights a scale for each channel (`qnnpack`: one)."""
    _known(backend)
    if version not in (0, 1):
        raise AssertionError(
            f"Version number: {version} in get_default_qat_qconfig is not supported. Version number must be 0 or 1"
        )
    settings: dict[str, Any] = {"observer": MovingAverageMinMaxObserver, "quant_min": 0, "quant_max": 255}
    if backend != "onednn":
        settings["reduce_range"] = backend != "qnnpack"
    kind = FusedMovingAvgObsFakeQuantize if version == 1 else FakeQuantize
    if backend == "qnnpack":
        weight = fake.default_fused_wt_fake_quant if version == 1 else fake.default_weight_fake_quant
    else:
        weight = (
            fake.default_fused_per_channel_wt_fake_quant if version == 1 else fake.default_per_channel_weight_fake_quant
        )
    return QConfig(kind.with_args(**settings), weight)


def get_default_qconfig_dict(backend: str = "x86", version: int = 0) -> dict[str, Any]:
    """`get_default_qconfig_mapping` as a dict; the mapping is its newer form."""
    warnings.warn("torch.ao.quantization.get_default_qconfig_dict is deprecated and will be removed in a future version. Please use torch.ao.quantization.get_default_qconfig_mapping instead.", FutureWarning, stacklevel=2)  # fmt: skip
    return torch.ao.quantization.get_default_qconfig_mapping(backend, version).to_dict()


def get_default_qat_qconfig_dict(backend: str = "x86", version: int = 1) -> dict[str, Any]:
    """`get_default_qat_qconfig_mapping` as a dict; the mapping is its newer form."""
    warnings.warn("torch.ao.quantization.get_default_qat_qconfig_dict is deprecated and will be removed in a future version. Please use torch.ao.quantization.get_default_qat_qconfig_mapping instead.", FutureWarning, stacklevel=2)  # fmt: skip
    return torch.ao.quantization.get_default_qat_qconfig_mapping(backend, version).to_dict()


def _partial_wrapper_equals(obs_or_fq1: Any, obs_or_fq2: Any) -> bool:
    first, second = (copy.copy(o.p.keywords) for o in (obs_or_fq1, obs_or_fq2))
    same = True
    if "observer" in first and "observer" in second:
        same = _obs_or_fq_ctr_equals(first.pop("observer"), second.pop("observer"))
    return (
        same and obs_or_fq1.p.func == obs_or_fq2.p.func and obs_or_fq1.p.args == obs_or_fq2.p.args and first == second
    )


def _obs_or_fq_ctr_equals(obs_or_fq1: Any, obs_or_fq2: Any) -> bool:
    if isinstance(obs_or_fq1, _PartialWrapper) and isinstance(obs_or_fq2, _PartialWrapper):
        return _partial_wrapper_equals(obs_or_fq1, obs_or_fq2)
    return bool(obs_or_fq1 == obs_or_fq2)


def qconfig_equals(q1: Any, q2: Any) -> bool:
    """Whether two qconfigs make observers of the same kind with the same arguments."""
    if q1 is None or q2 is None:
        return q1 is q2
    try:
        return _obs_or_fq_ctr_equals(q1.activation, q2.activation) and _obs_or_fq_ctr_equals(q1.weight, q2.weight)
    except AttributeError:
        return bool(q1 == q2)


def _add_module_to_qconfig_obs_ctr(qconfig: Any, module: Any) -> Any:
    return qconfig


def _activation_is_memoryless(qconfig: Any) -> bool:
    """Whether the results' observer looks at the last batch alone."""

    def memoryless(observer: Any) -> bool:
        return hasattr(observer, "averaging_constant") and observer.averaging_constant == 1

    act = qconfig.activation()
    if isinstance(act, FakeQuantizeBase) and hasattr(act, "activation_post_process"):
        return memoryless(act.activation_post_process)
    return memoryless(act)


def _is_reuse_input_qconfig(qconfig: Any) -> bool:
    return (
        qconfig is not None
        and isinstance(qconfig.activation(), ReuseInputObserver)
        and isinstance(qconfig.weight(), NoopObserver)
    )
