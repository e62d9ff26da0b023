"""Twins: the thread form as LLVM text for x86, and the functions that it calls."""

from .printer import twin_text

__all__ = ["twin_text"]
