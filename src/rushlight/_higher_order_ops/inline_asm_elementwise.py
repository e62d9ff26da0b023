"""`torch._higher_order_ops.inline_asm_elementwise`: instructions of a GPU for each element."""

from __future__ import annotations

from rushlight._interface.base import absent_function

__all__ = ["inline_asm_elementwise"]

inline_asm_elementwise = absent_function(
    "torch._higher_order_ops.inline_asm_elementwise.inline_asm_elementwise", "text of a GPU's instructions is not taken"
)
