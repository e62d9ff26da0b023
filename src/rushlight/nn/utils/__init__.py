"""Tools for parameters and gradients: clipping, flattening, parametrizations, pruning, fusing; sequences of different
lengths are in `rnn`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from rushlight._interface.base import lazy_files

_PLACES = {
    "clip_grad_norm": "clip_grad",
    "clip_grad_norm_": "clip_grad",
    "clip_grad_value_": "clip_grad",
    "clip_grads_with_norm_": "clip_grad",
    "convert_conv2d_weight_memory_format": "memory_format",
    "convert_conv3d_weight_memory_format": "memory_format",
    "fuse_conv_bn_eval": "fusion",
    "fuse_conv_bn_weights": "fusion",
    "fuse_linear_bn_eval": "fusion",
    "fuse_linear_bn_weights": "fusion",
    "get_total_norm": "clip_grad",
    "parameters_to_vector": "convert_parameters",
    "remove_spectral_norm": "spectral_norm",
    "remove_weight_norm": "weight_norm",
    "skip_init": "init",
    "spectral_norm": "spectral_norm",
    "vector_to_parameters": "convert_parameters",
    "weight_norm": "weight_norm",
}
_PAGES = (
    "clip_grad", "convert_parameters", "fusion", "init", "memory_format", "parametrizations", "parametrize", "prune", "rnn", "stateless",
)  # fmt: skip

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format", "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights",
    "get_total_norm", "parameters_to_vector", "parametrizations", "parametrize", "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init",
    "spectral_norm", "stateless", "vector_to_parameters", "weight_norm",
]  # fmt: skip


class _Page(ModuleType):
    """Two functions have the names of the files they live in: here the name is the function, whoever imports the file."""

    def __setattr__(self, name: str, value: Any) -> None:
        if _PLACES.get(name) == name and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Page


__getattr__ = lazy_files(__name__, _PLACES, _PAGES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, *_PAGES})
