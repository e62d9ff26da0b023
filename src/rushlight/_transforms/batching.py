"""Batching: a graph that does for a whole batch what the given one does for a single item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._graph.core import Graph, Node, Reference
from rushlight._graph.rewrite import RewritingBuilder
from rushlight._prims import build
from rushlight._transforms.simplify import EXACT

__all__ = ["batch"]


def batch(graph: Graph, batched: Sequence[bool], size: int, randomness: str = "error") -> Graph:
    """The graph over `size` items.  Inputs that `batched` marks get a new leading dim, the others are shared by all
    items; every output that is an array has the leading dim.

        batch(g, [True, False], n)(xs, y)[k][i] = g(xs[i], y)[k]

    `randomness` defines draws: "error" refuses them (RuntimeError), "same" draws once for all items, "different" for
    each of them.  A graph that changes memory or calls other processes is refused: `functionalize` it first.
    """
    builder = RewritingBuilder(EXACT)
    env: dict[Any, tuple[Any, bool]] = {}
    for value, flag in zip(graph.inputs, batched, strict=True):
        if flag and type(value) is Reference:
            raise RuntimeError(f"a {value.kind} is one for all items of a batch")
        env[value] = (builder.input((size, *value.shape), value.dtype) if flag else builder.input_like(value), flag)
    with builder:
        for node in graph.nodes:
            inputs = [env[v][0] for v in node.inputs]
            flags = [env[v][1] for v in node.inputs]
            if node.prim.effect is not None:
                numbers = _effect(node, inputs, flags, size, randomness)
                env.update(zip(node.outputs, numbers, strict=True))
                continue
            lifted = any(flags)
            result = node.prim.batch(flags, *inputs, **node.params) if lifted else node.prim(*inputs, **node.params)
            for value, item in zip(node.outputs, result if node.prim.multiple else (result,), strict=True):
                expected = (size, *value.shape) if lifted else value.shape
                if item.shape != expected or item.dtype is not value.dtype:
                    raise AssertionError(
                        f"the batching rule of prim.{node.prim.name} gave {item.dtype.name}{list(item.shape)}, "
                        f"expected {value.dtype.name}{list(expected)}"
                    )
                env[value] = (item, lifted)
        outputs = [env[v] for v in graph.outputs]
        results = [
            item if flag or type(item) is Reference else build.broadcast_to(item, (size, *item.shape))
            for item, flag in outputs
        ]
    return builder.finish(results)


def _effect(node: Node, inputs: list[Any], flags: list[bool], size: int, randomness: str) -> list[tuple[Any, bool]]:
    """The results of a draw in a batch, each with whether it has the leading dim."""
    effect, params = node.prim.effect, node.params
    if effect is None or effect.verb != "draws":
        return node.prim.batch(flags, *inputs, **params)
    if randomness not in ("same", "different"):
        raise RuntimeError(
            f"prim.{node.prim.name} in a batch: say whether it draws the same numbers for all items or different ones"
        )
    lifted = any(flags)
    if randomness == "same" and lifted:
        raise RuntimeError(f"prim.{node.prim.name} depends on its operands: one draw cannot serve all items of a batch")
    if randomness == "different" and not lifted:
        lifted = True
        if "shape" in params:
            if node.prim.name == "draw_permutation":
                raise RuntimeError(
                    "prim.draw_permutation draws one permutation: it cannot be different for each item of a batch"
                )
            params = {**params, "shape": (size, *params["shape"])}
        else:
            inputs = [inputs[0], *(build.broadcast_to(x, (size, *x.shape)) for x in inputs[1:])]
    stream, numbers = node.prim(*inputs, **params)
    return [(stream, False), (numbers, lifted)]
