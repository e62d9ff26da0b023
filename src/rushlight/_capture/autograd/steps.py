"""Steps of a backward walk: nodes, sums, accumulation.  A trace runs these as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._engine.autograd.engine import accumulate_into, joined_gradients
from rushlight._engine.autograd.hooks import checked_gradient, run_leaf_hooks, run_tensor_hooks
from rushlight._engine.autograd.node import AccumulateGrad, Node
from rushlight._engine.core.state import STATE
from rushlight._engine.core.tensor import Tensor

__all__ = ["accumulated", "checked", "joined", "node_step", "run_as_it_is"]


def joined(held: Tensor | None, grad: Tensor | None) -> Tensor | None:
    """Sum of the gradient so far and another one; None stands for no gradient."""
    if held is None or grad is None:
        return grad if held is None else held
    return joined_gradients(held, grad)


def accumulated(leaf: Tensor, grad: Tensor | None) -> None:
    """Add a gradient to a leaf's, and run its hooks behind that."""
    accumulate_into(leaf, grad)


def checked(hook: Any, before: Tensor | None, after: Any) -> Tensor | None:
    """The gradient after a hook, which gave `after`."""
    return before if after is None else checked_gradient(hook, before, after)


def node_step(info: Any) -> Callable[[Sequence[Any], Sequence[Tensor | None]], Sequence[Tensor | None]]:
    """The backward of nodes of one signature, as a function of saved values and gradients."""

    def step(saved: Sequence[Any], grads: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        if all(g is None for g in grads):
            return [None] * len(info.outputs)
        return list(info.backward(list(saved), list(grads)))

    return step


def run_as_it_is(node: Node, grads: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    """A node as the engine runs it, hooks included.  A trace ends here."""
    held = list(grads)
    extra = node._extra
    if extra is not None and (extra.tensor_hooks is not None or extra.retain is not None):
        run_tensor_hooks(extra, held)
    elif isinstance(node, AccumulateGrad):
        run_leaf_hooks(node, held)
    found = STATE.task.run(node, held)
    return list(found) if found else [None] * len(node._edges)
