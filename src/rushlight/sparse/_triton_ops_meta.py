"""`torch.sparse._triton_ops_meta`: tuned settings of Triton kernels, which are not here."""

from __future__ import annotations

from rushlight._interface.base import absent_function

__all__ = ["get_meta", "minimize", "update"]

_WHY = "sparse products by Triton kernels are not here"
get_meta, minimize, update = (
    absent_function(f"torch.sparse._triton_ops_meta.{name}", _WHY) for name in ("get_meta", "minimize", "update")
)
