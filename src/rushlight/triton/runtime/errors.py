"""Errors of launches and of autotuning."""

from __future__ import annotations

__all__ = ["AutotunerError", "InterpreterError", "OutOfResources", "TritonError"]


class TritonError(Exception):
    """Base of the errors of this package that are no compilation errors."""


class OutOfResources(TritonError):
    """A kernel that needs more of something than the device has."""

    def __init__(self, required: int, limit: int, name: str) -> None:
        self.required, self.limit, self.name = required, limit, name
        super().__init__(
            f"out of resource: {name}, Required: {required}, Hardware limit: {limit}. Reducing block sizes or `num_stages` may help."
        )

    def __reduce__(self) -> tuple[type, tuple[int, int, str]]:
        return (type(self), (self.required, self.limit, self.name))


class InterpreterError(TritonError):
    """A kernel that fails in the reference interpreter."""


class AutotunerError(TritonError):
    """No configuration of a kernel ran."""
