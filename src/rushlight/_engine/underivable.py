"""Plans of calls that have no derivative: they run, and backward says what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._engine.autograd.node import Node
from rushlight._engine.inplace import check_writable, rebase
from rushlight._engine.tensor import Tensor, edge_of
from rushlight._ops.table import Operator

__all__ = ["NotImplementedNode", "underivable", "underivable_inplace"]


class NotImplementedNode(Node):
    """Stands for a derivative that does not exist; says so when backward arrives.

    As in PyTorch the error is a RuntimeError for an operator that has none at all (its own gradient rule says so), else a NotImplementedError.
    """

    __slots__ = ("error",)
    _namespace = "torch::autograd::"

    def __init__(self, edges: Sequence[Any], op: Operator, name: str, why: str) -> None:
        self._start(edges)
        kind = NotImplementedError if op.gradient_rule is None else RuntimeError
        self.error = kind(f"derivative for aten::{name} is not implemented: {why}")

    def name(self) -> str:
        return self._namespace + "NotImplemented"

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        raise self.error


def underivable(plan: Callable[..., Any], op: Operator, why: str, wrt: Sequence[int]) -> Callable[..., Any]:
    """A plan whose results belong to the graph, but whose backward raises."""

    def run(*inputs: Any) -> Any:
        made = plan(*inputs)
        node = NotImplementedNode([edge_of(inputs[i]) for i in wrt], op, op.name, why)
        for out in made if isinstance(made, tuple) else (made,):
            if out._spec.dtype.is_floating_point or out._spec.dtype.is_complex:
                out._node, out._rg = node, True
        return made

    return run


def underivable_inplace(plan: Callable[..., Any], op: Operator, why: str, wrt: Sequence[int]) -> Callable[..., Any]:
    """A plan of an in-place form, whose target belongs to the graph afterwards, but whose backward raises."""

    def run(*inputs: Any) -> Any:
        check_writable(inputs[0], True)
        edges = [edge_of(inputs[i]) for i in wrt]
        made = plan(*inputs)
        own = wrt.index(0) if 0 in wrt else None
        rebase(made, NotImplementedNode(edges, op, op.name + "_", why), own)
        return made

    return run
