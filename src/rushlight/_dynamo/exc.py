"""Exceptions of graph capture, for `except` clauses."""

from __future__ import annotations

__all__ = [
    "BackendCompilerFailed",
    "InternalTorchDynamoError",
    "TorchDynamoException",
    "TorchRuntimeError",
    "Unsupported",
    "UserError",
]


class TorchDynamoException(RuntimeError):
    """The base of them."""


class InternalTorchDynamoError(TorchDynamoException):
    """Capture itself failed."""


class Unsupported(TorchDynamoException):
    """The program does what cannot be captured."""


class TorchRuntimeError(TorchDynamoException):
    """An operator failed while it was captured."""


class BackendCompilerFailed(TorchDynamoException):
    """A backend failed."""


class UserError(Unsupported):
    """The program asked for what cannot be."""
