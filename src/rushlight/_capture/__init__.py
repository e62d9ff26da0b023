"""Whole programs: what a callable or an fx graph does, recorded as a graph with effects, and run again.

`record_program(function, *args)` runs a callable on traced tensors and returns a `Program`; `program_caller(program)`
makes a function of tensors of it.  See docs/graph.md.
"""

from rushlight._capture.record import RecordedProgram, record_program
from rushlight._capture.run import program_caller

__all__ = ["RecordedProgram", "program_caller", "record_program"]
