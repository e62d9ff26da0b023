"""Runtime of the CPU's kernels: memory pool, worker threads, the stub of kernels, elements as Python's numbers."""
