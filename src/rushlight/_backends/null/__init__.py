"""The null backend: schedules and compiles graphs for any machine, this one or another, and runs nothing.

Tests of the compiler need no memory, no threads and no such machine; and a person can read what a graph becomes on ARM.
"""

from rushlight._backends.null.backend import NullBackend
from rushlight._backends.null.compile import MACHINES, Compiled, Machine, compile_graph

__all__ = ["MACHINES", "Compiled", "Machine", "NullBackend", "compile_graph"]
