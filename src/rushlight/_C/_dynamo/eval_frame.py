"""Settings of the search among a function's compiled entries."""

from __future__ import annotations

__all__ = ["_set_lru_cache"]


def _set_lru_cache(enabled: bool) -> None:
    """In which order PyTorch searches a function's entries: the one used last first, or as they were made.

    Nothing here: whichever entry fits a call, its results have the same form.
    """
