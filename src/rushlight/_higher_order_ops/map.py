"""A function applied to each slice of tensors.

>>> import rushlight as torch
>>> from rushlight._higher_order_ops.map import map as map_
>>> map_(lambda x, y: x * y, torch.ones(3, 2), torch.arange(2.0))
tensor([[0., 1.],
        [0., 1.],
        [0., 1.]])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight._higher_order_ops.checks import kept_to, writing
from rushlight.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["map"]


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """`f(x, *args)` for each slice `x` of `xs` along dim 0, the results stacked along dim 0.

    - `xs`: a tensor or a tree of them, with one size along dim 0, more than none
    - `f` gives a tensor or a tree of them; gradients go to `xs`, `args` and what `f` closes over

    RuntimeError for other arguments, `UncapturedHigherOrderOpError` where a result is an argument or a view of one.
    """
    if not callable(f):
        raise RuntimeError(f"f must be a callable, but got {f}")
    leaves, shape = tree_flatten(xs)
    if not leaves or any(not isinstance(leaf, rushlight.Tensor) for leaf in leaves):
        raise RuntimeError(f"Mapped xs can only consist of tensors. Got xs {leaves}.")
    shapes = [leaf.shape for leaf in leaves]
    count = shapes[0][0]
    if any(each[0] != count for each in shapes):
        raise RuntimeError(f"Leading dimensions of mapped xs must be consistent. Got shapes {shapes}.")
    if count == 0:
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    mode = writing("map_impl")
    if mode is not None:
        given, outer = tree_flatten(args)

        def row(*values: Any) -> Any:
            return f(
                tree_unflatten(list(values[: len(leaves)]), shape), *tree_unflatten(list(values[len(leaves) :]), outer)
            )

        results, structure = mode.control("map_impl", row, list(leaves), list(given))
        return tree_unflatten(results, structure)
    stacked: list[Any] = []
    for index in range(count):
        x = tree_unflatten([leaf[index] for leaf in leaves], shape)
        made, found = tree_flatten(kept_to("torch.ops.higher_order.map_impl", f, (x, *args), (xs,)))
        if any(not isinstance(leaf, rushlight.Tensor) for leaf in made):
            raise RuntimeError(f"Expected all leaves to be of torch.Tensor type, but f gave {made}")
        stacked.append(made)
    return tree_unflatten([rushlight.stack(parts) for parts in zip(*stacked, strict=True)], found)
