"""The graph that backward walks: nodes, hooks for saved tensors, hooks over several gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

from rushlight._engine.autograd.node import GradientEdge, Node, split_edge
from rushlight._engine.convert import detach
from rushlight._engine.state import SAVED_HOOKS, STATE
from rushlight._engine.tensor import Tensor, edge_of

__all__ = ["GradientEdge", "Node", "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version", "register_multi_grad_hook", "save_on_cpu",
           "saved_tensors_hooks"]  # fmt: skip

_FORBIDDEN: list[str] = []


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The node and output number through which the gradient of `tensor` passes."""
    edge = edge_of(tensor)
    if edge is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(*split_edge(edge))


def increment_version(tensor: Any) -> None:
    """Tell autograd that the memory of a tensor (or of several) was changed behind its back."""
    for each in (tensor,) if isinstance(tensor, Tensor) else tensor:
        if each._storage is not None:
            each._storage.version += 1


class saved_tensors_hooks:
    """Inside, `pack_hook(tensor)` decides what is kept for backward, and `unpack_hook(kept)` gives the tensor back."""

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if _FORBIDDEN:
            raise RuntimeError(_FORBIDDEN[-1])
        STATE.saved_hooks.append((self._pack, self.unpack_hook))
        STATE.word |= SAVED_HOOKS

    def _pack(self, tensor: Tensor) -> Any:
        return self.pack_hook(detach(tensor) if tensor._node is None and not tensor._rg else tensor)

    def __exit__(self, *exc: object) -> None:
        STATE.saved_hooks.pop()
        if not STATE.saved_hooks:
            STATE.word &= ~SAVED_HOOKS


class save_on_cpu(saved_tensors_hooks):
    """Keep saved tensors on the CPU; there they already are, so this copies nothing."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda x: x, lambda x: x)


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Any:
    """Inside, `saved_tensors_hooks` raises RuntimeError with this message."""
    _FORBIDDEN.append(error_message)
    try:
        yield
    finally:
        _FORBIDDEN.pop()


class _Handles:
    """Takes several hooks away at once."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self.handles = handles

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all") -> _Handles:
    """`fn(grads)` once all gradients that a backward computes are there (`mode="all"`; None for the others), or `fn(grad)` at the first (`"any"`)."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    given = list(tensors)
    nodes = [get_gradient_edge(t).node for t in given]
    key = object()

    def watch(number: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            task = STATE.task
            found = task.notes.setdefault(key, {})
            found[number] = grad
            if mode == "any":
                if len(found) == 1:
                    fn(grad)
            elif len(found) == sum(task.runs(node) for node in nodes):
                fn([found.get(i) for i in range(len(given))])

        return hook

    return _Handles([t.register_hook(watch(i)) for i, t in enumerate(given)])  # type: ignore[attr-defined]
