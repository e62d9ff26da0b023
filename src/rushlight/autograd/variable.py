"""The name that tensors with gradients had before every tensor could have one."""

from __future__ import annotations

import warnings
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.autograd import queue_callback

__all__ = ["Variable", "VariableMeta"]


class _ExecutionEngine:
    """The engine of backward, as `Variable._execution_engine`: programs ask it to call a function when the backward call
    that is running ends.
    """

    queue_callback = staticmethod(queue_callback)


class VariableMeta(type):
    """Every tensor is an instance of the old name."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=VariableMeta):
    """`Variable(data, requires_grad=False)`: a tensor over the memory of `data`, with no history.

    TypeError where `data` is no tensor, RuntimeError where its dtype can have no gradient.

    >>> import rushlight as torch
    >>> x = torch.autograd.Variable(torch.ones(2), requires_grad=True)
    >>> x, isinstance(x, torch.autograd.Variable)
    (tensor([1., 1.], requires_grad=True), True)
    """

    _execution_engine = _ExecutionEngine()

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        if volatile:
            warnings.warn(
                "volatile was removed and now has no effect. Use `with torch.no_grad():` instead.",
                UserWarning,
                stacklevel=2,
            )
        if data is None:
            data = rushlight.empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        made = data.detach()
        made.requires_grad = requires_grad
        return made
