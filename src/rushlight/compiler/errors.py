"""Exceptions of compilation, as `torch._dynamo.exc` has them."""

from __future__ import annotations

import enum
from typing import Any

__all__ = [
    "BackendCompilerFailed", "CondOpArgsMismatchError", "FailOnRecompileLimitHit", "InternalTorchDynamoError", "InvalidBackend", "RecompileError",
    "ResetRequired", "SkipFrame", "TorchDynamoException", "TorchRuntimeError", "UncapturedHigherOrderOpError", "Unsupported", "UserError",
    "UserErrorType",
]  # fmt: skip


class TorchDynamoException(RuntimeError):
    """The base of them."""


class InternalTorchDynamoError(TorchDynamoException):
    """Capture itself failed."""


class Unsupported(TorchDynamoException):
    """The program does what cannot be captured, and `fullgraph=True` (or `error_on_graph_break`) was asked for."""


class TorchRuntimeError(TorchDynamoException):
    """An operator failed while it was captured."""


class InvalidBackend(TorchDynamoException):
    """No backend has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Invalid backend: {name!r}, see `torch._dynamo.list_backends()` for available backends.")


class ResetRequired(TorchDynamoException):
    """A setting was changed that needs `torch._dynamo.reset()`."""


class BackendCompilerFailed(TorchDynamoException):
    """A backend raised `inner_exception`."""

    def __init__(self, backend_fn: Any, inner_exception: Exception) -> None:
        self.backend_name = getattr(backend_fn, "__name__", "?")
        self.inner_exception = inner_exception
        super().__init__(f"backend={self.backend_name!r} raised:\n{type(inner_exception).__name__}: {inner_exception}")


class RecompileError(TorchDynamoException):
    """A function would have been compiled again, and `error_on_recompile` is set."""


class SkipFrame(TorchDynamoException):
    """This call runs as it is."""


class CondOpArgsMismatchError(TorchDynamoException):
    """The branches of `cond` do not fit together."""


class UncapturedHigherOrderOpError(TorchDynamoException):
    """A function of functions (`cond`, `map`, ...) that must be captured whole could not be."""


class FailOnRecompileLimitHit(Exception):
    """A function has as many programs as it may have; `fullgraph=True` or `fail_on_recompile_limit_hit` was asked for."""


class UserErrorType(enum.Enum):
    """Kinds of `UserError`."""

    DYNAMIC_CONTROL_FLOW = "dynamic_control_flow"
    ANTI_PATTERN = "anti_pattern"
    STANDARD_LIBRARY = "standard_library"
    CONSTRAINT_VIOLATION = "constraint_violation"
    DYNAMIC_DIM = "dynamic_dim"
    INVALID_INPUT = "invalid_input"
    INVALID_OUTPUT = "invalid_output"
    UNSUPPORTED_ALIASED_MUTATED_DYNAMIC_INPUTS = "unsupported_aliased_mutated_dynamic_inputs"


class UserError(TorchDynamoException):
    """The program asked for what cannot be; `error_type` says of which kind it is."""

    def __init__(self, error_type: UserErrorType, msg: str, case_name: str | None = None) -> None:
        if not isinstance(error_type, UserErrorType):
            raise AssertionError(f"expected UserErrorType, got {type(error_type)}")
        self.error_type, self.message = error_type, msg
        super().__init__(msg)
