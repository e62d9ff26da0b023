"""Rewrites a graph before it is scheduled: primitives without a kernel of their own become simpler ones.

Sorting happens along the last dim. Long scans of few rows go through parts of the rows side by side. The target's
library says which heavy primitives its routines take.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rushlight._graph.core import GraphBuilder, rebuilt
from rushlight._prims import build
from rushlight._prims.record import PRIMITIVES, prim
from rushlight._schedule.rewrites.fused_products import part_of_dim
from rushlight._types.dtype import COMPLEX32, COMPLEX64, INT16, INT32, INT64
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rushlight._graph.core import Graph, Node
    from rushlight._schedule.policy import Policy, Target
    from rushlight._types.dtype import DType

__all__ = ["as_words", "prepared"]

_WORDS = {COMPLEX32: INT32, COMPLEX64: INT64}


def prepared(graph: Graph, target: Target) -> Graph:
    """The graph without primitives that neither a kernel nor a routine of the target's library computes."""

    def replaced(node: Node, inputs: list[Any]) -> Any:
        return (_rule(node, target) or node.prim)(*inputs, **node.params)

    graph = target.library.before(graph)
    while any(_rule(node, target) is not None for node in graph.nodes):
        graph = rebuilt(graph, replaced)
    return target.library.after(graph)


def as_words(graph: Graph, layouts: Sequence[Any]) -> Graph:
    """A graph that only moves complex numbers as one that moves integers of their size, which vectors hold and
    transpose.
    """
    if graph.nodes or not any(v.dtype in _WORDS for v in graph.outputs) or any(layout is None for layout in layouts):
        return graph
    builder = GraphBuilder()
    words = {v: builder.input(v.shape, _WORDS.get(v.dtype, v.dtype)) for v in graph.inputs}
    return builder.finish([words[v] for v in graph.outputs])


def _rule(node: Node, target: Target) -> Any:
    """The replacement rule of a node, or None."""
    name = node.prim.name
    if name in ("stop_gradient", "operand"):
        return lambda x, **params: x
    if name == "border":
        return lambda *xs, strides: xs
    if node.prim.effect is not None:
        raise NotImplementedError(f"no kernel computes prim.{name}: a program runs its effects between its kernels")
    if name in ("reshape", "transpose") and node.inputs[0].node is not None and node.inputs[0].node.prim.name == "conj":
        return _conjugated_last(node)
    if name == "convert":
        return _sign_rule(node)
    if name == "cumsum":
        return partial(_sums_in_parts, parts) if (parts := _parts_of_sum(node, target.policy)) else None
    if name in ("cummax", "cummin"):
        return partial(_extremes_in_parts, name, parts) if (parts := _parts_of_row(node, target.policy)) else None
    if name == "sort":
        return None if node.params["dim"] == len(node.inputs[0].shape) - 1 else _sort_rows
    if name == "topk":
        if not node.params["k"]:
            return _topk_by_sort
        return None if node.params["dim"] == len(node.inputs[0].shape) - 1 else _topk_rows
    if name == "kth":
        return None if node.params["dim"] == len(node.inputs[0].shape) - 1 else _kth_rows
    return target.library.replacement(node) if node.prim.lower[0] == "extern" else None


# ***** signs *****


def _sign_rule(node: Node) -> Any:
    """A narrow float that is widened, negated (or made positive) and narrowed is not widened: only its sign bit
    changes.
    """
    dtype, changed = node.outputs[0].dtype, node.inputs[0].node
    if dtype.kind != "f" or dtype.itemsize != 2 or changed is None or changed.prim.name not in ("neg", "abs"):
        return None
    widened = changed.inputs[0].node
    if widened is None or widened.prim.name != "convert" or widened.inputs[0].dtype is not dtype:
        return None
    return partial(_with_sign, changed.prim.name)


def _with_sign(name: str, x: Any, dtype: DType) -> Any:
    bits = prim.bitcast(x.node.inputs[0].node.inputs[0], dtype=INT16)
    changed = (
        prim.bitwise_xor(bits, build.full_like(bits, -(1 << 15)))
        if name == "neg"
        else prim.bitwise_and(bits, build.full_like(bits, (1 << 15) - 1))
    )
    return prim.bitcast(changed, dtype=dtype)


# ***** products *****


def _conjugated_last(node: Node) -> Any:
    """A view of a conjugate becomes the conjugate of a view, where a product finds it."""
    return lambda x, **params: (
        PRIMITIVES["conj"](node.prim(x.node.inputs[0], **params)) if x.node is not None else node.prim(x, **params)
    )


# ***** scans of a few long rows *****


def _parts_of_row(node: Node, policy: Policy) -> int:
    """The number of parts of each row of a scan, by sizes alone; 0 where rows stay whole."""
    x, size = node.inputs[0], node.inputs[0].shape[node.params["dim"]]
    if size < policy.scan_length or numel(x.shape) > policy.scan_rows * size:
        return 0
    fits = (n for n in policy.scan_parts if size % n == 0 and size >= n * policy.scan_part)
    return next(fits, 0)


def _parts_of_sum(node: Node, policy: Policy) -> int:
    """The same for running sums.  A part's sum may overflow only where a running sum does, so wide floats stay whole."""
    x = node.inputs[0]
    narrow = x.node is not None and x.node.prim.name == "convert" and x.node.inputs[0].dtype.itemsize < x.dtype.itemsize
    return _parts_of_row(node, policy) if x.dtype.kind in "iu" or x.dtype.kind == "f" and narrow else 0


