"""Settings of the search among a function's compiled entries."""

from __future__ import annotations

from rushlight._interface.base import trace_marks

__all__ = ["_set_lru_cache"]


@trace_marks.changes_later_calls
def _set_lru_cache(enabled: bool) -> None:
    """In which order PyTorch searches a function's entries: the one used last first, or as they were made.

    Nothing here: whichever entry fits a call, its results have the same form.
    """
