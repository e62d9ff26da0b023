"""Bytecode of CPython, interpreted in Python: frames as objects, and operations that can be replaced."""

from rushlight._capture.bytecode.frame import NULL, Frame
from rushlight._capture.bytecode.generators import Generator
from rushlight._capture.bytecode.interpreter import Interpreter, Link
from rushlight._capture.bytecode.operations import Enter, Interrupt, Operations
from rushlight._capture.bytecode.versions import supported

__all__ = ["NULL", "Enter", "Frame", "Generator", "Interpreter", "Interrupt", "Link", "Operations", "supported"]
