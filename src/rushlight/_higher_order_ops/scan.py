"""Running results of a function that carries something along.

>>> import rushlight as torch
>>> from rushlight._higher_order_ops import scan
>>> scan(lambda total, x: (total + x, total * x), torch.zeros(()), torch.arange(4.0))
(tensor(6.), tensor([0., 0., 2., 9.]))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight._higher_order_ops.checks import kept_to, leaves_of, same_metadata, writing
from rushlight.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["scan"]


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> tuple[Any, Any]:
    """`carry, y = combine_fn(carry, x)` for each slice `x` of `xs` along `dim`: the last carry, and all `y` stacked.

    - `init`: a tensor or a tree of them, the first carry; `combine_fn` gives carries of the same shapes and dtypes
    - `xs`: a tensor or a tree of them, with one size along `dim`; without tensors the carry is `init` and there are no
      `y`

    With `reverse` the last slice comes first.  The `y` are stacked along `dim` as well.  Gradients go to `init`,
    `xs` and what `combine_fn` closes over.  RuntimeError for other arguments,
    `UncapturedHigherOrderOpError` where carries do not fit or a result is an argument or a view of one.
    """
    if not callable(combine_fn):
        raise RuntimeError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"Reverse must be a bool, but got {type(reverse)}")
    carry, carry_shape = tree_flatten(init)
    if not carry:
        raise RuntimeError("scan() operator requires init leaves.")
    for leaf in carry:
        if not isinstance(leaf, rushlight.Tensor):
            raise RuntimeError(f"All init leaves must be a Tensor but got {leaf}")
    leaves, shape = tree_flatten(xs)
    if not leaves:
        return init, xs
    leaves, count = _slices(leaves, dim)
    if writing("scan") is not None:
        return _written(combine_fn, (carry, carry_shape), (leaves, shape), dim, reverse)
    stacked: list[Any] = []
    out_shape: Any = None
    for index in reversed(range(count)) if reverse else range(count):
        x = tree_unflatten([leaf[index] for leaf in leaves], shape)
        carry, made, out_shape = _stepped(combine_fn, carry, carry_shape, x)
        stacked.append(made)
    if reverse:
        stacked.reverse()
    results = [rushlight.stack(parts, dim) for parts in zip(*stacked, strict=True)]
    return tree_unflatten(carry, carry_shape), tree_unflatten(results, out_shape)


def _written(combine_fn: Callable[..., Any], init: Any, xs: Any, dim: int, reverse: bool) -> tuple[Any, Any]:
    """A call that is written down: along the first dim, from its start."""
    (carry, carry_shape), (leaves, shape) = init, xs
    leaves = [leaf.flip([0]) for leaf in leaves] if reverse else leaves

    def combine(*values: Any) -> Any:
        held = tree_unflatten(list(values[: len(carry)]), carry_shape)
        return combine_fn(held, tree_unflatten(list(values[len(carry) :]), shape))

    made, structure = writing("scan").control("scan", combine, list(carry), list(leaves), None)
    last, stacked = made[: len(carry)], made[len(carry) :]
    stacked = [s.flip([0]) for s in stacked] if reverse else stacked
    return tree_unflatten([*last, *[s.movedim(0, dim) if dim else s for s in stacked]], structure)


def _slices(leaves: list[Any], dim: int) -> tuple[list[Any], int]:
    """The tensors with `dim` first, and its size."""
    rank = leaves[0].ndim
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    dim %= rank
    for leaf in leaves:
        if not isinstance(leaf, rushlight.Tensor):
            raise RuntimeError(f"All xs leaves must be a Tensor but got {leaf}")
        if leaf.ndim <= dim or leaf.shape[dim] == 0:
            raise RuntimeError("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")
    if len({leaf.shape[dim] for leaf in leaves}) > 1:
        raise RuntimeError(
            f"All xs leaves must have one size along dim {dim}, but got {[tuple(leaf.shape) for leaf in leaves]}"
        )
    return [leaf.movedim(dim, 0) if dim else leaf for leaf in leaves], leaves[0].shape[dim]


def _stepped(
    combine_fn: Callable[[Any, Any], Any], carry: list[Any], shape: Any, x: Any
) -> tuple[list[Any], list[Any], Any]:
    """One step: the carry's leaves, the result's leaves, and their structure."""
    found = kept_to("torch.ops.higher_order.scan", combine_fn, (tree_unflatten(carry, shape), x))
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise RuntimeError(f"Expected combine_fn to give a carry and a result, but got {found}")
    new, made = found
    same_metadata("torch.ops.higher_order.scan", "init", carry, "carry", leaves_of(new))
    results, out_shape = tree_flatten(made)
    return leaves_of(new), results, out_shape
