"""KleidiAI, a library of Arm's, which rushlight does not use."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """False."""
    return False
