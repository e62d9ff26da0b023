"""`torch.ao.quantization.utils`: questions about qconfigs and observers, and scales from ranges."""

from __future__ import annotations

import functools
from typing import Any

import rushlight as torch
from rushlight.ao.quantization.observer import PlaceholderObserver, _check_range, _is_valid, affine_qparams, name_of

__all__ = [
    "activation_dtype", "activation_is_dynamically_quantized", "activation_is_int32_quantized", "activation_is_int8_quantized",
    "activation_is_statically_quantized", "check_min_max_valid", "determine_qparams", "get_combined_dict", "get_qconfig_dtypes",
    "get_qparam_dict", "getattr_from_fqn", "has_no_children_ignoring_parametrizations", "is_per_channel", "is_per_tensor",
    "op_is_int8_dynamically_quantized", "to_underlying_dtype", "validate_qmin_qmax", "weight_dtype", "weight_is_quantized",
    "weight_is_statically_quantized",
]  # fmt: skip

_STORED = {
    "quint8": "uint8", "qint8": "int8", "qint32": "int32", "quint4x2": "uint8", "quint2x4": "uint8", "uint8": "uint8", "int8": "int8",
    "uint16": "uint16", "int16": "int16", "int32": "int32", "float8_e5m2": "float8_e5m2", "float8_e4m3fn": "float8_e4m3fn",
}  # fmt: skip
_STATIC_ACTIVATIONS = (
    "quint8",
    "qint8",
    "qint32",
    "float16",
    "uint8",
    "int8",
    "int16",
    "int32",
    "float8_e5m2",
    "float8_e4m3fn",
)
_DYNAMIC_ACTIVATIONS = ("quint8", "qint8", "qint32", "float16", "uint8", "int8", "int32")
_STATIC_WEIGHTS = ("quint8", "qint8", "uint8", "int8")
_WEIGHTS = (*_STATIC_WEIGHTS, "quint4x2", "float16", "int16", "int32", "float8_e5m2", "float8_e4m3fn")


# ***** schemes and dtypes *****


def is_per_tensor(qscheme: Any) -> bool:
    """Whether a scheme has one scale for a whole tensor."""
    return qscheme in (torch.per_tensor_affine, torch.per_tensor_symmetric)


def is_per_channel(qscheme: Any) -> bool:
    """Whether a scheme has a scale for each channel."""
    return qscheme in (torch.per_channel_affine, torch.per_channel_affine_float_qparams, torch.per_channel_symmetric)


def to_underlying_dtype(qdtype: Any) -> Any:
    """The dtype of the integers that a quantized dtype stands for; AssertionError for one that is not stored so.

    >>> import rushlight as torch
    >>> to_underlying_dtype(torch.quint8)
    torch.uint8
    """
    stored = _STORED.get(name_of(qdtype))
    if stored is None:
        raise AssertionError(f"Unsupported dtype: {qdtype}")
    return getattr(torch, stored)


def get_qparam_dict(observer_or_fake_quant: Any) -> dict[str, Any]:
    """Scheme, dtype, scale, zero point, axis and bounds that an observer has found."""
    scheme, dtype = getattr(observer_or_fake_quant, "qscheme", None), observer_or_fake_quant.dtype
    if not scheme or isinstance(observer_or_fake_quant, PlaceholderObserver):
        return {"qscheme": None, "dtype": dtype}
    found: dict[str, Any] = {"qscheme": scheme, "dtype": dtype}
    if is_per_tensor(scheme):
        found["qscheme"] = torch.per_tensor_affine
    elif is_per_channel(scheme):
        if scheme == torch.per_channel_symmetric:
            found["qscheme"] = torch.per_channel_affine
        found["axis"] = observer_or_fake_quant.ch_axis
    else:
        raise RuntimeError(f"Unrecognized qscheme: {scheme}")
    found["scale"], found["zero_point"] = observer_or_fake_quant.calculate_qparams()
    for name in ("quant_min", "quant_max"):
        if hasattr(observer_or_fake_quant, name):
            found[name] = getattr(observer_or_fake_quant, name)
    return found


# ***** what a qconfig asks for *****


def activation_dtype(qconfig: Any) -> Any:
    """The dtype of the values on their way."""
    return qconfig.activation().dtype


