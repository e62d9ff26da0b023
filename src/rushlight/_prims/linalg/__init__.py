"""Contractions, diagonals, factors, Fourier transforms."""
