"""`torch._export.serde`: exported programs as JSON, in the schema of PyTorch's archives."""

from __future__ import annotations

__all__ = ["expressions", "reading", "schema", "writing"]
