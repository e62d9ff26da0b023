"""LLVM text for NVPTX to PTX, and PTX to machine code."""
