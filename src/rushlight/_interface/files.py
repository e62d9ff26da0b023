"""Parts of files of tensors: pickled forms, quantized tensors, checksums."""

from __future__ import annotations

from rushlight._engine.dispatch_types.quantized import RANGES, SCHEMES, Quantizer, make_quantized
from rushlight._engine.sharing.pickling import SAVING
from rushlight._host.checksum import crc32, joined

__all__ = [
    "SAVING",  # how tensors are pickled while a file is written
    "crc32",
    "joined",  # the checksum of two parts together
    # Quantized tensors.
    "RANGES",  # dtype -> integers, least, greatest
    "SCHEMES",
    "Quantizer",  # scheme, scale, zero point, axis
    "make_quantized",
]
