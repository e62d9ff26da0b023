"""Quantized tensors: integers with a scale and a zero point."""

from __future__ import annotations

from rushlight._engine.dispatch_types.quantized import Quantizer, QuantTensor, make_quantized
from rushlight._ops.nn.quantized_products import rows_together

__all__ = [
    "QuantTensor",  # the class
    "Quantizer",  # scale and zero point
    "make_quantized",  # a tensor over given integers
    "rows_together",  # how many rows of a weight of four bits lie side by side
]