def weight_dtype(qconfig: Any) -> Any:
    """The dtype of the weights."""
    return qconfig.weight().dtype


def _is_dynamic(qconfig: Any) -> bool:
    return bool(getattr(qconfig.activation(), "is_dynamic", False))


def activation_is_statically_quantized(qconfig: Any) -> bool:
    """Whether values get their scale before the model runs."""
    return name_of(activation_dtype(qconfig)) in _STATIC_ACTIVATIONS and not _is_dynamic(qconfig)


def activation_is_dynamically_quantized(qconfig: Any) -> bool:
    """Whether values get their scale when the model runs."""
    return name_of(activation_dtype(qconfig)) in _DYNAMIC_ACTIVATIONS and _is_dynamic(qconfig)


def activation_is_int8_quantized(qconfig: Any) -> bool:
    """Whether values become integers of 8 bits."""
    return name_of(activation_dtype(qconfig)) in ("quint8", "qint8", "uint8", "int8")


def activation_is_int32_quantized(qconfig: Any) -> bool:
    """Whether values become integers of 32 bits."""
    return name_of(activation_dtype(qconfig)) in ("qint32", "int32")


def weight_is_quantized(qconfig: Any) -> bool:
    """Whether weights become numbers of fewer bits."""
    return name_of(weight_dtype(qconfig)) in _WEIGHTS


def weight_is_statically_quantized(qconfig: Any) -> bool:
    """Whether weights become integers of 8 bits."""
    return name_of(weight_dtype(qconfig)) in _STATIC_WEIGHTS


def op_is_int8_dynamically_quantized(qconfig: Any) -> bool:
    """Whether both are integers of 8 bits, and values get their scale when the model runs."""
    values, weights = name_of(activation_dtype(qconfig)), name_of(weight_dtype(qconfig))
    return values in ("quint8", "uint8") and weights in ("qint8", "int8") and _is_dynamic(qconfig)


def get_qconfig_dtypes(qconfig: Any) -> tuple[Any, Any, bool]:
    """The dtypes of values and weights, and whether values get their scale when the model runs."""
    return activation_dtype(qconfig), weight_dtype(qconfig), _is_dynamic(qconfig)


# ***** ranges *****


def check_min_max_valid(min_val: Any, max_val: Any) -> bool:
    """Whether a range was seen; AssertionError where its ends are in the wrong order."""
    return _is_valid(min_val, max_val)


def validate_qmin_qmax(quant_min: int, quant_max: int) -> None:
    """AssertionError unless `quant_min <= 0 <= quant_max` and they differ."""
    _check_range(quant_min, quant_max)


def determine_qparams(
    min_val: Any, max_val: Any, quant_min: int, quant_max: int, dtype: Any, eps: Any, has_customized_qrange: bool,
    qscheme: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Scale (float64) and zero point (int64) for values between two tensors of one shape, widened to hold 0.

    >>> import rushlight as torch
    >>> low, high = torch.tensor(0.0), torch.tensor(1.0)
    >>> determine_qparams(low, high, -128, 127, torch.int8, torch.tensor([1e-6]), False)[1]
    tensor([-128])
    """
    scheme = torch.per_tensor_affine if qscheme is None else qscheme
    scale, zero = affine_qparams((min_val, max_val), (quant_min, quant_max), dtype, scheme, eps, has_customized_qrange)
    return scale.to(torch.double), zero.to(torch.int64)


# ***** names and modules *****


def getattr_from_fqn(obj: Any, fqn: str) -> Any:
    """The attribute at the end of a dotted path."""
    return functools.reduce(getattr, fqn.split("."), obj)


def _parent_name(target: str) -> tuple[str, str]:
    """A dotted path without its last name, and that name."""
    parent, _, name = target.rpartition(".")
    return parent, name


def get_combined_dict(default_dict: dict[Any, Any], additional_dict: dict[Any, Any]) -> dict[Any, Any]:
    """Both dicts as one; the second one's entries come before those of the first."""
    return {**default_dict, **additional_dict}


def has_no_children_ignoring_parametrizations(module: Any) -> bool:
    """Whether a module has no submodules but its parametrizations."""
    children = module._modules
    return not children or set(children) == {"parametrizations"}
