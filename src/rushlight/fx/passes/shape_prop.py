"""`torch.fx.passes.shape_prop`: run a graph once and keep what each value was like in `node.meta`.

>>> import rushlight as torch
>>> module = torch.fx.symbolic_trace(torch.nn.Linear(2, 3))
>>> _ = ShapeProp(module).propagate(torch.ones(4, 2))
>>> [tuple(node.meta["tensor_meta"].shape) for node in module.graph.nodes][-1]
(4, 3)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight._interface.base import LazyModule
from rushlight.fx.interpreter import Interpreter
from rushlight.fx.node import Node, map_aggregate

fakes: Any = LazyModule("rushlight.fx.passes.fake_tensor_prop")

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """Facts about a tensor without its values: shape, dtype, whether it wants a gradient, strides, memory format,
    quantisation.
    """

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    """See `TensorMetadata`."""
    formats = (rushlight.contiguous_format, rushlight.channels_last, rushlight.channels_last_3d)
    fits = {rushlight.channels_last: 4, rushlight.channels_last_3d: 5}
    possible = [each for each in formats if fits.get(each, result.dim()) == result.dim()] if include_contiguity else []
    layout = next((each for each in possible if result.is_contiguous(memory_format=each)), None)
    return TensorMetadata(
        result.shape, result.dtype, result.requires_grad, result.stride(), layout, result.is_quantized, {}
    )


class ShapeProp(Interpreter):
    """Runs a graph module for some arguments; then `node.meta` has "type", and for tensors "tensor_meta" (nested as the
    value is).  With a `FakeTensorMode` it runs on fake tensors, and nothing is computed.
    """

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        super().__init__(gm)
        self.fake_mode = fake_mode

    def run_node(self, n: Node) -> Any:
        """Run a node and keep what its value is like."""
        result = super().run_node(n)
        found = False

        def extract(value: Any) -> Any:
            nonlocal found
            if not isinstance(value, Tensor):
                return value
            found = True
            return _extract_tensor_metadata(value)

        meta = map_aggregate(result, extract)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph; what it returns."""
        if self.fake_mode is None:
            return super().run(*args)
        with self.fake_mode:
            return super().run(*[fakes.faked(self.fake_mode, a) for a in args])

    def fetch_attr(self, target: str) -> Any:
        """An attribute of a module; its fake form in a fake mode."""
        held = super().fetch_attr(target)
        return held if self.fake_mode is None else fakes.faked(self.fake_mode, held)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call a module; with fake parameters in a fake mode."""
        if self.fake_mode is None:
            return super().call_module(target, args, kwargs)
        return fakes.fake_call(self.fake_mode, super().fetch_attr(target), args, kwargs)
