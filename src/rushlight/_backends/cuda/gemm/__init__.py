"""Matrix products as block kernels."""
