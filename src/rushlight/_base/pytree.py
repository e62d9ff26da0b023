"""Nested tuples, lists and dicts as a flat list of leaves, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["NODES", "spec_text", "tree_flatten", "tree_map", "tree_unflatten"]


# Classes that users registered as containers: the function that splits one into (children, context), and its inverse.
NODES: dict[type, tuple[Callable[[Any], tuple[Any, Any]], Callable[[Any, Any], Any]]] = {}


def tree_flatten(tree: Any) -> tuple[list[Any], Any]:
    """Leaves in order, and a structure that `tree_unflatten` takes.  Named tuples and dict subclasses are kept."""
    leaves: list[Any] = []
    return leaves, _walk(tree, leaves)


def _walk(tree: Any, leaves: list[Any]) -> Any:
    if NODES and type(tree) in NODES:
        children, context = NODES[type(tree)][0](tree)
        return (type(tree), context, [_walk(item, leaves) for item in children])
    if isinstance(tree, (tuple, list)):
        return (type(tree), None, [_walk(item, leaves) for item in tree])
    if isinstance(tree, dict):
        return (type(tree), list(tree), [_walk(item, leaves) for item in tree.values()])
    leaves.append(tree)
    return None


def tree_unflatten(leaves: list[Any], structure: Any) -> Any:
    """The inverse of `tree_flatten`, with other leaves."""
    remaining = iter(leaves)
    return _build(structure, remaining)


def _build(structure: Any, leaves: Any) -> Any:
    if structure is None:
        return next(leaves)
    kind, keys, items = structure
    values = [_build(item, leaves) for item in items]
    if kind in NODES:
        return NODES[kind][1](values, keys)
    if keys is not None:
        return kind(zip(keys, values, strict=True))
    return kind(*values) if hasattr(kind, "_fields") else kind(values)


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply `function` to every leaf."""
    leaves, structure = tree_flatten(tree)
    return tree_unflatten([function(leaf) for leaf in leaves], structure)


def spec_text(tree: Any, indent: int = 0) -> str:
    """The structure of nested values: a star for each leaf."""
    if isinstance(tree, dict):
        keys, items, kind = list(tree), list(tree.values()), type(tree).__name__
    elif isinstance(tree, (tuple, list)):
        keys, items, kind = None, list(tree), type(tree).__name__
    else:
        return "*"
    parts = [spec_text(item, indent + 2) for item in items]
    return f"TreeSpec({kind}, {keys}, [{(',' + chr(10) + ' ' * (indent + 2)).join(parts)}])"
