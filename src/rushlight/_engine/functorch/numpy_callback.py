"""Functions that NumPy computes over tensors' memory: its LAPACK and its Fourier transforms.

    (inverse,) = call_numpy("LinalgInvExBackward0", np.linalg.inv, [a], gradient)

Inputs on another device are copied to the host, and the outputs to the device of the first.  `gradient(grads, inputs,
outputs)` is written in tensor operations, so it can be differentiated again: then the outputs are computed anew from
the inputs, as part of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._engine.autograd.node import Node, check_attached
from rushlight._engine.core import convert
from rushlight._engine.core.creation import from_numpy
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import GRAD, STATE, TRANSFORMS
from rushlight._engine.core.tensor import Tensor, edge_of, meta_of
from rushlight._engine.dispatch_types.base import DispatchType

__all__ = ["NumpyCallbackNode", "call_numpy"]

Gradient = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Sequence[Any]]


class NumpyCallbackNode(Node):
    """The backward of one `call_numpy`: it keeps inputs and outputs, and the versions they had."""

    __slots__ = ("count", "gradient", "inputs", "outputs", "recompute", "versions")

    count: Any
    gradient: Any
    inputs: Any
    outputs: Any
    recompute: Any
    versions: Any

    @property
    def _n_outputs(self) -> int:  # type: ignore[override]
        return int(self.count)

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        if self.inputs is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
                "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
                "after calling backward."
            )
        for x, version, edge in zip(self.inputs, self.versions, self._edges, strict=True):
            check_attached(x, edge, self)
            if x._storage is not None and x._storage.version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"[{x.dtype} {list(x.shape)}], which is saved for {self.name()}, is at version {x._storage.version}; expected version {version} instead."
                )
        outputs = self.recompute() if STATE.word & GRAD else self.outputs
        found = self.gradient(grads, self.inputs, outputs)
        return [g if x._rg else None for g, x in zip(found, self.inputs, strict=True)]

    def _release(self) -> None:
        self.inputs = self.outputs = self.recompute = None


_CLASSES: dict[str, type[NumpyCallbackNode]] = {}


def _class(name: str) -> type[NumpyCallbackNode]:
    if name not in _CLASSES:
        _CLASSES[name] = type(name, (NumpyCallbackNode,), {"__slots__": ()})
    return _CLASSES[name]


def call_numpy(
    name: str, function: Callable[..., Any], inputs: Sequence[Tensor], gradient: Gradient | None
) -> list[Tensor]:
    """The results of `function`, called with the inputs as NumPy arrays; without `gradient` there is no derivative."""
    if HOOKS.asks and any(isinstance(x, DispatchType) for x in inputs):
        return TRANSFORMS["call_numpy"](name, function, inputs, gradient)
    for x in inputs:
        if x._storage is None:
            raise NotImplementedError(f"{name.removesuffix('Backward0')} on tensors without memory (device meta)")
    made = function(*(convert.numpy_of(x, force=True) for x in inputs))
    arrays = made if isinstance(made, tuple) else (made,)
    outs = [convert.to_device(from_numpy(np.array(a, order="C")), inputs[0].device) for a in arrays]
    if gradient is not None and STATE.word & GRAD and any(x._rg for x in inputs):
        node = _class(name)()
        node._start([edge_of(x) for x in inputs])
        node.count, node.gradient, node.inputs = len(outs), gradient, list(inputs)
        node.versions = [x._storage.version for x in inputs]
        node.outputs = [convert.detach(out) for out in outs]
        node.recompute = lambda: call_numpy(name, function, inputs, gradient)
        for number, out in enumerate(outs):
            if out._spec.dtype.is_floating_point or out._spec.dtype.is_complex:
                out._node, out._rg = node, True
                if number:
                    meta_of(out).output_nr = number
    return outs
