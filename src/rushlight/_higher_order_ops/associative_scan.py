"""Running results of an associative function, in a logarithmic number of steps.

>>> import rushlight as torch
>>> associative_scan(lambda a, b: a + b, torch.arange(5.0), dim=0)
tensor([ 0.,  1.,  3.,  6., 10.])

Source: Ladner and Fischer, "Parallel prefix computation" (1980).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight.func import vmap
from rushlight.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["associative_scan"]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
    disable_compile: bool = False,
) -> Any:
    """The running results of `combine_fn(a, b)` along a dim of each tensor in the tree `xs`, in tensors of its shape;
    with `reverse` from the end.

    `combine_fn` takes two trees as `xs` without that dim and gives one; it must be associative, and is called for many
    places at once, under `vmap`.  `combine_mode` ("pointwise" or "generic") says what else it may do; here it is the
    same.  Gradients go to `xs` and to what `combine_fn` closes over.

    ValueError for a tree without tensors, for sizes that differ and for another mode, IndexError for a dim that is not
    there, RuntimeError where `combine_fn` gives another tree or other shapes.
    """
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"Reverse must be a bool, but got {type(reverse)}")
    leaves, spec = tree_flatten(xs)
    leaves = _along(leaves, dim)

    def combined(left: list[Any], right: list[Any]) -> list[Any]:
        made, found = tree_flatten(combine_fn(tree_unflatten(left, spec), tree_unflatten(right, spec)))
        if found != spec:
            raise RuntimeError(f"The pytree of the output of combine_fn is {found}, and that of its arguments {spec}")
        for one, two in zip(made, left, strict=True):
            if one.shape != two.shape:
                raise RuntimeError(
                    f"combine_fn gives a tensor of shape {tuple(one.shape)} for one of shape {tuple(two.shape)}"
                )
        return made

    leaves = [leaf.flip(0) for leaf in leaves] if reverse else leaves
    results = _scan(vmap(combined), leaves)
    results = [result.flip(0) for result in results] if reverse else results
    return tree_unflatten([result.movedim(0, dim) for result in results], spec)


def _along(leaves: list[Any], dim: int) -> list[Any]:
    """The tensors with `dim` first, which has one size in all, more than 0."""
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    if any(not isinstance(leaf, rushlight.Tensor) for leaf in leaves):
        raise ValueError(f"All xs leaves must be a Tensor, but got {leaves}")
    rank = leaves[0].ndim
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    leaves = [leaf.movedim(dim, 0) for leaf in leaves]
    sizes = [leaf.shape[0] for leaf in leaves]
    if len(set(sizes)) > 1 or not sizes[0]:
        raise ValueError(f"all tensors need the same number of elements along dim {dim}, more than none; got {sizes}")
    return leaves


def _scan(combine: Callable[[list[Any], list[Any]], list[Any]], elements: list[Any]) -> list[Any]:
    """Running results along dim 0: of pairs first, and from those the places between."""
    count = elements[0].shape[0]
    if count < 2:
        return elements
    pairs = combine([e[0 : count - 1 : 2] for e in elements], [e[1::2] for e in elements])
    odd = _scan(combine, pairs)
    first = [e[:1] for e in elements]
    if count > 2:
        between = combine([o[: (count - 1) // 2] for o in odd], [e[2::2] for e in elements])
        even = [rushlight.cat([f, b]) for f, b in zip(first, between, strict=True)]
    else:
        even = first
    return [_interleaved(e, o) for e, o in zip(even, odd, strict=True)]


def _interleaved(even: Any, odd: Any) -> Any:
    """Items of both in turn; the first may have one more."""
    both = rushlight.stack([even[: odd.shape[0]], odd], 1).flatten(0, 1)
    return both if even.shape[0] == odd.shape[0] else rushlight.cat([both, even[-1:]])
