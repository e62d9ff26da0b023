"""What a recording refuses."""

from __future__ import annotations

__all__ = ["DataDependentError", "RecordingError"]


class RecordingError(RuntimeError):
    """Something that cannot be part of a recorded program; the text names it."""


class DataDependentError(RecordingError):
    """A program asked for elements of a tensor, which are not known while it is recorded."""
