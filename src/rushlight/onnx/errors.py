"""Exceptions of exporters to ONNX, for `except` clauses; none is raised while there is no exporter."""

from __future__ import annotations

from rushlight.onnx import OnnxExporterError

__all__ = ["OnnxExporterError", "OnnxExporterWarning", "SymbolicValueError", "UnsupportedOperatorError"]


class OnnxExporterWarning(UserWarning):
    """An export may not be what was meant."""


class UnsupportedOperatorError(OnnxExporterError):
    """ONNX has no such operator."""


class SymbolicValueError(OnnxExporterError):
    """A value of the exported graph cannot be used so."""
