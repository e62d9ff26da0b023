"""Matrix products: panels, blocks, and the BLAS library."""
