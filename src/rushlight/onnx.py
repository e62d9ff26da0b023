"""`torch.onnx` as far as it is true without an exporter: nothing is being exported, and `export` raises NotImplementedError.

>>> import rushlight as torch
>>> torch.onnx.is_in_onnx_export()
False
"""

from __future__ import annotations

from rushlight._base.absent import absent_class, absent_function

__all__ = ["ONNXProgram", "OnnxExporterError", "export", "is_in_onnx_export"]

_WHY = "models are not exported to ONNX yet"


class OnnxExporterError(RuntimeError):
    """An export failed."""


ONNXProgram = absent_class("torch.onnx.ONNXProgram", _WHY)
export = absent_function("torch.onnx.export", _WHY)


def is_in_onnx_export() -> bool:
    """Whether a model is being exported: False."""
    return False
