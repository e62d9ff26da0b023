"""The thread form as LLVM text for NVPTX."""

from .printer import nvptx_text

__all__ = ["nvptx_text"]
