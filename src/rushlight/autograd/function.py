"""`Function` and `once_differentiable`."""

from rushlight._engine.autograd.function import Function, once_differentiable
from rushlight._engine.autograd.function import FunctionNode as FunctionCtx

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
