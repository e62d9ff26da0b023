"""PyTorch's random numbers: mt19937 and what is drawn from it."""
