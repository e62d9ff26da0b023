"""`torch._library.infer_schema`: the schema of a function, from its annotations."""

from __future__ import annotations

from rushlight.library.inference import infer_schema

__all__ = ["infer_schema"]
