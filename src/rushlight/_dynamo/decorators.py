"""`torch._dynamo.decorators`: marks, by the name that programs know them by."""

from __future__ import annotations

from rushlight.compiler.marks import mark_dynamic, mark_static, mark_static_address, mark_unbacked, maybe_mark_dynamic

__all__ = ["mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked", "maybe_mark_dynamic"]
