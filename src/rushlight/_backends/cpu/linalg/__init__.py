"""Factorisations: LAPACK, and small matrices side by side in lanes."""
