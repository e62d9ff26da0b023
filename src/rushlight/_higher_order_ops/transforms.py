"""Function transforms as modules of captured graphs."""

from __future__ import annotations

import types
from typing import Any

from rushlight import Tensor, func
from rushlight._interface.base import tree_flatten
from rushlight.nn.modules.module import Module

__all__ = ["TransformedGraph"]


class TransformedGraph(Module):
    """A transform of `torch.func` over a graph: `body` takes the tensors of the function's arguments and those that the
    function reads besides, and gives the tensors of its results.

    Called with the tensors of the arguments, then with those that the function reads.
    """

    def __init__(self, transform: Any, body: Module) -> None:
        super().__init__()
        self.transform, self.body = transform, body
        self.count = 1 + max([place for place, _ in transform.arguments.leaves if place is not None], default=-1)

    def extra_repr(self) -> str:
        """The transform and its options."""
        return ", ".join([self.transform.name, *(f"{key}={value!r}" for key, value in self.transform.options.items())])

    def forward(self, *tensors: Any) -> Any:
        """The tensors of the results, and the linear maps among them, flat."""
        captured = tensors[self.count :]

        def function(*args: Any, **kwargs: Any) -> Any:
            given = {id(x): x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)}
            return self.transform.results.filled(self.body(*given.values(), *captured))

        args, kwargs = self.transform.arguments.filled(tensors)
        apply = getattr(func, self.transform.name)
        if self.transform.name in ("jvp", "vjp", "linearize"):
            made = apply(function, *args, **kwargs)
        else:
            made = apply(function, **self.transform.options)(*args, **kwargs)
        return tuple([x for x in tree_flatten(made)[0] if isinstance(x, (Tensor, types.FunctionType))])
