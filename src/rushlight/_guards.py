"""`torch._guards`: what packages ask about a trace that is being made; there is none."""

from __future__ import annotations

from typing import Any

__all__ = ["active_fake_mode", "detect_fake_mode"]


def active_fake_mode() -> None:
    """The mode that makes fake tensors: None."""
    return None


def detect_fake_mode(inputs: Any = None) -> None:
    """The mode that some values are fake tensors of: None."""
    return None
