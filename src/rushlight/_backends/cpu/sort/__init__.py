"""Sorting, order statistics, and selection of elements."""
