"""The graph that backward walks: nodes, hooks for saved tensors, hooks over several gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rushlight import Tensor
from rushlight._engine.autograd.node import GradientEdge, Node
from rushlight._interface.autograd import edge_of, split_edge
from rushlight._interface.base import trace_marks
from rushlight._interface.tensors import SAVED_HOOKS, STATE

__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version",
    "region_activation_memory_budget", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks", "set_override_stale_capture_stream",
    "set_warn_on_accumulate_grad_stream_mismatch",
]  # fmt: skip

_FORBIDDEN: list[str] = []


def saved_tensors_hooks_error() -> str | None:
    """The message of `disable_saved_tensors_hooks`; None outside of it."""
    return _FORBIDDEN[-1] if _FORBIDDEN else None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The node and output number through which the gradient of `tensor` passes; RuntimeError for a tensor that wants
    none.

    >>> import rushlight as torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> edge = torch.autograd.graph.get_gradient_edge(x.exp())
    >>> edge.node.name(), edge.output_nr
    ('ExpBackward0', 0)
    """
    edge = edge_of(tensor)
    if edge is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    # The node of a leaf does not keep the leaf alive: the edge does.
    return GradientEdge(*split_edge(edge), tensor if tensor._node is None else None)


def increment_version(tensor: Any) -> None:
    """Tell autograd that the memory of a tensor (or of several) was changed behind its back."""
    for each in (tensor,) if isinstance(tensor, Tensor) else tensor:
        if each._storage is not None:
            each._storage.version += 1


# ***** saved tensors *****


class saved_tensors_hooks:
    """Inside, `pack_hook(tensor)` decides what is kept for backward, and `unpack_hook(kept)` gives the tensor back.

    Of nested hooks the innermost apply.  `pack_hook` runs without gradients and may not change its argument
    (RuntimeError); what `unpack_hook` returns must be a tensor (TypeError).

        >>> import rushlight as torch
        >>> x = torch.ones(2, requires_grad=True)
        >>> with torch.autograd.graph.saved_tensors_hooks(lambda t: t.tolist(), torch.tensor):
        ...     y = x * x
        >>> y.sum().backward()
        >>> x.grad
        tensor([2., 2.])
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> Any:
        if _FORBIDDEN:
            raise RuntimeError(_FORBIDDEN[-1])
        for name, hook in (("pack_hook", self.pack_hook), ("unpack_hook", self.unpack_hook)):
            if not callable(hook):
                raise TypeError(f"saved_tensors_hooks(): argument '{name}' must be callable, not {type(hook).__name__}")
        STATE.saved_hooks.append((self.pack_hook, self.unpack_hook))
        STATE.word |= SAVED_HOOKS

    def __exit__(self, *exc: object) -> None:
        STATE.saved_hooks.pop()
        if not STATE.saved_hooks:
            STATE.word &= ~SAVED_HOOKS


class save_on_cpu(saved_tensors_hooks):
    """Keep saved tensors on the CPU; there they already are, so this copies nothing."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda x: x, lambda x: x)


@contextmanager
@trace_marks.changes_later_calls
def disable_saved_tensors_hooks(error_message: str) -> Any:
    """Inside, `saved_tensors_hooks` raises RuntimeError with this message; RuntimeError at once where hooks are in
    force.
    """
    if STATE.saved_hooks:
        raise RuntimeError(error_message)
    _FORBIDDEN.append(error_message)
    try:
        yield
    finally:
        _FORBIDDEN.pop()


class _Copies(saved_tensors_hooks):
    """Saved tensors as copies, so that the originals may change."""

    open = False

    def __init__(self) -> None:
        self.held: dict[Any, Tensor] = {}
        super().__init__(self._copy, self._copied)

    def clear(self) -> None:
        """Forget the copies: backward through what was recorded raises from now on."""
        self.held.clear()

    def _copy(self, tensor: Tensor) -> Any:
        storage = tensor._storage
        key = (id(storage), storage.version if storage is not None else 0, tensor._ptr, tensor._spec)
        if key not in self.held:
            self.held[key] = tensor.detach().clone()
        return key, storage  # the storage is kept, so that its identity stays its own

    def _copied(self, packed: Any) -> Tensor:
        if packed[0] not in self.held:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was originally recorded."
            )
        return self.held[packed[0]]


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[Any]:
    """Inside, tensors that were saved for backward may be changed in place: backward, which must run inside too, sees
    what was saved.

    Every saved tensor is copied once when it is saved.  AssertionError for a backward outside; RuntimeError for a
    context in a context.

        >>> import rushlight as torch
        >>> x = torch.ones(2, requires_grad=True)
        >>> with torch.autograd.graph.allow_mutation_on_saved_tensors():
        ...     a = x.clone()
        ...     y = a ** 2
        ...     _ = a.zero_()
        ...     y.sum().backward()
        >>> x.grad
        tensor([2., 2.])
    """
    if _Copies.open:
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    copies = _Copies()
    _Copies.open = True
    try:
        with copies:
            yield copies
    finally:
        _Copies.open = False
        copies.clear()


def region_activation_memory_budget(budget: float) -> Any:
    """How much of its activations a compiled region keeps: RuntimeError, since nothing is compiled here; ValueError
    outside of [0, 1].
    """
    if not 0 <= budget <= 1:
        raise ValueError(f"torch.autograd.graph.region_activation_memory_budget: must be in [0, 1], got {budget}")
    raise RuntimeError(
        "torch.autograd.graph.region_activation_memory_budget can only be used inside a torch.compile region; it has no effect in eager mode."
    )


@trace_marks.changes_later_calls
def set_override_stale_capture_stream(enabled: bool) -> None:
    """A setting for the capture of CUDA graphs, of which there are none: accepted, without effect."""


@trace_marks.changes_later_calls
def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """A setting for streams of accelerators, of which there are none: accepted, without effect."""


# ***** hooks over several gradients *****


class _MultiHandle:
    """Takes several hooks away at once."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _MultiHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all") -> _MultiHandle:
    """`fn(grads)` once all gradients that a backward computes are there (`mode="all"`; None for the others), or
    `fn(grad)` at the first (`"any"`).

    ValueError for another mode, AssertionError for a tensor that wants no gradient.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    given = list(tensors)
    edges = [edge_of(t) for t in given]
    if any(e is None for e in edges):
        raise AssertionError("Expected gradient function to be set")
    nodes = [split_edge(e)[0] for e in edges]
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

    return _MultiHandle([t.register_hook(watch(i)) for i, t in enumerate(given)])
