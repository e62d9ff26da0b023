"""Errors of an ONNX model, as exceptions."""

from __future__ import annotations

__all__ = ["InvalidModelError", "OperatorError", "UnsupportedOperatorError"]


class InvalidModelError(ValueError):
    """A file that is no ONNX model, or a model that contradicts itself or names what it must not read."""


class UnsupportedOperatorError(NotImplementedError):
    """An operator, a version of it, or one of its attributes that has no implementation here."""


class OperatorError(RuntimeError):
    """An operator refused its inputs; the message names the node, the cause is chained."""
