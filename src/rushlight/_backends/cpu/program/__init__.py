"""Programs: the kernels and library calls of a graph, in order, as the CPU's stub takes them."""
