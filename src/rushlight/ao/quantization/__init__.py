"""The places where a model would be quantized, as `torch.ao.quantization`: in floats they change nothing.  Converting raises NotImplementedError."""

from __future__ import annotations

from typing import Any

from rushlight._base.absent import absent_class, absent_function
from rushlight.nn.modules.module import Module

__all__ = ["DeQuantStub", "FakeQuantizeBase", "ObserverBase", "QuantStub", "convert", "fuse_modules", "fuse_modules_qat", "get_default_qat_qconfig", "prepare", "prepare_qat"]

_WHY = "models are not quantized yet; tensors are (torch.quantize_per_tensor)"


# Modules that watch values on their way, for `isinstance`.
ObserverBase = absent_class("torch.ao.quantization.ObserverBase", _WHY, (Module,))
FakeQuantizeBase = absent_class("torch.ao.quantization.FakeQuantizeBase", _WHY, (Module,))


class QuantStub(Module):
    """Where floats would become integers; until a model is converted it returns its input."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """The input."""
        return x


class DeQuantStub(QuantStub):
    """Where integers would become floats; until a model is converted it returns its input."""


prepare, convert = absent_function("torch.ao.quantization.prepare", _WHY), absent_function("torch.ao.quantization.convert", _WHY)
fuse_modules, prepare_qat = (absent_function(f"torch.ao.quantization.{name}", _WHY) for name in ("fuse_modules", "prepare_qat"))
fuse_modules_qat = absent_function("torch.ao.quantization.fuse_modules_qat", _WHY)
get_default_qat_qconfig = absent_function("torch.ao.quantization.get_default_qat_qconfig", _WHY)
