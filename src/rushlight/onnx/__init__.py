"""`torch.onnx` as far as it is true without an exporter: nothing is being exported, and `export` raises
NotImplementedError.

>>> import rushlight as torch
>>> torch.onnx.is_in_onnx_export()
False
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._interface.base import absent_class, absent_function, lazy_files

__all__ = ["ONNXProgram", "OnnxExporterError", "export", "is_in_onnx_export", "load", "register_custom_op_symbolic"]

_WHY = "models are not exported to ONNX yet"


class OnnxExporterError(RuntimeError):
    """An export failed."""


ONNXProgram = absent_class("torch.onnx.ONNXProgram", _WHY)
export = absent_function("torch.onnx.export", _WHY)


def is_in_onnx_export() -> bool:
    """Whether a model is being exported: False."""
    return False


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """How an exporter would write an operator; it is accepted, as packages say it when they are imported."""
    if "::" not in symbolic_name:
        raise ValueError(f"expected an operator's name as namespace::name, got {symbolic_name!r}")


# Models that come in: `load` and the interface of onnx's backends, loaded by their first use.
__getattr__ = lazy_files(__name__, {"load": "importing.module"}, modules=("backend",))
