"""Factorisations of matrices: small ones as block kernels, others by the host's LAPACK or by cuSOLVER."""
