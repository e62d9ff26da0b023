"""Bytecode of CPython, interpreted in Python: frames as objects, and operations that can be replaced."""
