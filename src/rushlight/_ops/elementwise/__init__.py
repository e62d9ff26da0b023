"""Operators of one element at a time: arithmetic, comparisons, special functions, quantized numbers."""
