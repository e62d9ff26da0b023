"""From the groups of a schedule to block kernels: what GPUs run of a graph."""
