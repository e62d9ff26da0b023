"""Whether a history has the structure of one that was walked before: a function that asks node by node, without counting
edges or ordering nodes anew.

It is written for a walk over plain nodes: operators without hooks, in the order in which they were recorded, and leaves
without hooks.  For other walks there is none, and for other histories it gives None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._capture.trace.segments.generated import functions
from rushlight._engine.autograd.node import AccumulateGrad, OpNode, Packed
from rushlight._engine.core.tensor import dispatch_classes

__all__ = ["Found", "matcher"]

# The values that the walk's function takes, and the nodes that it releases.
Found = tuple[list[Any], Sequence[Any]]

_OPERATOR = """
    if type({n}) is not {kind} or {n}.info is not {info} or {n}._extra is not None: return None
    q = {n}._seq
    if q >= last: return None
    last, s, w = q, {n}.saved, {n}.versions
    if s is None or len(s) != {count}: return None"""
_LEAF = """
    if type({n}) is not AccumulateGrad or {n}._extra is not None or {n}.level is not None: return None
    x = {n}._variable()
    if x is None or type(x) in dispatch_classes: return None
    m = x._autograd_meta
    if m is not None and (m.hooks or m.post_hooks): return None
    values.append(x)"""
_TENSOR = """
    x = s[{k}]
    if w[{k}] is None: return None
    t = x._storage
    if t is None or t.stamp != w[{k}]: return None
    values.append(x)"""
_OTHER = """
    x = s[{k}]
    if w[{k}] is not None or type(x) is Packed: return None
    values.append(x)"""


def matcher(order: Sequence[Any], number: int) -> Callable[[Any, Any], Found | None] | None:
    """`match(root, grad)` for a walk over the nodes `order`, to whose first one a gradient goes as its result `number`."""
    numbers = {node: k for k, node in enumerate(order)}
    lines = ["def match(n0, grad):", "    values, last = [grad], 1 << 62"]
    space: dict[str, Any] = {"AccumulateGrad": AccumulateGrad, "Packed": Packed, "dispatch_classes": dispatch_classes}
    known, leaves, last = {0}, list[str](), 1 << 62
    for k, node in enumerate(order):
        if type(node) is AccumulateGrad:
            leaves.append(f"n{k}")
            lines.append(_LEAF.format(n=f"n{k}"))
            continue
        if not isinstance(node, OpNode) or node._extra is not None or node.saved is None or node._seq >= last:
            return None
        last, count = node._seq, len(node.saved)
        kind, info = f"t{k}", f"i{id(node.info)}"
        space[kind], space[info] = type(node), node.info
        lines.append(_OPERATOR.format(n=f"n{k}", kind=kind, info=info, count=count))
        for at, version in enumerate(node.versions):
            if version is None and type(node.saved[at]) is Packed:
                return None
            lines.append((_OTHER if version is None else _TENSOR).format(k=at))
        lines += _edges(f"n{k}", node._edges, numbers, known)
    if len(leaves) > 1:
        lines.append(f"    if len({{{', '.join(leaves)}}}) != {len(leaves)}: return None")
    operators = [f"n{k}" for k, node in enumerate(order) if node._edges]
    lines.append(f"    return values, ({''.join(f'{each}, ' for each in operators)})")  # of a leaf alone there are none
    made: Callable[[Any, Any], Found | None] = functions("\n".join(lines), space, "structure of a history")["match"]
    return made


def _edges(name: str, edges: Sequence[Any], numbers: dict[Any, int], known: set[int]) -> list[str]:
    """The lines that ask where the edges of a node lead."""
    lines = [f"    e = {name}._edges", f"    if len(e) != {len(edges)}: return None"]
    for k, edge in enumerate(edges):
        if edge is None:
            lines.append(f"    if e[{k}] is not None: return None")
            continue
        after, number = edge if type(edge) is tuple else (edge, None)
        there = f"e[{k}]"
        if number is not None:
            lines.append(f"    t = {there}")
            lines.append(f"    if type(t) is not tuple or t[1] != {number}: return None")
            there = "t[0]"
        target = numbers[after]
        lines.append(f"    if n{target} is not {there}: return None" if target in known else f"    n{target} = {there}")
        known.add(target)
    return lines
