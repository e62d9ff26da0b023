"""Fourier transforms as block kernels."""
