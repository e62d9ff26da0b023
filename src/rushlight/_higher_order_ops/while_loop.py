"""`torch.while_loop`: a function applied to tensors as long as another one says so.

>>> import rushlight as torch
>>> torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), torch.ones(2)))
(tensor(3), tensor([8., 8.]))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight._higher_order_ops.checks import batched, holds_for_any, kept_to, leaves_of, same_metadata, writing
from rushlight.compiler.errors import UncapturedHigherOrderOpError
from rushlight.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["while_loop"]


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """`carried = body_fn(*carried)` as long as `cond_fn(*carried)` holds; what is carried at the end, in the structure
    of `body_fn`'s results.

    - `carried_inputs`: a tuple or list of tensors, numbers, and tuples, lists and dicts of them
    - `cond_fn` gives a bool or a tensor with one element; under `vmap` each item stops by itself
    - `body_fn` gives as many values with the same shapes, dtypes and devices

    Gradients go through the iterations that ran.  RuntimeError for arguments that are no functions or no tuple,
    `UncapturedHigherOrderOpError` for results that do not fit and for functions that change or give back what they are
    given.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(
            f"Expect carried_inputs to be a tuple or list of possibly nested values, but got {type(carried_inputs)}."
        )
    mode = writing("while_loop")
    if mode is not None:
        return mode.control("while_loop", cond_fn, body_fn, carried_inputs)
    carried: Any = tuple(carried_inputs)
    ahead = kept_to("torch.while_loop", cond_fn, carried)
    if batched(ahead):
        return _each(cond_fn, body_fn, carried)
    while _holds(ahead):
        carried = _stepped(body_fn, carried)
        ahead = kept_to("torch.while_loop", cond_fn, carried)
    return carried


def _holds(ahead: Any) -> bool:
    if isinstance(ahead, rushlight.Tensor) and ahead.numel() != 1:
        raise UncapturedHigherOrderOpError(
            f"Expected cond_fn to return a bool or a single-element tensor, but got {ahead}."
        )
    if not isinstance(ahead, (rushlight.Tensor, bool, int)):
        raise UncapturedHigherOrderOpError(
            f"Expected cond_fn to return a bool or a single-element tensor, but got {ahead}."
        )
    return bool(ahead)


def _stepped(body_fn: Callable[..., Any], carried: Any) -> Any:
    """Carried values after one iteration."""
    found = kept_to("torch.while_loop", body_fn, carried)
    if not isinstance(found, (tuple, list)):
        found = (found,)
    same_metadata("torch.while_loop", "body_fn_output", leaves_of(found), "carried_inputs", leaves_of(carried))
    return found


def _each(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: Any) -> Any:
    """Iterations until no item of a batch goes on; those that stopped keep what they carry."""
    while True:
        ahead = kept_to("torch.while_loop", cond_fn, carried).reshape(()).bool()
        if not holds_for_any(ahead):
            return carried
        new, shape = tree_flatten(_stepped(body_fn, carried))
        old = leaves_of(carried)
        carried = tree_unflatten([rushlight.where(ahead, one, two) for one, two in zip(new, old, strict=True)], shape)
