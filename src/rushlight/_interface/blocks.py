"""The block IR and its dtypes, for the front end of the Triton language."""

from __future__ import annotations

from rushlight._codegen.blocks import (
    BlockBuilder,
    BlockError,
    BlockMemory,
    Kernel,
    Pointer,
    Region,
    Tile,
    Value,
    interpret,
    kernel_text,
    verify,
)
from rushlight._types.dtype import BY_NAME, DType

__all__ = [
    "BlockBuilder",  # appends operations to a region
    "BlockError",  # operands that do not fit
    "BlockMemory",  # arrays at addresses, for the interpreter
    "Kernel",  # a finished kernel
    "Pointer",  # the element type of addresses
    "Region",  # a body of operations
    "Tile",  # the type of a value
    "Value",  # the result of an operation
    "interpret",  # run a kernel slowly, with every access checked
    "kernel_text",  # a kernel, printed
    "verify",  # every rule of the IR
    "BY_NAME",  # dtypes by their names
    "DType",  # an element type
]