def _shifted(x: Any, dim: int, by: int) -> Any:
    """Elements moved along a dim by `by` positions, filled up with 0."""
    lo, hi = [0] * len(x.shape), [0] * len(x.shape)
    lo[dim], hi[dim] = by, -by
    return build.pad(x, lo, hi, [0] * len(x.shape))


def _for_parts(x: Any, dim: int, shape: tuple[int, ...]) -> Any:
    """A value of each part, broadcast to its elements."""
    return build.broadcast_to(build.reshape(x, (*shape[: dim + 1], 1, *shape[dim + 2 :])), shape)


def _sums_in_parts(parts: int, x: Any, dim: int, reverse: bool) -> Any:
    """Running sums of all parts side by side; each part begins with the sum of the parts before it."""
    shape = (*x.shape[:dim], parts, x.shape[dim] // parts, *x.shape[dim + 1 :])
    x, whole = build.reshape(x, shape), x.shape
    sums = PRIMITIVES["cumsum"](PRIMITIVES["sum"](x, dims=(dim + 1,)), dim=dim, reverse=reverse)
    begin = _for_parts(_shifted(sums, dim, -1 if reverse else 1), dim, shape)
    place = PRIMITIVES["iota"](shape=shape, dim=dim + 1, dtype=INT64)
    x = build.select(build.eq(place, shape[dim + 1] - 1 if reverse else 0), x + begin, x)
    return build.reshape(PRIMITIVES["cumsum"](x, dim=dim + 1, reverse=reverse), whole)


def _extremes_in_parts(name: str, parts: int, x: Any, dim: int) -> Any:
    """Running extremes of all parts side by side; the first element of a part is compared with the extreme of the
    parts before it.
    """
    shape = (*x.shape[:dim], parts, x.shape[dim] // parts, *x.shape[dim + 1 :])
    x, whole, length = build.reshape(x, shape), x.shape, shape[dim + 1]
    place = PRIMITIVES["iota"](shape=shape, dim=dim + 1, dtype=INT64)
    best = PRIMITIVES["amax" if name == "cummax" else "amin"](x, dims=(dim + 1,))
    same = build.eq(x, _for_parts(best, dim, shape))
    if x.dtype.kind == "f":
        same = same | PRIMITIVES["ne"](x, x)
    last = PRIMITIVES["amax"](build.select(same, place, -1), dims=(dim + 1,))  # the position of each part's extreme
    best, part = PRIMITIVES[name](best, dim=dim)
    position = PRIMITIVES["gather"](last, part, dim=dim) + part * length
    best, position = _shifted(best, dim, 1), _shifted(position, dim, 1)
    firsts = _first_of(x, dim + 1)
    number = PRIMITIVES["iota"](shape=best.shape, dim=dim, dtype=INT64)
    own = build.eq(number, 0) | (firsts >= best if name == "cummax" else firsts <= best)
    if x.dtype.kind == "f":
        own = own | PRIMITIVES["ne"](firsts, firsts)
    begin = build.select(own, firsts, best)
    values, at = PRIMITIVES[name](build.select(build.eq(place, 0), _for_parts(begin, dim, shape), x), dim=dim + 1)
    start = number * length
    at = build.select(
        build.eq(at, 0), _for_parts(build.select(own, start, position), dim, shape), at + _for_parts(start, dim, shape)
    )
    return build.reshape(values, whole), build.reshape(at, whole)


def _first_of(x: Any, dim: int) -> Any:
    """The first element along a dim, without the dim."""
    return build.squeeze(part_of_dim(x, dim, 0, 1), (dim,))


# ***** sorting *****


def _last(x: Any, dim: int) -> tuple[list[int], list[int]]:
    """The permutation that moves a dim to the end, and its inverse."""
    perm = [d for d in range(len(x.shape)) if d != dim] + [dim]
    return perm, [perm.index(d) for d in range(len(perm))]


def _sort_rows(x: Any, dim: int, descending: bool, stable: bool) -> Any:
    """A sort along the last dim, which is the only one that routines sort."""
    perm, back = _last(x, dim)
    results = PRIMITIVES["sort"](build.transpose(x, perm), dim=len(perm) - 1, descending=descending, stable=stable)
    return tuple(build.transpose(v, back) for v in results)


def _topk_rows(x: Any, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    """A `topk` along the last dim."""
    perm, back = _last(x, dim)
    results = PRIMITIVES["topk"](build.transpose(x, perm), k=k, dim=len(perm) - 1, largest=largest, sorted=sorted)
    return tuple(build.transpose(v, back) for v in results)


def _kth_rows(x: Any, rank: int, dim: int, ties: str) -> Any:
    """A `kth` along the last dim."""
    perm, back = _last(x, dim)
    results = PRIMITIVES["kth"](build.transpose(x, perm), rank=rank, dim=len(perm) - 1, ties=ties)
    return tuple(build.transpose(v, back) for v in results)


def _topk_by_sort(x: Any, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    """A `topk` as the beginning of a sort."""
    starts, stops = (0,) * len(x.shape), tuple(k if d == dim else s for d, s in enumerate(x.shape))
    results = PRIMITIVES["sort"](x, dim=dim, descending=largest, stable=True)
    return tuple(PRIMITIVES["slice"](v, starts=starts, stops=stops, steps=(1,) * len(stops)) for v in results)
