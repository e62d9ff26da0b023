"""What pages about compilation use: records of calls, and which topics are printed."""

from __future__ import annotations

from rushlight._base.log import LOG
from rushlight._capture.trace.document import CallRecord, placeholder_name

__all__ = [
    "LOG",  # the knob of `RUSHLIGHT_LOG`
    # What a traced program called.
    "CallRecord",
    "placeholder_name",  # the name of an input from where it comes
]
