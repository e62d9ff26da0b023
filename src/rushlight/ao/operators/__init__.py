"""`torch.ops.quantized`: operators on quantized tensors, and the packed weights that they take."""

from __future__ import annotations

from rushlight.ao.operators.namespace import QuantizedNamespace
from rushlight.ao.operators.packed import ConvPackedParams, EmbeddingPackedParams, LinearPackedParams

__all__ = ["ConvPackedParams", "EmbeddingPackedParams", "LinearPackedParams", "QuantizedNamespace"]
