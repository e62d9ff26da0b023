"""rushlight: PyTorch's programming model, the whole stack in Python."""

__version__ = "0.1.0"
