"""The fast path of `nn.MultiheadAttention`: fused kernels are the only path here, so the setting changes nothing."""

from __future__ import annotations

from rushlight._interface.base import trace_marks

__all__ = ["get_fastpath_enabled", "set_fastpath_enabled"]

_allowed = [True]


def get_fastpath_enabled() -> bool:
    """Whether the fast path is allowed."""
    return _allowed[0]


@trace_marks.changes_later_calls
def set_fastpath_enabled(value: bool) -> None:
    """Allow the fast path, or not."""
    _allowed[0] = bool(value)
