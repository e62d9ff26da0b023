"""Eager mode: a model is prepared (observed), calibrated or trained, and converted, module by module."""

from __future__ import annotations

import copy
import inspect
import warnings
from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.ao.nn import intrinsic as nni
from rushlight.ao.nn import quantizable
from rushlight.ao.nn import quantized as nnq
from rushlight.ao.nn.intrinsic.qat.modules import _Normalised
from rushlight.ao.quantization import quantization_mappings as tables
from rushlight.ao.quantization.fake_quantize import _is_activation_post_process
from rushlight.ao.quantization.qconfig import (
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    float_qparams_weight_only_qconfig_4bit,
)
from rushlight.ao.quantization.stubs import DeQuantStub, QuantWrapper

__all__ = [
    "add_quant_dequant", "convert", "default_eval_fn", "get_default_custom_config_dict", "prepare", "prepare_qat", "propagate_qconfig_",
    "quantize", "quantize_dynamic", "quantize_qat", "swap_module",
]  # fmt: skip

_DEFAULT_CUSTOM_CONFIG_DICT: dict[str, dict[Any, Any]] = {
    "float_to_observed_custom_module_class": {
        nn.LSTM: quantizable.LSTM,
        nn.MultiheadAttention: quantizable.MultiheadAttention,
    },
    "observed_to_quantized_custom_module_class": {
        quantizable.LSTM: nnq.LSTM,
        quantizable.MultiheadAttention: nnq.MultiheadAttention,
    },
}


def get_default_custom_config_dict() -> dict[str, dict[Any, Any]]:
    """Modules that are replaced before they are observed: LSTM and attention, by ones that can be."""
    return _DEFAULT_CUSTOM_CONFIG_DICT


# ***** qconfigs *****


def _propagate(module: Any, table: dict[Any, Any], parent: Any, prefix: str, custom: dict[str, Any]) -> None:
    qconfig = table.get(type(module), parent)
    qconfig = table.get(prefix, qconfig)
    qconfig = getattr(module, "qconfig", qconfig)
    module.qconfig = qconfig
    for name, child in module.named_children():
        if name in custom.get("non_traceable_module_name", ()) or type(child) in custom.get(
            "non_traceable_module_class", ()
        ):
            continue
        if not (qconfig is None and type(child).__module__.partition(".")[2] == "ao.nn.quantized"):
            _propagate(child, table, qconfig, f"{prefix}.{name}" if prefix else name, custom)


def propagate_qconfig_(module: Any, qconfig_dict: Any = None, prepare_custom_config_dict: Any = None) -> None:
    """Give every module a `qconfig`: its own, that of its name or its class in `qconfig_dict`, or its parent's."""
    table = dict(qconfig_dict or {})
    if isinstance(table.get("object_type"), list):
        raise NotImplementedError("propagate_qconfig_ takes a dict by name and class; mappings are for graph mode")
    _propagate(module, table, table.get(""), "", prepare_custom_config_dict or {})


# ***** observers *****


def _observer_forward_hook(self: Any, input: Any, output: Any) -> Any:
    return self.activation_post_process(output)


def _observer_forward_pre_hook(self: Any, input: Any) -> Any:
    return self.activation_post_process(input[0])


def _register_activation_post_process_hook(module: Any, pre_hook: bool = False) -> None:
    if not hasattr(module, "activation_post_process"):
        raise AssertionError("Expect activation_post_process attribute already attached to the module")
    if pre_hook:
        module.register_forward_pre_hook(_observer_forward_pre_hook, prepend=True)
    else:
        module.register_forward_hook(_observer_forward_hook, prepend=True)


def _insert(module: Any, qconfig: Any, special: Any = None) -> None:
    """An observer of what a module returns."""
    if qconfig is not None and not isinstance(module, DeQuantStub):
        module.add_module("activation_post_process", (special or qconfig.activation)())
        _register_activation_post_process_hook(module)


def _add_observer_(module: Any, listed: set[Any], non_leaf: Any, custom: dict[Any, Any]) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Dropout):
            continue
        qconfig = getattr(child, "qconfig", None)
        if isinstance(child, (nnq.FloatFunctional, nnq.QFunctional)):
            if qconfig is not None:
                child.activation_post_process = qconfig.activation()
        elif isinstance(child, (nni._FusedModule, _Normalised)):
            _insert(child, qconfig)
        elif non_leaf is not None and type(child) in non_leaf:
            _insert(child, qconfig)
            _add_observer_(child, listed, non_leaf, custom)
        elif tables._has_special_act_post_process(child):
            _insert(child, qconfig, tables._get_special_act_post_process(child))
        elif qconfig is not None and type(child) in custom:
            observed = custom[type(child)].from_float(child)
            setattr(module, name, observed)
        elif qconfig is not None and not list(child.children()) and (type(child) in listed):
            _insert(child, qconfig)
        else:
            _add_observer_(child, listed, non_leaf, custom)
    leaf = not list(module.children()) and not isinstance(module, nn.Sequential)
    if leaf and type(module) in listed and getattr(module, "qconfig", None) is not None:
        _insert(module, module.qconfig)


