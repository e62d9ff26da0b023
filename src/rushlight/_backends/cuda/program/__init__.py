"""Programs of the CUDA backend: launches of block kernels and calls of libraries on a stream."""
