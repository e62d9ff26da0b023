"""Primitives of one element at a time."""
