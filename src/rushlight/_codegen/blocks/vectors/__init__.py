"""Block kernels as vector code for CPUs: LLVM text of one function that runs programs of a grid."""

from .function import Machine
from .kernel import ASSERTION, BOUNDS, MEMORY, REPORT, VectorText, vector_text

__all__ = ["ASSERTION", "BOUNDS", "MEMORY", "REPORT", "Machine", "VectorText", "vector_text"]
