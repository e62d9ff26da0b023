"""Hooks during backward: of tensors, before and after nodes; and retained gradients.

Hooks see None for a gradient that is not defined, and may not replace it.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from rushlight._engine.autograd.node import AccumulateGrad, Node
from rushlight._engine.core.tensor import Tensor, meta_of
from rushlight._engine.dispatch_types.base import DispatchType

__all__ = [
    "after_node",
    "before_node",
    "checked_gradient",
    "retain",
    "retain_gradients",
    "run_leaf_hooks",
    "run_tensor_hooks",
    "stop_retaining",
]


def checked_gradient(hook: Any, before: Any, after: Any) -> Any:
    """The return value of a hook for one gradient; an error if it has another type or shape."""
    if after is None:
        return None
    if before is None:
        raise RuntimeError("can't replace a None gradient with a non-None value")
    if not isinstance(after, Tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(after).__name__}'")
    name = getattr(hook, "__name__", "<unknown>")
    old, new = before._spec, after._spec
    if old is new and type(before) is type(after):
        return after
    layouts = before.layout is after.layout
    if old.dtype is not new.dtype or old.device.type != new.device.type or not layouts:
        was, got = (
            x.type() if layouts and x._spec.device.type != "meta" else f"{x.dtype} ({x.layout}, {x.device})"
            for x in (before, after)
        )
        raise RuntimeError(f"hook '{name}' has changed the type of value (was {was} got {got})")
    if old.shape != new.shape:
        raise RuntimeError(f"hook '{name}' has changed the size of value")
    return after


def _checked_tuple(hook: Any, before: Sequence[Any], after: Any) -> list[Any]:
    """The same for all gradients of a node."""
    if type(after) is not tuple:
        raise TypeError(f"expected tuple, but hook returned '{type(after).__name__}'")
    if len(after) != len(before):
        name = getattr(hook, "__name__", "<unknown>")
        raise RuntimeError(
            f"hook '{name}' has returned an incorrect number of values (got {len(after)}, but expected {len(before)})"
        )
    return [checked_gradient(hook, a, b) for a, b in zip(before, after, strict=True)]


def _hooked(hooks: Mapping[int, Any], grad: Any) -> Any:
    """The gradient after all hooks of one tensor."""
    for hook in list(hooks.values()):
        replaced = hook(grad)
        if replaced is not None:
            grad = checked_gradient(hook, grad, replaced)
    return grad


def run_leaf_hooks(node: AccumulateGrad, grads: list[Any]) -> None:
    """Send a leaf's gradient through the hooks of the leaf, in place."""
    variable = node._variable()
    hooks = variable._autograd_meta.hooks if variable is not None and variable._autograd_meta is not None else None
    if hooks:
        grads.append(_hooked(hooks, grads.pop()))


def run_tensor_hooks(extra: Any, grads: list[Any]) -> None:
    """Send the gradients of a node's results through the hooks of these tensors, in place; store those that tensors
    retain.
    """
    if extra.tensor_hooks is not None:
        for number, hooks in sorted(extra.tensor_hooks.items()):
            if number < len(grads):
                grads[number] = _hooked(hooks, grads[number])
    if extra.retain is not None:
        retain_gradients(extra.retain, grads)


def before_node(hooks: Mapping[int, Any], grads: Sequence[Any]) -> list[Any]:
    """The gradients of a node's results after its pre-hooks."""
    found = list(grads)
    for hook in list(hooks.values()):
        replaced = hook(tuple(found))
        if replaced is not None:
            found = _checked_tuple(hook, found, replaced)
    return found


def after_node(node: Node, hooks: Mapping[int, Any], found: Sequence[Any], given: tuple[Any, ...]) -> list[Any]:
    """The results of a node after its post-hooks, which also see `given`, the gradients that the node got."""
    found = list(found)
    for hook in list(hooks.values()):
        shown = tuple(node._shown(found))
        replaced = hook(shown, given)
        if replaced is not None:
            found = node._hidden(_checked_tuple(hook, shown, replaced))
    return found


# ***** retained gradients *****


def retain(x: Tensor) -> None:
    """Let the node of a non-leaf store the gradient in its `.grad`."""
    assert x._node is not None
    meta, extra = meta_of(x), x._node._more()
    meta.retains = True
    if extra.retain is None:
        extra.retain = {}
    extra.retain[meta.output_nr] = weakref.ref(x)


def stop_retaining(x: Tensor) -> bool:
    """Stop retaining the gradient of `x` at its present node, before `x` gets another; returns whether it was retained."""
    extra = x._node._extra if x._node is not None else None
    return extra is not None and extra.retain is not None and extra.retain.pop(meta_of(x).output_nr, None) is not None


def retain_gradients(retained: Mapping[int, Any], grads: Sequence[Any]) -> None:
    """Add gradients to `.grad` of the tensors that retain them."""
    for number, reference in retained.items():
        tensor = reference()
        grad = grads[number] if number < len(grads) else None
        if tensor is None or grad is None:
            continue
        meta = meta_of(tensor)
        if meta.grad is None:
            meta.grad = (
                grad.clone()
                if isinstance(grad, DispatchType)
                else grad.contiguous()
                if not grad._spec.contiguous
                else grad.clone()
            )
        else:
            meta.grad = grad + meta.grad if isinstance(meta.grad, DispatchType) else meta.grad + grad
