"""An interpreter of PTX, written from NVIDIA's "Parallel Thread Execution ISA": it runs the text that the driver would be given.

    run_kernel(kernel, "sm_90a", grid, arguments)        # a block kernel: lowered, printed, compiled by LLVM, interpreted

It knows nothing of how the text came about.  What the instruction set leaves undefined is a `PtxError`; so is an instruction that it
does not know.
"""

from . import accesses, bulk, control, matrix, scalar
from .machine import BUILDERS, Machine
from .parser import PtxError, parse
from .running import Ran, run_kernel, run_over, run_plain, run_text

__all__ = ["BUILDERS", "Machine", "PtxError", "Ran", "parse", "run_kernel", "run_plain", "run_over", "run_text"]
