"""`torch.fx._pytree`: flattening by a known shape, as functions generated for nested arguments do it."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from rushlight.utils._pytree import PyTree, TreeSpec, tree_flatten

__all__ = ["SUPPORTED_NODES", "register_pytree_flatten_spec", "tree_flatten_spec"]

FlattenFuncSpec = Callable[[PyTree, TreeSpec], list[Any]]
SUPPORTED_NODES: dict[type, FlattenFuncSpec] = {}


def register_pytree_flatten_spec(
    cls: type,
    flatten_fn_spec: FlattenFuncSpec,
    flatten_fn_exact_match_spec: Callable[[PyTree, TreeSpec], bool] | None = None,
) -> None:
    """How objects of a class are flattened where their shape is known; the class must be a node of
    `torch.utils._pytree`.
    """
    SUPPORTED_NODES[cls] = flatten_fn_spec


def tree_flatten_spec(tree: PyTree, spec: TreeSpec, exact_structural_match: bool = False) -> list[Any]:
    """The leaves of a tree of the shape `spec`; what `spec` calls a leaf is one, whatever it is.

    >>> from rushlight.utils._pytree import tree_structure
    >>> tree_flatten_spec([1, (2, [3])], tree_structure([0, (0, 0)]))
    [1, 2, [3]]
    """
    if spec.is_leaf():
        return [tree]
    if spec.type in SUPPORTED_NODES:
        children = SUPPORTED_NODES[spec.type](tree, spec)
    elif spec.type is dict:
        children = [tree[key] for key in spec.context]
    elif isinstance(tree, (list, tuple)):
        children = list(tree)
    elif spec.type in (list, tuple, namedtuple):  # a traced value, say, which has no length
        children = [tree[place] for place in range(spec.num_children)]
    else:
        return tree_flatten(tree)[0]
    parts = spec.children()
    if len(children) < len(parts):
        raise RuntimeError(f"{len(children)} values where the shape {spec} has {len(parts)}")
    return [
        leaf
        for child, part in zip(children, parts, strict=False)
        for leaf in tree_flatten_spec(child, part, exact_structural_match)
    ]
