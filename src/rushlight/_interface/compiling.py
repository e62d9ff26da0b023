"""What pages about compilation use: which topics are printed."""

from __future__ import annotations

from rushlight._base.log import LOG

__all__ = [
    "LOG"  # the knob of `RUSHLIGHT_LOG`
]
