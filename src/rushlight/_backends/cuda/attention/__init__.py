"""Attention as block kernels: scores are never stored."""
