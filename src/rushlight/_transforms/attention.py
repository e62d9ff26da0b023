"""Attention written by hand, softmax(q k^T * scale + mask) v, as the primitive that never stores the scores.

Sums are added in another order than by the calls, so this is for programs that allow it.  What is inside must be for
nobody else: a program that keeps the weights for its backward is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight._graph.core import Graph, GraphBuilder, Node, Value, live_nodes
from rushlight._prims import build, prim
from rushlight._prims.nn.attention import FEW_QUERIES
from rushlight._types.layout import numel

__all__ = ["with_attention"]


class _Found(NamedTuple):
    """Scores are of q [B, L, E] and keys [B, E, S]; masks are (kind, value): "hide" (bool) or "add"."""

    q: Value
    keys: Value
    v: Value
    scale: float
    masks: list[tuple[str, Value]]


def with_attention(graph: Graph) -> tuple[Graph, int]:
    """The graph with each attention as one node, and how many there were."""
    users: dict[int, int] = {}
    for x in (v for node in graph.nodes for v in node.inputs):
        users[id(x)] = users.get(id(x), 0) + 1
    for x in graph.outputs:
        users[id(x)] = users.get(id(x), 0) + 2
    found = {node: match for node in graph.nodes if node.prim.name == "dot" and (match := _Reader(users).read(node))}
    if not found:
        return graph, 0
    builder = GraphBuilder()
    now: dict[int, Any] = {id(v): builder.input_like(v) for v in graph.inputs}
    with builder:
        for node in graph.nodes:
            match = found.get(node)
            if match is not None:
                now[id(node.outputs[0])] = _attention(match, now, node.outputs[0])
                continue
            made = node.prim(*[now[id(v)] for v in node.inputs], **node.params)
            now.update(zip(map(id, node.outputs), made if node.prim.multiple else (made,), strict=True))
    outputs = [now[id(v)] for v in graph.outputs]
    return Graph(builder.inputs, live_nodes(builder.nodes, outputs), outputs), len(found)


def _attention(match: _Found, now: dict[int, Any], out: Value) -> Any:
    q, v = now[id(match.q)], now[id(match.v)]
    k = prim.transpose(now[id(match.keys)], perm=(0, 2, 1))
    shape = (*q.shape[:-1], k.shape[-2])
    masks: list[Any] = []
    for kind, mask in match.masks:
        x = build.reshape(now[id(mask)], shape)
        masks.append(build.invert(x) if kind == "hide" else build.convert(x, q.dtype.wide))
    joined = masks[:1]
    for mask in masks[1:]:
        both = joined[0]
        if mask.dtype is both.dtype and mask.dtype.kind == "b":
            joined[0] = both & mask
        else:
            added = [m if m.dtype.kind == "f" else build.select(m, 0.0, -math.inf) for m in (both, mask)]
            joined[0] = build.convert(added[0], q.dtype.wide) + build.convert(added[1], q.dtype.wide)
    made, _ = prim.attention(q, k, v, *joined, causal=False, scale=match.scale)
    return build.convert(made, out.dtype)


class _Reader:
    """Reads an attention backwards from its second product."""

    def __init__(self, users: dict[int, int]) -> None:
        self.users = users

    def read(self, node: Node) -> _Found | None:
        weights, v = node.inputs
        if len(weights.shape) != 3 or weights.shape[1] < FEW_QUERIES or not numel(node.outputs[0].shape):
            return None
        weights = self.behind(weights, 1)
        raised = self.softmax(weights)
        if raised is None:
            return None
        scale, masks = 1.0, []
        value = self.behind(raised, 1)
        while value.node is not None and value.node.prim.name != "dot":
            step = self.scaled(value.node)
            if step is not None:
                scale *= step[0]
                value = self.behind(step[1], 1)
                continue
            masked = self.masked(value.node) if value.node is not None else None
            if masked is None:
                return None
            masks.append((*masked[:2], scale))
            value = self.behind(masked[2], 1)
        if value.node is None or len(value.shape) != 3 or any(s != 1.0 and kind == "add" for kind, _, s in masks):
            return None
        q, keys = value.node.inputs
        if not q.dtype is keys.dtype is v.dtype or q.dtype.kind != "f":
            return None
        if any(numel(mask.shape) != numel(value.shape) for _, mask, _ in masks):
            return None
        return _Found(q, keys, v, scale, [(kind, mask) for kind, mask, _ in masks])

    def behind(self, value: Value, uses: int) -> Value:
        """The value behind ends of calls, conversions of floats and merges of leading dims."""
        while self.users.get(id(value), 0) == uses and value.node is not None and value.node.inputs:
            node = value.node
            x = node.inputs[value.index] if node.prim.name == "border" else node.inputs[0]
            same = node.prim.name in ("border", "operand") or (node.prim.name == "convert" and x.dtype.kind == "f")
            merged = node.prim.name == "reshape" and x.shape[-2:] == value.shape[-2:] and len(x.shape) in (3, 4)
            if not same and not merged:
                break
            value = x
        return value

    def softmax(self, weights: Value) -> Value | None:
        """The scores of a softmax along the last dim."""
        node = weights.node
        if node is None or self.users.get(id(weights), 0) != 1:
            return None
        if node.prim.name == "mul":
            pairs = [tuple(node.inputs), tuple(node.inputs[::-1])]
        elif node.prim.name == "div":
            pairs = [tuple(node.inputs)]
        else:
            return None
        for raised, share in pairs:
            total = _spread_of(share)
            if total is not None and node.prim.name == "mul":
                total = _one_over(total)
            if total is None or total.node is None or total.node.prim.name != "sum" or not _last(total.node):
                continue
            if total.node.inputs[0] is not raised or raised.node is None or raised.node.prim.name != "exp":
                continue
            if self.users.get(id(raised), 0) == 2:
                return self.centred(raised.node.inputs[0])
        return None

    def centred(self, value: Value) -> Value | None:
        """The operand of a subtraction of each row's maximum, or None."""
        node = value.node
        if node is None or node.prim.name != "sub" or self.users.get(id(value), 0) != 1:
            return None
        top = _spread_of(node.inputs[1])
        if top is None or top.node is None or top.node.prim.name != "amax" or not _last(top.node):
            return None
        if top.node.inputs[0] is not node.inputs[0] or self.users.get(id(node.inputs[0]), 0) != 2:
            return None
        return self.behind(node.inputs[0], 2)

    def scaled(self, node: Node) -> tuple[float, Value] | None:
        if node.prim.name not in ("mul", "div"):
            return None
        pairs = [tuple(node.inputs)] + ([tuple(node.inputs[::-1])] if node.prim.name == "mul" else [])
        for value, factor in pairs:
            number = _number(factor)
            if number:
                return (number if node.prim.name == "mul" else 1.0 / number), value
        return None

    def masked(self, node: Node) -> tuple[str, Value, Value] | None:
        """The kind of a mask, the mask, and what it hides a part of."""
        if node.prim.name == "select" and _number(node.inputs[1]) == -math.inf:
            return "hide", node.inputs[0], node.inputs[2]
        if node.prim.name == "add":
            a, b = node.inputs
            return ("add", b, a) if _is_product(a) else ("add", a, b) if _is_product(b) else None
        return None


