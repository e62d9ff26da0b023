"""Pointwise primitives as LLVM text on vector values; every transcendental function is generated from here.

`Emitter` writes instructions, `BOUNDS` states the error bound of each function.  See `writer.py` for the vocabulary.
"""

from .emitter import Emitter, supports
from .lowerings import BOUNDS
from .writer import Check, ModuleText, Val, mem_lanes, mem_type, reg_type

__all__ = ["BOUNDS", "Check", "Emitter", "ModuleText", "Val", "mem_lanes", "mem_type", "reg_type", "supports"]
