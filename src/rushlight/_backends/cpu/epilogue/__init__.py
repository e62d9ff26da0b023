"""Pointwise work before and after products and convolutions, over rectangles of their operands and sums."""
