"""Which `QConfig` a module or a function of a model has: by name, by pattern of names, by class, or for all."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.ao.quantization.observer import (
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
    default_placeholder_observer,
    default_weight_observer,
)
from rushlight.ao.quantization.qconfig import (
    QConfig,
    default_quint8_weight_qconfig,
    default_reuse_input_qconfig,
    default_symmetric_qnnpack_qat_qconfig,
    default_symmetric_qnnpack_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
)
from rushlight.nn import functional

__all__ = ["QConfigMapping", "get_default_qat_qconfig_mapping", "get_default_qconfig_mapping"]

_KEYS = ("", "object_type", "module_name_regex", "module_name", "module_name_object_type_order")


class QConfigMapping:
    """Which `QConfig` what has; later kinds win: for all, by class, by pattern of names, by name, by name, class and order.

    >>> import rushlight as torch
    >>> mapping = torch.ao.quantization.QConfigMapping().set_global(torch.ao.quantization.default_qconfig)
    >>> _ = mapping.set_object_type(torch.nn.Conv2d, None)
    >>> mapping.to_dict()["object_type"]
    [(<class 'rushlight.nn.modules.conv.Conv2d'>, None)]
    """

    def __init__(self) -> None:
        self.global_qconfig: Any = None
        self.object_type_qconfigs: OrderedDict[Any, Any] = OrderedDict()
        self.module_name_regex_qconfigs: OrderedDict[str, Any] = OrderedDict()
        self.module_name_qconfigs: OrderedDict[str, Any] = OrderedDict()
        self.module_name_object_type_order_qconfigs: OrderedDict[Any, Any] = OrderedDict()

    def set_global(self, global_qconfig: Any) -> QConfigMapping:
        """For all that nothing else is said of."""
        self.global_qconfig = global_qconfig
        return self

    def set_object_type(self, object_type: Any, qconfig: Any) -> QConfigMapping:
        """For modules of a class, calls of a function, or methods of a name."""
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex: str, qconfig: Any) -> QConfigMapping:
        """For modules whose name matches a pattern; the first that matches is taken."""
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name: str, qconfig: Any) -> QConfigMapping:
        """For a module, and all inside of it."""
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def set_module_name_object_type_order(
        self, module_name: str, object_type: Any, index: int, qconfig: Any
    ) -> QConfigMapping:
        """For the call number `index` of a function inside of a module."""
        self.module_name_object_type_order_qconfigs[(module_name, object_type, index)] = qconfig
        return self

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for name in ("global_qconfig", *(f"{k}_qconfigs" for k in _KEYS[1:])):
            held = getattr(self, name)
            lines.append(f" {name}")
            if isinstance(held, OrderedDict) and held:
                lines += ["  OrderedDict(", *(f"   ({k}, {v})," for k, v in held.items()), "  )"]
            else:
                lines.append(f"  {held}")
        return "\n".join([*lines, ")"])

    def to_dict(self) -> dict[str, Any]:
        """The mapping as a dict of lists."""
        found: dict[str, Any] = {"": self.global_qconfig}
        for key in _KEYS[1:]:
            held = getattr(self, f"{key}_qconfigs")
            found[key] = [(*k, v) if isinstance(k, tuple) else (k, v) for k, v in held.items()]
        return found

    @classmethod
    def from_dict(cls, qconfig_dict: dict[str, Any]) -> QConfigMapping:
        """The mapping of a dict as `to_dict` makes it."""
        made = cls()
        if "" in qconfig_dict:
            made.set_global(qconfig_dict[""])
        for name, add in (
            ("object_type", made.set_object_type), ("module_name_regex", made.set_module_name_regex),
            ("module_name", made.set_module_name), ("module_name_object_type_order", made.set_module_name_object_type_order),
        ):  # fmt: skip
            for row in qconfig_dict.get(name, ()):
                add(*row)
        return made

    # ***** asked by graph mode *****

    def _for_names(self, names: list[str], kinds: tuple[Any, ...], index: Any = None) -> Any:
        """The qconfig of an object of these kinds (classes, functions, method names) inside of modules, outermost first."""
        found = self.global_qconfig
        for kind in kinds:
            if kind in self.object_type_qconfigs:
                found = self.object_type_qconfigs[kind]
        for name in names[::-1]:
            hit = next((q for p, q in self.module_name_regex_qconfigs.items() if re.match(p, name)), _MISSING)
            if hit is not _MISSING:
                found = hit
                break
        for name in names[::-1]:
            if name in self.module_name_qconfigs:
                found = self.module_name_qconfigs[name]
                break
        for kind in kinds:
            key = (names[-1] if names else "", kind, index)
            if key in self.module_name_object_type_order_qconfigs:
                found = self.module_name_object_type_order_qconfigs[key]
        return found


_MISSING = object()
_RANGES = {  # what returns numbers of a known range
    default_fixed_qparams_range_0to1_observer: (
        nn.Hardsigmoid, functional.hardsigmoid, "hardsigmoid", "hardsigmoid_", nn.Sigmoid, torch.sigmoid, "sigmoid", "sigmoid_", nn.Softmax,
    ),
    default_fixed_qparams_range_neg1to1_observer: (nn.Tanh, torch.tanh, "tanh", "tanh_"),
}  # fmt: skip


def _usual(qconfig: Any, is_qat: bool) -> QConfigMapping:
    transposed = QConfig(qconfig.activation, qconfig.weight() and default_weight_observer) if not is_qat else qconfig
    norm = QConfig(qconfig.activation, default_placeholder_observer)
    made = QConfigMapping().set_global(qconfig).set_object_type("reshape", default_reuse_input_qconfig)
    for kind in (
        nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d
    ):  # fmt: skip
        made.set_object_type(kind, transposed)
    for kind in (functional.layer_norm, nn.LayerNorm):
        made.set_object_type(kind, norm)
    made.set_object_type(nn.PReLU, default_quint8_weight_qconfig)
    for observer, kinds in _RANGES.items():
        fixed = torch.ao.quantization.FixedQParamsFakeQuantize.with_args(observer=observer) if is_qat else observer
        for kind in kinds:
            made.set_object_type(kind, QConfig(fixed, default_weight_observer if not is_qat else qconfig.weight))
    return made


def get_default_qconfig_mapping(backend: str = "x86", version: int = 0) -> QConfigMapping:
    """The usual mapping for calibration."""
    return _usual(get_default_qconfig(backend, version), False)


def get_default_qat_qconfig_mapping(backend: str = "x86", version: int = 1) -> QConfigMapping:
    """The usual mapping for training."""
    return _usual(get_default_qat_qconfig(backend, version), True)


def _get_symmetric_qnnpack_qconfig_mapping() -> QConfigMapping:
    return _usual(get_default_qconfig("qnnpack"), False).set_global(default_symmetric_qnnpack_qconfig)


def _get_symmetric_qnnpack_qat_qconfig_mapping() -> QConfigMapping:
    return _usual(get_default_qat_qconfig("qnnpack"), True).set_global(default_symmetric_qnnpack_qat_qconfig)
