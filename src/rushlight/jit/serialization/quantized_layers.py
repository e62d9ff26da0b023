"""Quantized layers as compiled modules: each is one operator over packed weights, written as an archive writes it.

The text of a class is TorchScript; a layer gives the values of its attributes.  Layers that are not in the table stay
objects of Python, which scripts call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import rushlight
from rushlight.jit.frontend.errors import own_place
from rushlight.jit.ir import types as T
from rushlight.jit.modules import RecursiveScriptModule, wrap_module
from rushlight.jit.serialization.packed import packed_state
from rushlight.jit.serialization.unit import ArchiveUnit

__all__ = ["compiled_layer"]

_OUTPUT = {"scale": "float", "zero_point": "int"}


class _Form(NamedTuple):
    """A layer's class: where PyTorch has it, types of attributes, (arguments, body) of each method."""

    place: str
    attributes: dict[str, str]
    methods: dict[str, tuple[str, str]]
    values: Callable[[Any], dict[str, Any] | None] = lambda layer: {}


def _scaled(layer: Any) -> dict[str, Any]:
    return {"scale": float(layer.scale), "zero_point": int(layer.zero_point)}


def _linear(layer: Any) -> dict[str, Any]:
    return {**_scaled(layer), "_packed_params": layer._packed_params._packed_params}


def _half(layer: Any) -> bool:
    return type(layer._packed_params._packed_params).__name__ == "LinearHalfPackedParams"


def _dynamic(layer: Any) -> dict[str, Any] | None:
    if _half(layer) or layer.version is None or layer.version < 4:
        return None
    return {"_packed_params": layer._packed_params._packed_params}


def _half_dynamic(layer: Any) -> dict[str, Any] | None:
    return {"_packed_params": layer._packed_params._packed_params} if _half(layer) else None


def _dynamic_conv(layer: Any) -> dict[str, Any] | None:
    return {"_packed_params": layer._packed_params} if layer.padding_mode == "zeros" else None


def _conv(layer: Any) -> dict[str, Any] | None:
    if layer.padding_mode != "zeros":  # the layer pads first
        return None
    return {**_scaled(layer), "_packed_params": layer._packed_params}


def _normalized(layer: Any) -> dict[str, Any]:
    numbers = {name: getattr(layer, name) for name in ("weight", "bias", "eps", "num_groups") if hasattr(layer, name)}
    return {**_scaled(layer), **numbers, "normalized_shape": list(getattr(layer, "normalized_shape", ()))}


def _activation(layer: Any) -> dict[str, Any]:
    return {**_scaled(layer), **{name: getattr(layer, name) for name in layer._settings}}


def _embedding(layer: Any) -> dict[str, Any] | None:
    return {"_packed_params": layer._packed_params._packed_weight} if layer.dtype is rushlight.quint8 else None


def _stub(layer: Any) -> dict[str, Any] | None:
    number = {"torch.quint8": 13, "torch.qint8": 12, "torch.qint32": 14}.get(str(layer.dtype))
    return None if number is None else {**_scaled(layer), "dtype": number}


def _over(operator: str, more: str = "", last: str = "self.scale, self.zero_point") -> dict[str, tuple[str, str]]:
    """The method of a layer that is one operator of its input, packed weights and the scale of its result."""
    given = ", ".join(filter(None, ["input", more, "self._packed_params", last]))
    arguments = "input: Tensor" + (f", {more}: Tensor" if more else "")
    return {"forward": (arguments, f"ops.quantized.{operator}({given})")}


def _functional(layer: Any) -> dict[str, Any] | None:
    return _scaled(layer) if type(layer.activation_post_process).__name__ == "Identity" else None


_ARITHMETIC = {
    **{
        name: ("x: Tensor, y: Tensor", f"ops.quantized.{name}(x, y, self.scale, self.zero_point)")
        for name in ("add", "mul", "add_relu", "matmul")
    },
    **{name: ("x: Tensor, y: float", f"ops.quantized.{name}(x, y)") for name in ("add_scalar", "mul_scalar")},
    "cat": ("x: List[Tensor], dim: int=0", "ops.quantized.cat(x, dim, self.scale, self.zero_point)"),
}


