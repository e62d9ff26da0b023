"""Products of matrices: panels, blocks and the library."""
