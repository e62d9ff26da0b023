"""Where floats become integers and back, and modules that integers pass unchanged."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight._interface.tensors import STATE
from rushlight.ao.operators.packed import HOLDERS, requantize

__all__ = ["DeQuantize", "Dropout", "MaxPool2d", "Quantize"]


class Quantize(nn.Module):
    """Floats as integers by a known scale: what a `QuantStub` becomes.

    >>> import rushlight as torch
    >>> torch.ao.nn.quantized.Quantize(0.5, 10, torch.quint8)(torch.tensor([1.0])).int_repr()
    tensor([12], dtype=torch.uint8)
    """

    scale: Any
    zero_point: Any

    def __init__(self, scale: Any, zero_point: Any, dtype: Any, factory_kwargs: Any = None) -> None:
        super().__init__()
        more = {k: v for k, v in (factory_kwargs or {}).items() if k != "dtype"}
        self.register_buffer("scale", torch.tensor([scale], **more))
        self.register_buffer("zero_point", torch.tensor([zero_point], dtype=torch.long, **more))
        self.dtype = dtype

    def forward(self, X: Any) -> Any:
        """The integers."""
        scale, zero = float(self.scale), int(self.zero_point)
        if X.dtype is torch.float32 and not STATE.function_modes and str(self.dtype).rpartition(".")[2] in HOLDERS:
            return requantize(X, scale, zero, self.dtype)
        return torch.quantize_per_tensor(X, scale, zero, self.dtype)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """By the scale that an observed stub found."""
        scale, zero = mod.activation_post_process.calculate_qparams()
        return Quantize(scale.float().item(), zero.long().item(), mod.activation_post_process.dtype)

    def extra_repr(self) -> str:
        """Scale, zero point and dtype."""
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(nn.Module):
    """Integers as floats: what a `DeQuantStub` becomes."""

    def forward(self, Xq: Any) -> Any:
        """The floats."""
        return Xq.dequantize()

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """There is nothing to know."""
        return DeQuantize()


class Dropout(nn.Dropout):
    """Dropout of a model that is no longer trained: its input."""

    def forward(self, input: Any) -> Any:
        """The input."""
        return input

    def _get_name(self) -> str:
        return "QuantizedDropout"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The same for a float module."""
        return cls(mod.p, mod.inplace)

    @classmethod
    def from_reference(cls, mod: Any, scale: Any, zero_point: Any) -> Any:
        """The same for a module of a reference model."""
        return cls(mod.p, mod.inplace)


class MaxPool2d(nn.MaxPool2d):
    """The largest of each window: integers are in the order of their numbers."""
