"""Gradients of operators without a formula: one call of the package's own, `rushlight.<operator>_backward`, that runs
the derived derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight._interface.autograd import Node, check_writable, edge_of, meta_of, rebase
from rushlight._interface.base import tree_flatten, tree_unflatten
from rushlight.library.aten.calls import redispatch
from rushlight.library.aten.functions import Opaque
from rushlight.library.aten.tables import plain_forms
from rushlight.library.aten.vjps import pulled

__all__ = ["Call", "DerivedNode", "check_version", "recorded", "version_of"]

_BACKWARD: dict[Any, Opaque] = {}


class Call:
    """The arguments of a call for its derivative; RuntimeError where one has been changed in place since."""

    __slots__ = ("args", "edges", "kwargs", "op", "places", "versions")

    edges: list[int]  # which edges of a node the gradients are for

    def __init__(
        self, op: Any, args: Sequence[Any], kwargs: dict[str, Any], inputs: Sequence[Any] | None = None
    ) -> None:
        """`inputs`: the tensors behind a node's edges, where these are not just those that want a gradient."""
        self.op, self.args, self.kwargs = op, list(args), dict(kwargs)
        leaves = self.leaves()
        self.versions = [version_of(t) for t in leaves]
        self.places = [i for i, t in enumerate(leaves) if isinstance(t, rushlight.Tensor) and t.requires_grad]
        self.edges = list(range(len(self.places)))
        if inputs is not None:
            edges: dict[int, list[int]] = {}  # a tensor that is given twice has two
            for edge, tensor in enumerate(inputs):
                edges.setdefault(id(tensor), []).append(edge)
            self.places = [i for i in self.places if id(leaves[i]) in edges]
            self.edges = [edges[id(leaves[i])].pop(0) for i in self.places]

    def leaves(self) -> list[Any]:
        """The arguments, one after another."""
        return tree_flatten((self.args, self.kwargs))[0]

    def wanting(self) -> list[Any]:
        """The tensors that want a gradient."""
        leaves = self.leaves()
        return [leaves[i] for i in self.places]

    def gradients(self, grads: Sequence[Any]) -> list[Any]:
        """The gradients of the tensors that want one."""
        for tensor, version in zip(self.leaves(), self.versions, strict=True):
            check_version(tensor, version, self.op)
        return list(backward(self.op)(list(grads), self.args, self.kwargs, self.places))


def version_of(value: Any) -> int:
    """How often a tensor has been changed in place; 0 for inference tensors and other values."""
    return value._version if isinstance(value, rushlight.Tensor) and not value.is_inference() else 0


def check_version(tensor: Any, version: int, owner: Any) -> None:
    """RuntimeError where a tensor that `owner` keeps for its derivative has been changed in place since."""
    if version_of(tensor) != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[torch.{tensor.dtype.name} {list(tensor.shape)}], which is saved for {owner}, is at version {tensor._version}; "
            f"expected version {version} instead."
        )


class DerivedNode(Node):
    """A node whose backward is one opaque call."""

    __slots__ = ("call",)

    call: Call | None

    def _release(self) -> None:
        self.call = None

    def apply(self, grads: list[Any]) -> Sequence[Any]:
        if self.call is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time: specify retain_graph=True the first time"
            )
        if all(g is None for g in grads):
            return [None] * len(self._edges)
        return self.call.gradients(grads)


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
    if op.in_place:
        return _recorded_in_place(op, args, kwargs)
    made = redispatch(op, args, kwargs)
    outs = [t for t in (made if isinstance(made, (tuple, list)) else [made]) if isinstance(t, rushlight.Tensor)]
    floats = [t for t in outs if t.is_floating_point() or t.is_complex()]
    if not floats:
        return made
    node = _node(Call(op, args, kwargs), len(outs))
    for number, out in enumerate(outs):
        if any(out is t for t in floats) and out._node is None and not out._rg:
            out._node, out._rg = node, True
            if number:
                meta_of(out).output_nr = number
    return made


def _node(call: Call, count: int) -> DerivedNode:
    """The node of one call, which leads to the arguments that want a gradient."""
    node = DerivedNode()
    node._start([edge_of(t) for t in call.wanting()])
    node.call, node._n_outputs = call, count
    return node


def _recorded_in_place(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Change a tensor below autograd; its history goes on with the derivative of the operator's form out of place."""
    target = args[0] if args else None
    if not isinstance(target, rushlight.Tensor) or not (target.is_floating_point() or target.is_complex()):
        return redispatch(op, args, kwargs)
    plain = plain_forms(op)
    if not plain:
        raise NotImplementedError(
            f"{op}: the gradient of this change in place of a {type(target).__name__}; its form out of place, if there is one, is recorded"
        )
    check_writable(target, True)
    before = redispatch(rushlight.ops.aten.clone.default, (target,), {})
    before._rg, before._node = target._rg, target._node
    node = _node(Call(plain[0], (before, *args[1:]), kwargs), 1)
    redispatch(op, args, kwargs)
    rebase(target, node, 0)
    return target
