"""`torch.fx.passes.fake_tensor_prop`: run a graph on fake tensors and keep what each node gives in `node.meta["val"]`.

>>> import rushlight as torch
>>> module = torch.fx.symbolic_trace(torch.nn.Linear(2, 3))
>>> _ = FakeTensorProp(module).propagate(torch.ones(4, 2))
>>> [node.meta["val"] for node in module.graph.nodes][-1]
FakeTensor(..., size=(4, 3), grad_fn=<AddmmBackward0>)
"""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import tree_map
from rushlight._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from rushlight.fx.interpreter import Interpreter
from rushlight.fx.node import Node

__all__ = ["FakeTensorProp", "fake_call", "faked"]


def faked(mode: FakeTensorMode, value: Any) -> Any:
    """A value with the fake forms of its tensors."""
    return tree_map(lambda v: mode.from_tensor(v) if isinstance(v, Tensor) else v, value)


def fake_call(mode: FakeTensorMode, module: Any, args: Any, kwargs: Any) -> Any:
    """Call a module with the fake forms of its parameters and buffers."""
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return rushlight.func.functional_call(module, {n: mode.from_tensor(t) for n, t in held.items()}, args, kwargs)


class FakeTensorProp(Interpreter):
    """Runs a graph module on fake tensors, in `mode` or one of its own; nothing is computed."""

    def __init__(self, module: Any, mode: FakeTensorMode | None = None) -> None:
        super().__init__(module)
        self._mode = FakeTensorMode() if mode is None else mode

    def run_node(self, n: Node) -> Any:
        """Run a node and keep its fake value."""
        result = super().run_node(n)
        if isinstance(result, (Tensor, int, float, bool, tuple, list)):
            n.meta["val"] = tree_map(
                lambda v: v.detach() if isinstance(v, FakeTensor) and not v.requires_grad else v, result
            )
        return result

    def fetch_attr(self, target: str) -> Any:
        """The fake form of what a module holds."""
        return faked(self._mode, super().fetch_attr(target))

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call a module with fake parameters."""
        return fake_call(self._mode, super().fetch_attr(target), args, kwargs)

    def propagate(self, *args: Any) -> Any:
        """Run the graph on the fake forms of arguments; what it returns."""
        return self.propagate_dont_convert_inputs(*[faked(self._mode, a) for a in args])

    def propagate_dont_convert_inputs(self, *args: Any) -> Any:
        """Run the graph on fake tensors."""
        with self._mode:
            return super().run(*args)
