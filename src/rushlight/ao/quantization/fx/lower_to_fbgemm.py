"""`torch.ao.quantization.fx.lower_to_fbgemm`: from a reference graph to quantized modules."""

from __future__ import annotations

from rushlight._interface.base import absent_function

__all__ = ["lower_to_fbgemm"]

lower_to_fbgemm = absent_function(
    "torch.ao.quantization.fx.lower_to_fbgemm.lower_to_fbgemm",
    "reference graphs run compiled as they are; quantize_fx.convert_fx makes quantized modules of prepared ones",
)
