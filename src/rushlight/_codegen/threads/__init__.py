"""Block kernels divided among the threads of a GPU: layouts, shared memory, barriers, shuffles, matrix instructions.

`lower` makes the thread form of a block kernel.  `nvptx_text` prints it as LLVM text for the GPU, `twin_text` as LLVM text for
x86 that does the same thread by thread: layouts, exchanges and barriers are proved by running the twin.
"""

# Modules that are imported as a whole register how they lower operations.
from . import combine, memory, pipeline, tables
from .form import ThreadKernel
from .lower import LoweringError, lower
from .matrices import products as _matrix_products
from .nvptx import nvptx_text
from .twin import twin_text
from .warpgroups import chains as _chains
from .warpgroups import products as _group_products

__all__ = ["LoweringError", "ThreadKernel", "lower", "nvptx_text", "twin_text"]
