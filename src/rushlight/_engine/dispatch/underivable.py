"""Plans of calls that have no derivative: they run, and backward says what is missing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._engine.autograd.node import Node
from rushlight._engine.core.tensor import Tensor, edge_of, meta_of
from rushlight._engine.indexing.inplace import check_writable, rebase
from rushlight._ops.table import Operator

__all__ = ["UnderivableNode", "underivable", "underivable_inplace", "underived"]


class UnderivableNode(Node):
    """The node of a call without a derivative: it raises an error when backward reaches it."""

    __slots__ = ("error",)
    error: Exception

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        raise self.error


@functools.cache
def _class(name: str) -> type[UnderivableNode]:
    """The class of such nodes with this name; users see it as `type(t.grad_fn).__name__`."""
    return type(
        name, (UnderivableNode,), {"__slots__": (), "_namespace": "torch::autograd::" if name == _NOT_AT_ALL else ""}
    )


_NOT_AT_ALL = "NotImplemented"  # PyTorch's name of nodes of operators without any derivative


def _node(edges: Sequence[Any], op: Operator, name: str, why: str, node: str) -> UnderivableNode:
    """As in PyTorch the error is a RuntimeError for an operator that is declared to have no derivative, and a
    NotImplementedError for one that has some, of which this one is missing; that one's node bears the operator's name.
    """
    made = _class(_NOT_AT_ALL if op.underivable else node)()
    made._start(edges)
    kind = RuntimeError if op.underivable else NotImplementedError
    made.error = kind(f"derivative for aten::{name} is not implemented: {why}")
    return made


def underived(name: str, edges: Sequence[Any]) -> UnderivableNode:
    """The node of a function that has no derivative whatsoever and no row in the operator table."""
    made = _class(_NOT_AT_ALL)()
    made._start(edges)
    made.error = RuntimeError(f"derivative for {name} is not implemented")
    return made


def underivable(plan: Callable[..., Any], op: Operator, why: str, wrt: Sequence[int], node: str) -> Callable[..., Any]:
    """A plan whose results belong to the graph, but whose backward raises."""

    def run(*inputs: Any) -> Any:
        made = plan(*inputs)
        end = _node([edge_of(inputs[i]) for i in wrt], op, op.name, why, node)
        for number, out in enumerate(made if isinstance(made, tuple) else (made,)):
            if out._spec.dtype.is_floating_point or out._spec.dtype.is_complex:
                out._node, out._rg = end, True
                if number:  # gradients of several results need no sum before the error
                    meta_of(out).output_nr = number
        return made

    return run


def underivable_inplace(
    plan: Callable[..., Any], op: Operator, why: str, wrt: Sequence[int], node: str
) -> Callable[..., Any]:
    """A plan of an in-place form, whose target belongs to the graph afterwards, but whose backward raises."""

    def run(*inputs: Any) -> Any:
        check_writable(inputs[0], True)
        edges = [edge_of(inputs[i]) for i in wrt]
        made = plan(*inputs)
        own = wrt.index(0) if 0 in wrt else None
        rebase(made, _node(edges, op, op.name + "_", why, node), own)
        return made

    return run
