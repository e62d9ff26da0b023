"""`Function`, its context, and what is made of them."""

from __future__ import annotations

from rushlight._engine.autograd.function import Function, FunctionCtx, FunctionMeta, once_differentiable
from rushlight._engine.autograd.function import FunctionNode as BackwardCFunction

__all__ = ["BackwardCFunction", "Function", "FunctionCtx", "FunctionMeta", "InplaceFunction", "once_differentiable"]


class InplaceFunction(Function):
    """An old base for functions that can work in place; it only remembers whether they should."""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace
