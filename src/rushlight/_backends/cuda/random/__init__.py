"""Random numbers of CUDA devices: Philox 4x32-10, with the sequences of PyTorch's kernels."""
