"""Sorting as block kernels: stable, NaN above all numbers."""
