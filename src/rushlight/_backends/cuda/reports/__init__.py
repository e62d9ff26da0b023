"""Reports: which primitives a GPU computes, what kernels are, and what devices did."""
