"""Gradients of operators without a formula: one call of the package's own, `rushlight.<operator>_backward`, that runs
the derived derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight._interface.autograd import Node, edge_of, meta_of
from rushlight._interface.base import tree_flatten, tree_unflatten
from rushlight.library.aten.calls import redispatch
from rushlight.library.aten.functions import Opaque
from rushlight.library.aten.vjps import pulled

__all__ = ["DerivedNode", "recorded"]

_BACKWARD: dict[Any, Opaque] = {}


class DerivedNode(Node):
    """A node whose backward is one opaque call."""

    __slots__ = ("inputs", "kept", "op", "places")

    op: Any
    kept: Any
    places: list[int]
    inputs: list[Any]

    def _release(self) -> None:
        self.kept = None

    def apply(self, grads: list[Any]) -> Sequence[Any]:
        if self.kept is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time: specify retain_graph=True the first time"
            )
        if all(g is None for g in grads):
            return [None] * len(self._edges)
        args, kwargs = self.kept
        return list(backward(self.op)(list(grads), list(args), dict(kwargs), self.places))


def backward(op: Any) -> Opaque:
    """The backward of an operator as an operator: (gradients, arguments, keywords, places) -> a gradient for each of the
    tensors at these places among the leaves of the arguments.
    """
    found = _BACKWARD.get(op)
    if found is None:

        def kernel(grads: Any, args: Any, kwargs: Any, places: Sequence[int]) -> Any:
            leaves, structure = tree_flatten((args, kwargs))

            def forward(*tensors: Any) -> Any:
                filled = list(leaves)
                for place, tensor in zip(places, tensors, strict=True):
                    filled[place] = tensor
                again, named = tree_unflatten(filled, structure)
                made = op.kernel(*again, **named)
                return [
                    t for t in (made if isinstance(made, (tuple, list)) else [made]) if isinstance(t, rushlight.Tensor)
                ]

            return tuple(pulled(forward, [leaves[p] for p in places], grads))

        found = _BACKWARD[op] = Opaque(kernel, f"{op._opname}_backward")
    return found


def recorded(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call an operator below autograd; results that can have a gradient get a `DerivedNode`."""
    made = redispatch(op, args, kwargs)
    outs = [t for t in (made if isinstance(made, (tuple, list)) else [made]) if isinstance(t, rushlight.Tensor)]
    floats = [t for t in outs if t.is_floating_point() or t.is_complex()]
    leaves = tree_flatten((list(args), dict(kwargs)))[0]
    places = [i for i, t in enumerate(leaves) if isinstance(t, rushlight.Tensor) and t.requires_grad]
    wanted = [leaves[i] for i in places]
    if not floats or op._opname.endswith("_") and not op._opname.endswith("__"):
        return made
    node = DerivedNode()
    node._start([edge_of(t) for t in wanted])
    node.op, node.kept, node.inputs, node.places = op, (args, kwargs), [], places
    node._n_outputs = len(outs)
    for number, out in enumerate(outs):
        if any(out is t for t in floats) and out._node is None and all(out is not w for w in wanted):
            out._node, out._rg = node, True
            if number:
                meta_of(out).output_nr = number
    return made