def prepare(
    model: Any, inplace: bool = False, allow_list: Any = None, observer_non_leaf_module_list: Any = None,
    prepare_custom_config_dict: Any = None,
) -> Any:  # fmt: skip
    """A model whose modules are observed, where they have a `qconfig` (their own, or their parent's); run it on examples.

    >>> import rushlight as torch
    >>> net = torch.ao.quantization.QuantWrapper(torch.nn.Linear(4, 2)).eval()
    >>> net.qconfig = torch.ao.quantization.get_default_qconfig("onednn")
    >>> watched = torch.ao.quantization.prepare(net)
    >>> _ = watched(torch.randn(8, 4))
    >>> type(torch.ao.quantization.convert(watched).module).__name__
    'Linear'
    """
    custom = (prepare_custom_config_dict or get_default_custom_config_dict()).get(
        "float_to_observed_custom_module_class", {}
    )
    model = model if inplace else copy.deepcopy(model)
    listed = set(allow_list) if allow_list is not None else tables.get_default_qconfig_propagation_list()
    propagate_qconfig_(model, qconfig_dict=None)
    if not any(getattr(m, "qconfig", None) for m in model.modules()):
        warnings.warn(
            "None of the submodule got qconfig applied. Make sure you passed correct configuration through `qconfig_dict` or by assigning the `.qconfig` "
            "attribute directly on submodules", stacklevel=2,
        )  # fmt: skip
    _add_observer_(model, listed, observer_non_leaf_module_list, custom)
    return model


def add_quant_dequant(module: Any) -> Any:
    """The model with each leaf that has a `qconfig` between a `QuantStub` and a `DeQuantStub`."""
    if not list(module.children()) and getattr(module, "qconfig", None):
        return QuantWrapper(module)
    for name, child in module.named_children():
        module._modules[name] = add_quant_dequant(child)
    return module


# ***** converting *****


def _remove_observers(module: Any) -> None:
    for child in module.children():
        _remove_observers(child)
    for name in ("activation_post_process",):
        if hasattr(module, name) and _is_activation_post_process(getattr(module, name)):
            delattr(module, name)
    for table, hook in (
        (module._forward_hooks, _observer_forward_hook),
        (module._forward_pre_hooks, _observer_forward_pre_hook),
    ):
        for key in [k for k, v in table.items() if v is hook]:
            table.pop(key)


def _remove_qconfig(module: Any) -> None:
    for child in module.children():
        _remove_qconfig(child)
    if hasattr(module, "qconfig"):
        del module.qconfig
    _remove_observers(module)


def convert(
    module: Any, mapping: Any = None, inplace: bool = False, remove_qconfig: bool = True, is_reference: bool = False,
    convert_custom_config_dict: Any = None, use_precomputed_fake_quant: bool = False,
) -> Any:  # fmt: skip
    """The quantized model of an observed (or trained) one: each module becomes that of the mapping."""
    module = module if inplace else copy.deepcopy(module)
    if mapping is None:
        mapping = (
            tables.get_default_static_quant_reference_module_mappings()
            if is_reference
            else tables.get_default_static_quant_module_mappings()
        )
    custom = (convert_custom_config_dict or get_default_custom_config_dict()).get(
        "observed_to_quantized_custom_module_class", {}
    )
    if type(module) in mapping and not list(module.children()):
        module = swap_module(module, mapping, custom, use_precomputed_fake_quant)
    else:
        _convert(module, mapping, custom, use_precomputed_fake_quant)
    if remove_qconfig:
        _remove_qconfig(module)
    return module


def _convert(module: Any, mapping: Any, custom: Any, precomputed: bool) -> None:
    swapped = {}
    for name, child in module.named_children():
        if not isinstance(child, (nni._FusedModule, _Normalised)) and type(child) not in custom:
            _convert(child, mapping, custom, precomputed)
        swapped[name] = swap_module(child, mapping, custom, precomputed)
    for name, child in swapped.items():
        module._modules[name] = child


