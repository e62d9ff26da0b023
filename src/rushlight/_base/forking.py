"""Locks and `fork`: what a thread of the parent holds at that moment would be held in the child for ever."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["free_after_fork"]


def free_after_fork(lock: Any) -> None:
    """Let forks wait for a lock, so that it is free in the child and what it guards is whole."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