@cache
def _forms() -> dict[str, _Form]:
    """The table: by the name of a class behind `rushlight.ao.nn`."""
    return {
        **_single_forms(),
        **_activation_forms(),
        **_normalization_forms(),
        **_dynamic_linear_forms(),
        **_convolution_forms(),
    }


_WEIGHTS = "__torch__.torch.classes.quantized.{}PackedParamsBase"
_FUSED = "intrinsic.quantized.modules"


def _single_forms() -> dict[str, _Form]:
    """Layers that have no kin."""
    linear = {**_OUTPUT, "_packed_params": _WEIGHTS.format("Linear")}
    rows = {"_packed_params": _WEIGHTS.format("Embedding")}
    return {
        "quantized.linear.Linear": _Form("quantized.modules.linear", linear, _over("linear"), _linear),
        "intrinsic.quantized.LinearReLU": _Form(f"{_FUSED}.linear_relu", linear, _over("linear_relu"), _linear),
        "intrinsic.quantized.LinearTanh": _Form(f"{_FUSED}.linear_relu", linear, _over("linear_tanh"), _linear),
        "quantized.stubs.Quantize": _Form(
            "quantized.modules", {**_OUTPUT, "dtype": "int"},
            {"forward": ("X: Tensor", "torch.quantize_per_tensor(X, self.scale, self.zero_point, self.dtype)")}, _stub,
        ),
        "quantized.stubs.DeQuantize": _Form("quantized.modules", {}, {"forward": ("Xq: Tensor", "torch.dequantize(Xq)")}),
        "quantized.stubs.Dropout": _Form("quantized.modules.dropout", {}, {"forward": ("input: Tensor", "input")}),
        "quantized.activation.ReLU6": _Form(
            "quantized.modules.activation", {"inplace": "bool"},
            {"forward": ("input: Tensor", "ops.quantized.relu6(input, self.inplace)")},
            lambda layer: {"inplace": bool(layer.inplace)},
        ),
        "quantized.activation.Hardswish": _Form(
            "quantized.modules.activation", _OUTPUT,
            {"forward": ("input: Tensor", "ops.quantized.hardswish(input, self.scale, self.zero_point)")}, _scaled,
        ),
        "quantized.functional_modules.QFunctional": _Form(
            "quantized.modules.functional_modules", _OUTPUT, _ARITHMETIC, _functional
        ),
        "quantized.embedding.Embedding": _Form(
            "quantized.modules.embedding_ops", rows,
            {"forward": ("indices: Tensor", "ops.quantized.embedding_byte(self._packed_params, indices, False)")}, _embedding,
        ),
    }  # fmt: skip


def _activation_forms() -> dict[str, _Form]:
    """Activations with a number of their own."""
    found = {}
    for name, operator, settings, given in (
        ("ELU", "elu", {"alpha": "float"}, "self.scale, self.zero_point, self.alpha"),
        ("LeakyReLU", "leaky_relu", {"negative_slope": "float", "inplace": "bool"},
         "self.negative_slope, self.inplace, self.scale, self.zero_point"),
    ):  # fmt: skip
        body = f"ops.quantized.{operator}(input, {given})"
        found[f"quantized.activation.{name}"] = _Form(
            "quantized.modules.activation", {**_OUTPUT, **settings}, {"forward": ("input: Tensor", body)}, _activation
        )
    return found


def _normalization_forms() -> dict[str, _Form]:
    """Norms."""
    found = {}
    affine = {**_OUTPUT, "weight": "Optional[Tensor]", "bias": "Optional[Tensor]", "eps": "float"}
    last = "self.weight, self.bias, self.eps, self.scale, self.zero_point"
    for name, operator, more, first in (
        ("LayerNorm", "layer_norm", {"normalized_shape": "List[int]"}, "self.normalized_shape, "),
        ("GroupNorm", "group_norm", {"num_groups": "int"}, "self.num_groups, "),
        *((f"InstanceNorm{n}d", "instance_norm", {}, "") for n in (1, 2, 3)),
    ):
        body = f"ops.quantized.{operator}(input, {first}{last})"
        found[f"quantized.normalization.{name}"] = _Form(
            "quantized.modules.normalization", {**affine, **more}, {"forward": ("input: Tensor", body)}, _normalized
        )
    return found


