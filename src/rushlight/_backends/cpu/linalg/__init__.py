"""Factorisations: LAPACK, and small matrices in lanes."""