def swap_module(
    mod: Any, mapping: Any, custom_module_class_mapping: Any, use_precomputed_fake_quant: bool = False
) -> Any:
    """The quantized module of an observed one, with its outer hooks; the module itself where there is none."""
    if getattr(mod, "qconfig", None) is None:
        return mod
    kind = type(mod)
    if kind in custom_module_class_mapping:
        made = custom_module_class_mapping[kind].from_observed(mod)
    elif kind in mapping:
        target = mapping[kind]
        if getattr(target, "__module__", "").endswith("quantized.reference"):
            watch = mod.qconfig.weight()
            layer = mod[0] if isinstance(mod, nn.Sequential) else mod
            watch(layer.weight)
            scale, zero = watch.calculate_qparams()
            qparams = {
                "qscheme": watch.qscheme,
                "dtype": watch.dtype,
                "scale": scale,
                "zero_point": zero,
                "axis": getattr(watch, "ch_axis", 0),
            }
            made = target.from_float(layer, qparams)
        elif "use_precomputed_fake_quant" in inspect.signature(target.from_float).parameters:
            made = target.from_float(mod, use_precomputed_fake_quant=use_precomputed_fake_quant)
        else:
            made = target.from_float(mod)
    else:
        return mod
    for hook in mod._forward_pre_hooks.values():
        made.register_forward_pre_hook(hook)
    for hook in mod._forward_hooks.values():
        if hook is not _observer_forward_hook:
            made.register_forward_hook(hook)
    return made


# ***** whole ways *****


def default_eval_fn(model: Any, calib_data: Any) -> None:
    """Run a model on pairs of inputs and targets."""
    for data, _ in calib_data:
        model(data)


def quantize(model: Any, run_fn: Any, run_args: Any, mapping: Any = None, inplace: bool = False) -> Any:
    """Prepare a model, calibrate it by `run_fn(model, *run_args)`, and convert it."""
    mapping = tables.get_default_static_quant_module_mappings() if mapping is None else mapping
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    prepare(model, inplace=True)
    run_fn(model, *run_args)
    convert(model, mapping, inplace=True)
    return model


def _dynamic_table(qconfig_spec: Any, dtype: Any) -> dict[Any, Any]:
    linear = (nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.RNNCell, nn.GRUCell)
    if qconfig_spec is None:
        if dtype is torch.qint8:
            return dict.fromkeys(linear, default_dynamic_qconfig)
        if dtype is torch.float16:
            return dict.fromkeys(linear, float16_dynamic_qconfig)
        if dtype is torch.quint8:
            return {nn.EmbeddingBag: float_qparams_weight_only_qconfig, nn.Embedding: float_qparams_weight_only_qconfig}
        if dtype is torch.quint4x2:
            return {nn.EmbeddingBag: float_qparams_weight_only_qconfig_4bit}
        raise ValueError(f"Don't know how to quantize with default settings for {dtype}. Provide full qconfig please")
    if isinstance(qconfig_spec, set):
        usual = {
            torch.qint8: default_dynamic_qconfig, torch.float16: float16_dynamic_qconfig, torch.quint8: float_qparams_weight_only_qconfig,
            torch.quint4x2: float_qparams_weight_only_qconfig_4bit,
        }.get(dtype)  # fmt: skip
        if usual is None:
            raise RuntimeError(f"Unknown dtype specified for quantize_dynamic: {dtype!s}")
        return dict.fromkeys(qconfig_spec, usual)
    return dict(qconfig_spec)


def quantize_dynamic(
    model: Any, qconfig_spec: Any = None, dtype: Any = torch.qint8, mapping: Any = None, inplace: bool = False
) -> Any:
    """The model with weights of integers, whose inputs are quantized on the way: linear and recurrent layers by default.

    >>> import rushlight as torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 2))
    >>> torch.ao.quantization.quantize_dynamic(net, {torch.nn.Linear}, dtype=torch.qint8)
    Sequential(
      (0): DynamicQuantizedLinear(in_features=4, out_features=2, dtype=torch.qint8, qscheme=torch.per_tensor_affine)
    )
    """
    table = _dynamic_table(qconfig_spec, dtype)
    mapping = tables.get_default_dynamic_quant_module_mappings() if mapping is None else mapping
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    propagate_qconfig_(model, table)
    return convert(model, mapping, inplace=True, convert_custom_config_dict={"": {}})


def prepare_qat(model: Any, mapping: Any = None, inplace: bool = False) -> Any:
    """A model to train: modules become ones with a rounded weight, and their results are rounded."""
    if not model.training:
        raise AssertionError("prepare_qat only works on models in training mode")
    mapping = tables.get_default_qat_module_mappings() if mapping is None else mapping
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model, qconfig_dict=None)
    convert(model, mapping=mapping, inplace=True, remove_qconfig=False, convert_custom_config_dict={"": {}})
    trained = set(mapping.values())
    prepare(model, observer_non_leaf_module_list=trained, inplace=True)
    return model


def quantize_qat(model: Any, run_fn: Any, run_args: Any, inplace: bool = False) -> Any:
    """Prepare a model for training, train it by `run_fn(model, *run_args)`, and convert it."""
    model = model if inplace else copy.deepcopy(model)
    model.train()
    prepare_qat(model, inplace=True)
    run_fn(model, *run_args)
    convert(model, inplace=True)
    return model
