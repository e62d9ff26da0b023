"""`torch.ao.quantization.fx`: graph mode: tracing, fusing, observing and converting of graphs."""

from __future__ import annotations

from rushlight.ao.quantization.fx.convert import convert, convert_to_reference
from rushlight.ao.quantization.fx.fuse import fuse
from rushlight.ao.quantization.fx.prepare import prepare

__all__ = ["convert", "convert_to_reference", "fuse", "prepare"]
