"""`torch._export.error`: errors of export's stages."""

from __future__ import annotations

from enum import Enum

__all__ = ["ExportError", "ExportErrorType", "InternalError", "internal_assert"]


class ExportErrorType(Enum):
    """Reason for which a program was refused."""

    INVALID_INPUT_TYPE = 1
    INVALID_OUTPUT_TYPE = 2
    VIOLATION_OF_SPEC = 3
    NOT_SUPPORTED = 4
    MISSING_PROPERTY = 5
    UNINITIALIZED = 6


class InternalError(Exception):
    """Something that holds of every exported graph does not hold of one."""


class ExportError(Exception):
    """The program that is exported is at fault: its code, or how export was called."""

    def __init__(self, error_code: ExportErrorType, message: str) -> None:
        super().__init__(f"[{error_code}]: {message}")


def internal_assert(pred: bool, assert_msg: str) -> None:
    """InternalError unless `pred` holds."""
    if not pred:
        raise InternalError(assert_msg)
