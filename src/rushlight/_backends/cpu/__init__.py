"""The CPU: programs strung together from kernels, and the native routines around the inner kernels."""
