"""Walks over recorded histories: the nodes behind tensors, those that lead somewhere, those that hold something."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from rushlight._engine.autograd.node import Node, split_edge
from rushlight._engine.core.tensor import Tensor

__all__ = ["history_of", "keeps", "leading_to", "saved_by_user"]


def history_of(tensors: Sequence[Any], nodes: Sequence[Any] = ()) -> Iterator[Any]:
    """The nodes of the histories of some tensors, and of those behind some nodes."""
    todo, seen = [*[x._node for x in tensors], *nodes], set[int]()
    while todo:
        node = todo.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        todo += [edge[0] for edge in node.next_functions]


def leading_to(history: Sequence[Any], targets: Collection[Any]) -> set[Any]:
    """The nodes of a history from which backward comes to one of `targets`."""
    before: dict[Any, list[Any]] = {}
    for node in history:
        for edge in node._edges:
            if edge is not None:
                before.setdefault(split_edge(edge)[0], []).append(node)
    todo, found = list(targets), set[Any]()
    while todo:
        for node in before.get(todo.pop(), ()):
            if node not in found:
                found.add(node)
                todo.append(node)
    return found


def keeps(node: Any) -> bool:
    """Whether a node holds something that backward frees."""
    inner = getattr(node, "function", None)  # of a node for an in-place change of a view
    if inner is not None and isinstance(inner, Node):
        return keeps(inner)
    return (
        bool(getattr(node, "saved", None) or getattr(node, "_saved", None)) or getattr(node, "rule", None) is not None
    )


def saved_by_user(node: Any) -> list[Tensor]:
    found = [item[0] for item in getattr(node, "_saved", None) or () if item is not None]
    found += list(getattr(node, "_to_save", None) or ())
    return [x for x in found if isinstance(x, Tensor)]
