"""PyTorch's random numbers: mt19937 and the distributions drawn from it."""
