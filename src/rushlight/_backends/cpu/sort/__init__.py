"""Sorting, order statistics and what chooses elements."""
