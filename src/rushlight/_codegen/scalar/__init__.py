"""Pointwise primitives as LLVM text on vector values; every transcendental function is generated from here.

`Emitter` writes instructions, `BOUNDS` states the error bound of each function.  See `writer.py` for the vocabulary.
"""

from .bounds import BOUNDS, Bound
from .convert import bfloat16_part
from .emitter import UNROUNDED, Emitter, supports
from .writer import Check, ModuleText, Val, mem_lanes, mem_type, reg_type

__all__ = [
    "BOUNDS", "UNROUNDED", "Bound", "Check", "Emitter", "ModuleText", "Val", "bfloat16_part", "mem_lanes", "mem_type", "reg_type", "supports",
]  # fmt: skip
