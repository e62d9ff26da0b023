"""Errors of recordings."""

from __future__ import annotations

__all__ = ["BackwardWriteError", "CheckFailed", "DataDependentError", "RecordingError"]


class RecordingError(RuntimeError):
    """Something that cannot be part of a recorded program; the text names it."""


class DataDependentError(RecordingError):
    """A program asked for elements of a tensor, which are not known while it is recorded."""


class CheckFailed(Exception):
    """A call of a program met what the recording has taken not to happen, and changed nothing: an error that the calls
    would raise one by one.
    """


class BackwardWriteError(RecordingError):
    """A change in place that a program's backward makes, which gives gradients alone."""