def _dynamic_linear_forms() -> dict[str, _Form]:
    """Linear layers that round their input."""
    found = {}
    packed = {"_packed_params": _WEIGHTS.format("Linear")}
    for name, operator in (
        ("quantized.dynamic.layers.Linear", ""),
        ("intrinsic.quantized.dynamic.LinearReLU", "_relu"),
    ):
        place = f"{name.rpartition('quantized')[0]}quantized.dynamic.modules.linear{operator}"
        found[name] = _Form(place, packed, _over(f"linear{operator}_dynamic", last="True"), _dynamic)
        half = _over(f"linear{operator}_dynamic_fp16", last="")
        found[f"{name}:half"] = _Form(place, packed, half, _half_dynamic)
    return found


def _convolution_forms() -> dict[str, _Form]:
    """Convolutions, static and dynamic, alone and with what follows them."""
    found = {}
    for n, kind in ((1, "Conv2d"), (2, "Conv2d"), (3, "Conv3d")):
        conv = {**_OUTPUT, "_packed_params": _WEIGHTS.format(kind)}
        for transposed in ("", "Transpose"):
            operator = f"conv{'_transpose' if transposed else ''}{n}d_dynamic"
            found[f"quantized.dynamic.layers.Conv{transposed}{n}d"] = _Form(
                "quantized.dynamic.modules.conv", {"_packed_params": _WEIGHTS.format(kind)},
                _over(operator, last="True"), _dynamic_conv,
            )  # fmt: skip
        for name, place, operator in (
            (f"quantized.conv.Conv{n}d", "quantized.modules.conv", f"conv{n}d"),
            (f"quantized.conv.ConvTranspose{n}d", "quantized.modules.conv", f"conv_transpose{n}d"),
            (f"intrinsic.quantized.ConvReLU{n}d", f"{_FUSED}.conv_relu", f"conv{n}d_relu"),
        ):
            found[name] = _Form(place, conv, _over(operator), _conv)
    conv = {**_OUTPUT, "_packed_params": _WEIGHTS.format("Conv2d")}
    for name, operator in (("ConvAdd2d", "conv2d_add"), ("ConvAddReLU2d", "conv2d_add_relu")):
        found[f"intrinsic.quantized.{name}"] = _Form(f"{_FUSED}.conv_add", conv, _over(operator, "extra"), _conv)
    return found


@cache
def _kind(name: str) -> Any:
    """The class of a layer in the table."""
    form, short = _forms()[name], name.rpartition(".")[2].partition(":")[0]
    whole = f"__torch__.torch.ao.nn.{form.place}.{short}"
    lines = [f"class {short}(Module):", "  __parameters__ = []", "  __buffers__ = []", "  training : bool"]
    lines += [f"  {attribute} : {kind}" for attribute, kind in form.attributes.items()]
    for method, (arguments, body) in form.methods.items():
        lines += [f"  def {method}(self: {whole}, {arguments}) -> Tensor:", f"    return {body}"]
    place = whole.rpartition(".")[0].replace(".", "/")
    unit = ArchiveUnit({f"code/{place}.py": "\n".join(lines).encode()}.get, "the layer")
    return unit.find(whole)


def compiled_layer(layer: Any) -> Any:
    """A compiled module of a quantized layer; None for what is no such layer, or is not in the table."""
    place = own_place(type(layer))
    short = f"{place}.{type(layer).__name__}".removeprefix("rushlight.ao.nn.")
    name, values = "", None
    for form in (short, f"{short}:half") if place.startswith("rushlight.ao.nn.") else ():
        if values is None and form in _forms():
            name, values = form, _forms()[form].values(layer)
    if values is None or layer._forward_hooks or layer._forward_pre_hooks:
        return None
    kind = _kind(name)
    packed = packed_state(values.get("_packed_params"))
    if packed is not None and kind.attributes["_packed_params"] is not T.PACKED[packed[0]]:
        return None
    made = wrap_module(kind, RecursiveScriptModule)
    made.__dict__["_original_name"] = type(layer).__name__
    made.__dict__.update({attribute: value for attribute, value in values.items() if attribute in kind.attributes})
    made.training = layer.training
    return made