def _is_product(value: Value) -> bool:
    """Whether a value comes from a product by scaling, masking and the like."""
    for _ in range(12):
        node = value.node
        if node is None:
            return False
        if node.prim.name == "dot":
            return True
        if node.prim.name not in ("border", "operand", "convert", "reshape", "mul", "div", "select", "add"):
            return False
        value = (
            node.inputs[value.index]
            if node.prim.name == "border"
            else node.inputs[2 if node.prim.name == "select" else 0]
        )
    return False


def _spread_of(value: Value) -> Value | None:
    """The value broadcast along the last dim, or None."""
    node = value.node
    if node is None or node.prim.name != "broadcast":
        return None
    x = node.inputs[0]
    while x.node is not None and x.node.prim.name == "reshape":
        x = x.node.inputs[0]
    return x if x.shape == value.shape[:-1] else None


def _one_over(value: Value) -> Value | None:
    node = value.node
    if node is None or node.prim.name != "div" or _number(node.inputs[0]) != 1.0:
        return None
    return node.inputs[1]


def _number(value: Value) -> float | None:
    """The number that all elements of a value are."""
    node = value.node
    while node is not None and node.prim.name in ("broadcast", "convert", "operand", "reshape"):
        node = node.inputs[0].node
    if node is None or node.prim.name != "full" or isinstance(node.params["value"], complex):
        return None
    return float(node.params["value"])


def _last(node: Node) -> bool:
    dims: Sequence[int] = node.params["dims"]
    return tuple(dims) == (len(node.inputs[0].shape) - 1,)
