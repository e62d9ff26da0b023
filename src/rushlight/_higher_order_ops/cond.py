"""`torch.cond`: one of two functions, by a number in a tensor.

>>> import rushlight as torch
>>> x = torch.ones(2)
>>> torch.cond(x.sum() > 1, lambda x: x + 1, lambda x: x - 1, (x,))
tensor([2., 2.])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight._higher_order_ops.checks import batched, kept_to, leaves_of, refuse_uncaptured, writing
from rushlight._interface.base import warn_user
from rushlight.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["cond"]


def cond(
    pred: bool | int | float | rushlight.Tensor,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: tuple[Any, ...] | list[Any] = (),
) -> Any:
    """`true_fn(*operands)` where `pred` holds, else `false_fn(*operands)`; gradients go through the function that ran.

    - `pred`: a number, a tensor with one element, or a condition on sizes that only elements tell.  Under `vmap` each
      item has its own: both functions run, and each item takes its result.
    - `operands`: tensors, in tuples, lists and dicts

    RuntimeError for other arguments.  A function that changes an operand, or gives one back, is refused
    (`UncapturedHigherOrderOpError`); the function that does not run is not looked at.
    """
    if not isinstance(pred, (bool, int, float, rushlight.Tensor, rushlight.SymBool)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if isinstance(pred, rushlight.Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)) or any(
        not isinstance(leaf, rushlight.Tensor) for leaf in leaves_of(operands)
    ):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, "
            f"but got {operands}."
        )
    mode = writing("cond")
    if mode is not None and not isinstance(pred, rushlight.Tensor) and type(pred) in (bool, int, float):
        warn_user(
            "Pred is a Python constant: torch.cond keeps one of the branches; a boolean tensor as predicate keeps both",
            UserWarning,
        )
        mode = None
    if mode is not None and isinstance(pred, (rushlight.Tensor, rushlight.SymBool)):
        return mode.control("cond", pred, true_fn, false_fn, operands)
    if batched(pred):
        return _each(pred, true_fn, false_fn, operands)
    found = kept_to("torch.cond", true_fn if pred else false_fn, operands)
    for leaf in leaves_of(found):
        if not isinstance(leaf, rushlight.Tensor) and type(leaf) is not int:
            refuse_uncaptured(
                "torch.cond",
                "torch.cond: unsupported branch return type (constant non-int)",
                "Constants returned from branches must be ints.",
            )
    return found


def _each(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any) -> Any:
    """Both functions run, and each item of a batch takes what its predicate says."""
    taken, shape = tree_flatten(kept_to("torch.cond", true_fn, operands))
    other, found = tree_flatten(kept_to("torch.cond", false_fn, operands))
    if shape != found:
        raise RuntimeError(
            f"Unmatched output spec from torch.cond branches: true branch tree_spec {shape} vs false branch tree_spec {found}."
        )
    held = pred.reshape(()).bool()
    return tree_unflatten([rushlight.where(held, one, two) for one, two in zip(taken, other, strict=True)], shape)


cond.__module__ = "rushlight"
