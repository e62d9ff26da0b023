"""Errors of an export, as `torch.onnx.errors`."""

from __future__ import annotations

__all__ = ["OnnxExporterError", "OnnxExporterWarning", "SymbolicValueError", "UnsupportedOperatorError"]


class OnnxExporterWarning(UserWarning):
    """An export may not be what was meant."""


class OnnxExporterError(RuntimeError):
    """An export failed."""


class UnsupportedOperatorError(OnnxExporterError):
    """An operator, or a call of it, has no ONNX form; the message names its overload, the user's line and what would work."""


class SymbolicValueError(OnnxExporterError):
    """A value of the exported graph cannot be used so: a symbolic function got a value where it needs a constant."""

    def __init__(self, msg: str, value: object = None) -> None:
        super().__init__(msg if value is None else f"{msg}  [Caused by the value '{value!r}']")
        self.value = value
