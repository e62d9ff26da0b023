"""Products of matrices, factors, solutions, spectra."""
