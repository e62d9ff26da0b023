"""`triton.tools`: what host code uses beside kernels."""
