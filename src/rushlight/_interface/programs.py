"""Whole programs as graphs with effects."""

from __future__ import annotations

from rushlight._capture import RecordedProgram, record_program

__all__ = [
    "RecordedProgram",  # a program, and how arguments and results correspond to it
    "record_program",  # what a callable does with tensors like these
]
