"""Exceptions of graph capture, as `torch._dynamo.exc`."""

from __future__ import annotations

from rushlight.compiler.errors import (
    BackendCompilerFailed,
    CondOpArgsMismatchError,
    FailOnRecompileLimitHit,
    InternalTorchDynamoError,
    InvalidBackend,
    RecompileError,
    ResetRequired,
    SkipFrame,
    TorchDynamoException,
    TorchRuntimeError,
    UncapturedHigherOrderOpError,
    Unsupported,
    UserError,
    UserErrorType,
)

__all__ = [
    "BackendCompilerFailed", "CondOpArgsMismatchError", "FailOnRecompileLimitHit", "InternalTorchDynamoError", "InvalidBackend", "RecompileError",
    "ResetRequired", "SkipFrame", "TorchDynamoException", "TorchRuntimeError", "UncapturedHigherOrderOpError", "Unsupported", "UserError",
    "UserErrorType",
]  # fmt: skip
