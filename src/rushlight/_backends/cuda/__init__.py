"""NVIDIA's GPUs: memory and streams by the driver, programs of block kernels."""
