"""The old name of Tensor."""

from rushlight._engine.tensor import Tensor as Variable

__all__ = ["Variable"]
