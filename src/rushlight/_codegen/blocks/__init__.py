"""The block IR: what one program of a GPU kernel or of a Triton kernel computes, on tiles of values.

A kernel runs once for each point of a grid.  Its values are tiles: arrays of a static shape (a scalar has the shape
`()`), of numbers or of pointers.  Which thread holds which element, shared memory and barriers are not said here: the
x86 emitter makes vector loops of a tile, and `_codegen.threads` divides it among the threads of a GPU.
"""

from .builder import BlockBuilder
from .interpret import interpret
from .ir import Kernel, Op, Region, Value
from .memory import BlockFault, BlockMemory
from .ops import OPS, OpRecord
from .text import kernel_text
from .types import Pointer, Tile
from .verify import BlockError, verify

__all__ = [
    "OPS", "BlockBuilder", "BlockError", "BlockFault", "BlockMemory", "Kernel", "Op", "OpRecord", "Pointer", "Region", "Tile",
    "Value", "interpret", "kernel_text", "verify",
]  # fmt: skip
