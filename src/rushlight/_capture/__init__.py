"""Whole programs: what a callable does with tensors, recorded as one graph of primitives and run as one executable.

See `_capture.recording` for programs, `_capture.bytecode` for the interpreter, `_capture.trace` for `torch.compile`.
"""
