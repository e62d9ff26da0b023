"""`torch.ao.quantization.quantize_fx`: graph mode: a model is traced, and observed and converted as a graph.

>>> import rushlight as torch
>>> from rushlight.ao.quantization.quantize_fx import convert_fx, prepare_fx
>>> net, x = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval(), torch.randn(8, 4)
>>> watched = prepare_fx(net, torch.ao.quantization.get_default_qconfig_mapping("onednn"), (x,))
>>> _ = watched(x)
>>> type(convert_fx(watched).get_submodule("0")).__name__
'LinearReLU'
"""

from __future__ import annotations

import copy
from typing import Any

from rushlight.ao.quantization import fx
from rushlight.ao.quantization.backend_config import BackendConfig, get_native_backend_config
from rushlight.ao.quantization.fx.custom_config import ConvertCustomConfig, FuseCustomConfig, PrepareCustomConfig
from rushlight.ao.quantization.fx.tracer import traced
from rushlight.ao.quantization.qconfig_mapping import QConfigMapping
from rushlight.fx import GraphModule

__all__ = [
    "attach_preserved_attrs_to_model",
    "convert_fx",
    "convert_to_reference_fx",
    "fuse_fx",
    "prepare_fx",
    "prepare_qat_fx",
]


def attach_preserved_attrs_to_model(model: Any, preserved_attrs: dict[str, Any]) -> None:
    """Give a graph module attributes that its graph does not use."""
    model.meta = {**getattr(model, "meta", {}), "preserved_attributes": copy.copy(preserved_attrs)}
    for name, value in preserved_attrs.items():
        setattr(model, name, value)


def _config(value: Any, kind: Any) -> Any:
    if value is None:
        return kind()
    return kind.from_dict(value) if isinstance(value, dict) else value


def _backend(value: Any) -> BackendConfig:
    if value is None:
        return get_native_backend_config()
    return BackendConfig.from_dict(value) if isinstance(value, dict) else value


def _kept(model: Any, names: list[str]) -> dict[str, Any]:
    return {name: getattr(model, name) for name in names if hasattr(model, name)}


def _not_scripted(model: Any) -> None:
    if not isinstance(model, GraphModule) and not hasattr(model, "forward"):
        raise ValueError("input model must be a module")


def fuse_fx(model: Any, fuse_custom_config: Any = None, backend_config: Any = None) -> Any:
    """A graph module of a model (in evaluation) with layers called one after another fused into one."""
    _not_scripted(model)
    custom = _config(fuse_custom_config, FuseCustomConfig)
    kept = _kept(model, custom.preserved_attributes)
    made, _ = traced(copy.deepcopy(model), [], [])
    made = fx.fuse(made, False, _backend(backend_config))
    attach_preserved_attrs_to_model(made, kept)
    return made


def _prepare(
    model: Any, qconfig_mapping: Any, prepare_custom_config: Any, equalization: Any, backend_config: Any, is_qat: bool
) -> Any:
    _not_scripted(model)
    if equalization is not None:
        raise NotImplementedError("prepare_fx(_equalization_config=...) is not here: channels are not equalized")
    custom = _config(prepare_custom_config, PrepareCustomConfig)
    mapping = _config(qconfig_mapping, QConfigMapping)
    backend, kept = _backend(backend_config), _kept(model, custom.preserved_attributes)
    skipped = [*custom.non_traceable_module_classes, *custom.float_to_observed_mapping]
    made, scopes = traced(copy.deepcopy(model), custom.non_traceable_module_names, skipped)
    made = fx.fuse(made, is_qat, backend)
    made = fx.prepare(made, mapping, scopes, backend, custom, is_qat)
    attach_preserved_attrs_to_model(made, kept)
    return made


def prepare_fx(
    model: Any, qconfig_mapping: Any, example_inputs: Any, prepare_custom_config: Any = None, _equalization_config: Any = None,
    backend_config: Any = None,
) -> Any:  # fmt: skip
    """A graph module of a model (in evaluation) with observers; run it on examples."""
    return _prepare(model, qconfig_mapping, prepare_custom_config, _equalization_config, backend_config, False)


def prepare_qat_fx(
    model: Any, qconfig_mapping: Any, example_inputs: Any, prepare_custom_config: Any = None, backend_config: Any = None
) -> Any:
    """A graph module of a model (in training) with rounded weights and results; train it."""
    return _prepare(model, qconfig_mapping, prepare_custom_config, None, backend_config, True)


def _prepared(graph_module: Any, convert_custom_config: Any) -> list[str]:
    if not isinstance(graph_module, GraphModule) or not hasattr(graph_module, "_scopes"):
        raise AssertionError("convert_fx takes what prepare_fx or prepare_qat_fx returned")
    custom = _config(convert_custom_config, ConvertCustomConfig)
    if custom.observed_to_quantized_mapping:
        raise NotImplementedError(
            "convert_fx: ConvertCustomConfig.observed_to_quantized_mapping is not taken in graph mode"
        )
    return [*custom.preserved_attributes]


def convert_fx(
    graph_module: Any, convert_custom_config: Any = None, _remove_qconfig: bool = True, qconfig_mapping: Any = None,
    backend_config: Any = None, keep_original_weights: bool = False,
) -> Any:  # fmt: skip
    """The quantized model of one that `prepare_fx` (or `prepare_qat_fx`) made, calibrated or trained."""
    kept = _kept(graph_module, _prepared(graph_module, convert_custom_config))
    made = fx.convert(graph_module)
    attach_preserved_attrs_to_model(made, kept)
    return made


def convert_to_reference_fx(
    graph_module: Any, convert_custom_config: Any = None, _remove_qconfig: bool = True, qconfig_mapping: Any = None,
    backend_config: Any = None,
) -> Any:  # fmt: skip
    """The reference model of one that `prepare_fx` made: floats, rounded where integers would be, for other backends."""
    kept = _kept(graph_module, _prepared(graph_module, convert_custom_config))
    made = fx.convert_to_reference(graph_module)
    attach_preserved_attrs_to_model(made, kept)
    return made
