"""PyTorch's native `nn`: pickles name functions so, and packages use the one that reads the arguments of `to`."""

from __future__ import annotations

from typing import Any

from rushlight._C._native import native_operator
from rushlight.nn import functional
from rushlight.nn.modules.conversion import parse_to as _parse_to

__all__ = ["_parse_to"]

# Functions that `nn.functional` shows as they are; the losses and others there take `reduction` as a word, and here as a number.
_SHOWN = {
    "avg_pool2d": "avg_pool2d",
    "avg_pool3d": "avg_pool3d",
    "elu_": "elu_",
    "gelu": "gelu",
    "hardtanh_": "hardtanh_",
    "leaky_relu_": "leaky_relu_",
    "linear": "linear",
    "log_sigmoid": "logsigmoid",
    "one_hot": "one_hot",
    "pad": "pad",
    "scaled_dot_product_attention": "scaled_dot_product_attention",
    "softplus": "softplus",
    "softshrink": "softshrink",
}


def __getattr__(name: str) -> Any:
    if name in _SHOWN:
        return getattr(functional, _SHOWN[name])
    return native_operator(name, f"_C._nn.{name}")
