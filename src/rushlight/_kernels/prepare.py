"""Graphs made ready for scheduling: primitives without a kernel of their own replaced by simpler ones.

`conv` becomes windows and a product; sorting happens along the last dim; a product with a vector whose matrix would have to be
written out first (depthwise convolution, and both its gradients) becomes a sum that is fused with what makes the matrix.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rushlight._graph.core import GraphBuilder, rebuilt
from rushlight._kernels.convolution import finished, fits_routine, windowed
from rushlight._kernels.products import PACKED, narrow_rule, narrowed
from rushlight._kernels.recurrent import spared, stepwise
from rushlight._prims import build
from rushlight._prims.attention import FEW_QUERIES
from rushlight._prims.record import PRIMITIVES, prim
from rushlight._types.dtype import COMPLEX32, COMPLEX64, INT16, INT32, INT64
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rushlight._graph.core import Graph, Node, Value
    from rushlight._types.dtype import DType

__all__ = ["as_words", "prepared"]

_MATRICES = (("lapack",), ("permutation",))
_WORDS = {COMPLEX32: INT32, COMPLEX64: INT64}


def prepared(graph: Graph) -> Graph:
    """The graph with those primitives replaced; itself where there are none."""
    graph = spared(graph)
    while any(_rule(node) is not None for node in graph.nodes):
        graph = rebuilt(graph, _replaced)
    graph = narrowed(graph)
    return finished(graph) if any(node.prim.name == "conv_windows" for node in graph.nodes) else graph


def as_words(graph: Graph, layouts: Sequence[Any]) -> Graph:
    """A graph that only moves complex numbers moves words of their size: kernels have these in vectors, and turn matrices of them in squares."""
    if graph.nodes or not any(v.dtype in _WORDS for v in graph.outputs) or any(layout is None for layout in layouts):
        return graph
    builder = GraphBuilder()
    words = {v: builder.input(v.shape, _WORDS.get(v.dtype, v.dtype)) for v in graph.inputs}
    return builder.finish([words[v] for v in graph.outputs])


def _replaced(node: Node, inputs: list[Any]) -> Any:
    """What a node makes of its inputs, by its rule where it has one."""
    return (_rule(node) or node.prim)(*inputs, **node.params)


def _rule(node: Node) -> Any:
    """What replaces a node, or None."""
    name = node.prim.name
    if name in ("reshape", "transpose") and node.inputs[0].node is not None and node.inputs[0].node.prim.name == "conj":
        return _conjugated_last(node)
    if name == "convert":
        return _sign_rule(node)
    if name == "dot":
        return _dot_rule(node)
    if name == "cumsum":
        return partial(_sums_in_parts, parts) if (parts := _parts_of_sum(node)) else None
    if name in ("cummax", "cummin"):
        return partial(_extremes_in_parts, name, parts) if (parts := _parts_of_row(node)) else None
    if name == "sort":
        return None if node.params["dim"] == len(node.inputs[0].shape) - 1 else _sort_rows
    if name == "topk":
        if not node.params["k"]:
            return _topk_by_sort
        return None if node.params["dim"] == len(node.inputs[0].shape) - 1 else _topk_rows
    if name == "kth":
        return None if node.params["dim"] == len(node.inputs[0].shape) - 1 else _kth_rows
    if name == "conv":
        return _conv_rule(node)
    if name == "conv_windows":
        return None if fits_routine(node) else node.prim.decompose
    if name in ("recurrence", "recurrence_grad"):
        return stepwise(node)
    if name in ("resample", "resample_back"):
        return None if all(numel(v.shape) for v in (*node.inputs, *node.outputs)) else node.prim.decompose
    if name == "unpool":
        return (
            None
            if _sends_over(node) and all(numel(v.shape) for v in (*node.inputs, *node.outputs))
            else node.prim.decompose
        )
    if node.prim.lower[1:] == ("taps",):
        return None if all(numel(v.shape) for v in (*node.inputs, *node.outputs)) else node.prim.decompose
    if name in ("attention", "attention_grad"):
        return None if _in_blocks(node) else node.prim.decompose
    if (
        node.prim.lower[1:] in _MATRICES and node.params.get("form", "packed") == "packed"
    ):  # of other forms, Q is made of reflections
        return None if all(numel(v.shape) for v in (*node.inputs, *node.outputs[:1])) else node.prim.empty
    return node.prim.decompose if node.prim.lower[0] == "extern" else None


def _sends_over(node: Node) -> bool:
    """Whether windows of an `unpool` along one or two dims overlap: then there is more to do than to choose."""
    p = node.params
    return len(p["size"]) <= 2 and any(
        k > s or d > 1 or a > 0 for k, s, d, a in zip(p["size"], p["stride"], p["dilation"], p["lo"], strict=True)
    )


# ***** signs *****


def _sign_rule(node: Node) -> Any:
    """A narrow number whose sign alone is changed, between a conversion and the one back, stays narrow: no bit but the first is looked at."""
    dtype, changed = node.outputs[0].dtype, node.inputs[0].node
    if dtype.kind != "f" or dtype.itemsize != 2 or changed is None or changed.prim.name not in ("neg", "abs"):
        return None
    widened = changed.inputs[0].node
    if widened is None or widened.prim.name != "convert" or widened.inputs[0].dtype is not dtype:
        return None
    return partial(_with_sign, changed.prim.name)


def _with_sign(name: str, x: Any, dtype: DType) -> Any:
    bits = prim.bitcast(x.node.inputs[0].node.inputs[0], dtype=INT16)
    made = (
        prim.bitwise_xor(bits, build.full_like(bits, -(1 << 15)))
        if name == "neg"
        else prim.bitwise_and(bits, build.full_like(bits, (1 << 15) - 1))
    )
    return prim.bitcast(made, dtype=dtype)


# ***** products *****


def _conjugated_last(node: Node) -> Any:
    """Conjugates moved about become conjugates of what was moved: there a product sees them."""
    return lambda x, **params: (
        PRIMITIVES["conj"](node.prim(x.node.inputs[0], **params)) if x.node is not None else node.prim(x, **params)
    )


def _dot_rule(node: Node) -> Any:
    (a, b), dtype = node.inputs, node.outputs[0].dtype
    if dtype is not a.dtype:
        return (
            None if dtype.is_integer and len(a.shape) == 2 and numel(a.shape) and numel(b.shape) else _converted_first
        )
    if (
        b.shape[-2] >= SPLIT_STEPS
        and (pieces := _pieces_of_steps(a.shape, b.shape)) > 1
        and (a.dtype.wide is a.dtype or a.dtype.name in PACKED)
    ):
        return partial(_in_pieces, pieces)
    if numel(a.shape[:-2]) >= MANY and 0 < a.shape[-2] * b.shape[-2] * b.shape[-1] <= TINY and a.dtype.kind in "fc":
        return _tiny_products
    if a.dtype.wide is not a.dtype:
        return (
            _tiny_products
            if numel(a.shape[:-1]) >= MANY and 0 < b.shape[-2] * b.shape[-1] <= SMALL
            else narrow_rule(node)
        )
    if a.dtype.kind not in "fc" or numel(node.outputs[0].shape) == 0 or a.shape[-1] == 0:
        return None
    if a.shape[-1] == 1:
        return _outer_product
    if b.shape[-1] == 1 and not lies_in_memory(a):
        return _times_column
    if a.shape[-2] == 1 and not lies_in_memory(b):
        return _row_times
    return None


def _converted_first(a: Any, b: Any, dtype: DType) -> Any:
    """A product of the operands as the dtype of the result; `narrowed` finds those that a routine converts by itself."""
    return build.dot(build.convert(a, dtype), build.convert(b, dtype))


MANY, TINY = (
    64,
    512,
)  # matrices of a batch from which on, and multiplications up to which, plain sums are faster than anything for matrices


def _tiny_products(a: Any, b: Any, dtype: DType) -> Any:
    """Products of a batch as sums of rows of B, which become one loop nest over the whole batch."""
    n = len(a.shape)
    shape = (*a.shape, b.shape[-1])
    left, right = (build.convert(x, dtype.wide) for x in (a, b))
    left = PRIMITIVES["broadcast"](left, shape=shape, dims=tuple(range(n)))
    right = PRIMITIVES["broadcast"](right, shape=shape, dims=(*range(n - 2), n - 1, n))
    return build.convert(PRIMITIVES["sum"](left * right, dims=(n - 1,)), dtype)


SMALL = 9  # elements of a small matrix up to which the rows of many narrow numbers are multiplied by plain sums too
SPLIT_STEPS = 4096  # steps from which on the sums of a small result may be made in pieces
SPLIT_RESULT = 1 << 14  # elements of a result up to which that is done
PIECE_STEPS, PIECE_WORK, MOST_PIECES = (
    1024,
    1 << 18,
    32,
)  # steps and multiplications of a piece, at least; pieces, at most


def _pieces_of_steps(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Into how many sums those of a product are cut, from its sizes alone: otherwise a small result is one piece of work, however long they are."""
    batch, (m, k), n = numel(a[:-2]), a[-2:], b[-1]
    if batch * m * n > SPLIT_RESULT or batch >= 8 or 1 in (m, n):
        return 1
    most = min(MOST_PIECES // batch, k // PIECE_STEPS, m * n * k // PIECE_WORK)
    # of equal length, if about as many can be
    return next((count for count in range(most, most // 2, -1) if k % count == 0), most)


def _in_pieces(count: int, a: Any, b: Any, dtype: DType) -> Any:
    """A product as the sum of `count` products of shorter rows and columns, and one of what is left."""
    n, k = len(a.shape), a.shape[-1]
    length = k // count
    whole = length * count
    rest = None
    if whole < k:
        rest = build.dot(_steps(a, n - 1, whole, k), _steps(b, n - 2, whole, k), dtype.wide)
        a, b = _steps(a, n - 1, 0, whole), _steps(b, n - 2, 0, whole)
    lead = a.shape[:-2]
    left = build.reshape(a, (*lead, a.shape[-2], count, length))
    left = build.transpose(left, (n - 1, *range(n - 2), n - 2, n))
    right = build.reshape(b, (*lead, count, length, b.shape[-1]))
    right = build.transpose(right, (n - 2, *range(n - 2), n - 1, n))
    found = PRIMITIVES["sum"](build.dot(left, right, dtype.wide), dims=(0,))
    found = found if rest is None else found + rest
    return found if dtype.wide is dtype else build.convert(found, dtype)


def _steps(x: Any, dim: int, start: int, end: int) -> Any:
    """Part of a dim."""
    full = range(len(x.shape))
    starts, stops = tuple(start if d == dim else 0 for d in full), tuple(end if d == dim else x.shape[d] for d in full)
    return PRIMITIVES["slice"](x, starts=starts, stops=stops, steps=(1,) * len(full))


def lies_in_memory(value: Value) -> bool:
    """Whether a value is an input, or dims of one shown otherwise."""
    while value.node is not None:
        if value.node.prim.name not in ("reshape", "transpose", "broadcast", "slice"):
            return value.node.prim.lower[0] in ("extern", "scan", "scatter", "index_write")
        value = value.node.inputs[0]
    return True


def _outer_product(a: Any, b: Any, dtype: DType) -> Any:
    shape = (*a.shape[:-1], b.shape[-1])
    return build.broadcast_to(a, shape) * build.broadcast_to(b, shape)


def _times_column(a: Any, b: Any, dtype: DType) -> Any:
    n = len(a.shape)
    row = build.broadcast_to(build.transpose(b, (*range(n - 2), n - 1, n - 2)), a.shape)
    return build.reshape(PRIMITIVES["sum"](a * row, dims=(n - 1,)), (*a.shape[:-1], 1))


def _row_times(a: Any, b: Any, dtype: DType) -> Any:
    n = len(a.shape)
    column = build.broadcast_to(build.transpose(a, (*range(n - 2), n - 1, n - 2)), b.shape)
    return build.reshape(PRIMITIVES["sum"](column * b, dims=(n - 2,)), (*a.shape[:-1], b.shape[-1]))


# ***** convolution *****


def _conv_rule(node: Node) -> Any:
    x, out = node.inputs[0], node.outputs[0]
    if numel(out.shape) == 0 or numel(x.shape) == 0 or numel(node.inputs[1].shape) == 0:
        return node.prim.decompose
    if fits_routine(node) and not _is_product(node) and not _paints_one(node):
        return partial(windowed, tuple(out.shape[2:]))
    if _is_spread(node):

        def transposed(x: Any, w: Any, **params: Any) -> Any:
            held = x.node.inputs[0]
            if held.dtype.wide is held.dtype:
                return _spread_conv(held, w, x.node.params, out.shape, **params)
            held, taps = (
                build.convert(held, held.dtype.wide),
                build.convert(w, w.dtype.wide),
            )  # overlaps are added up before rounding
            return build.convert(_spread_conv(held, taps, x.node.params, out.shape, **params), x.dtype)

        return transposed
    return _image_conv if numel(out.shape[2:]) >= 32 else node.prim.decompose


def _is_product(node: Node) -> bool:
    """Whether the windows are the image itself."""
    w, p = node.inputs[1], node.params
    return numel(w.shape[2:]) == 1 and all(s == 1 for s in p["stride"]) and not any(p["padding"])


def _is_spread(node: Node) -> bool:
    """Whether the images were spread by zeros, or zeros put around them: a transposed convolution, or the gradient of one."""
    made = node.inputs[0].node
    if made is None or made.prim.name != "pad" or made.params["value"] != 0:
        return False
    lo, hi, gaps = made.params["lo"], made.params["hi"], made.params["interior"]
    plain = all(s == 1 for s in node.params["stride"]) and not any(node.params["padding"])
    around = any(gaps) or min(*lo, *hi) >= 0
    return plain and around and not any((*lo[:2], *hi[:2], *gaps[:2])) and numel(made.inputs[0].shape) > 0


def _paints_one(node: Node) -> bool:
    """Whether the images are of one place, around which there were zeros: the first layer of many generators, a product."""
    if not _is_spread(node):
        return False
    image = node.inputs[0].node.inputs[0]  # type: ignore[union-attr]
    return numel(image.shape[2:]) == 1 and numel(node.outputs[0].shape[2:]) > 1


def _spread_conv(x: Any, w: Any, pad: Any, shape: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Multiply before spreading: every element of an image gives a window of results, and overlaps are added up."""
    n, kernel, places = len(stride), w.shape[2:], x.shape[2:]
    batch, outs, depth = x.shape[0], w.shape[0], w.shape[1]
    turned = PRIMITIVES["flip"](w, dims=tuple(range(2, n + 2)))
    taps = build.reshape(turned, (groups, outs // groups, depth, numel(kernel)))
    images = build.reshape(x, (batch, groups, depth, numel(places)))
    steps = tuple(g + 1 for g in pad["interior"][2:])
    full = [(i - 1) * s + (k - 1) * d + 1 for i, s, k, d in zip(places, steps, kernel, dilation, strict=True)]
    if numel(places) == 1:  # one product of all images, and nothing overlaps
        rows = build.reshape(build.transpose(images, (1, 0, 3, 2)), (groups, batch, depth))
        taps = build.reshape(build.transpose(taps, (0, 2, 1, 3)), (groups, depth, outs // groups * numel(kernel)))
        made = build.transpose(build.dot(rows, taps), (1, 0, 2))
        made = build.reshape(made, (batch, outs, *kernel))
        whole = build.pad(made, (0,) * (n + 2), (0,) * (n + 2), (0, 0, *(d - 1 for d in dilation)))
    else:
        taps = build.reshape(build.transpose(taps, (0, 1, 3, 2)), (1, groups, outs // groups * numel(kernel), depth))
        made = build.dot(build.broadcast_to(taps, (batch, *taps.shape[1:])), images)
        made = build.reshape(made, (batch, outs, *kernel, *places))
        made = build.transpose(made, (0, 1, *range(n + 2, 2 * n + 2), *range(2, n + 2)))
        whole = PRIMITIVES["unwindow"](
            made,
            shape=(batch, outs, *full),
            dims=tuple(range(2, n + 2)),
            size=tuple(kernel),
            stride=steps,
            dilation=tuple(dilation),
        )
    cut = [(k - 1) * d - lo for k, d, lo in zip(kernel, dilation, pad["lo"][2:], strict=True)]
    rest = [c + want - have for c, want, have in zip(cut, shape[2:], full, strict=True)]
    if min(cut) >= 0 >= max(rest):  # a plain cut can be taken before the overlaps are added up
        starts, stops = (0, 0, *cut), (batch, outs, *(c + want for c, want in zip(cut, shape[2:], strict=True)))
        return PRIMITIVES["slice"](whole, starts=starts, stops=stops, steps=(1,) * (n + 2))
    return build.pad(whole, [0, 0, *(-c for c in cut)], [0, 0, *rest], [0] * (n + 2))


def _image_conv(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """One product per image, whose result lies as the convolution's does; a 1x1 kernel copies nothing."""
    n, kernel = len(stride), tuple(w.shape[2:])
    batch, channels, outs, depth = x.shape[0], x.shape[1], w.shape[0], w.shape[1]
    if any(padding):
        x = build.pad(x, (0, 0, *padding), (0, 0, *padding), (0,) * (n + 2))
    if numel(kernel) == 1 and all(s == 1 for s in stride):
        places, columns = tuple(x.shape[2:]), x
    else:
        columns = PRIMITIVES["window"](
            x, dims=tuple(range(2, n + 2)), size=kernel, stride=tuple(stride), dilation=tuple(dilation)
        )
        places = tuple(columns.shape[2 : n + 2])
        columns = build.transpose(columns, (0, 1, *range(n + 2, 2 * n + 2), *range(2, n + 2)))
    columns = build.reshape(columns, (batch, groups, channels // groups * numel(kernel), numel(places)))
    taps = build.reshape(w, (1, groups, outs // groups, depth * numel(kernel)))
    made = build.dot(build.broadcast_to(taps, (batch, *taps.shape[1:])), columns)
    return build.reshape(made, (batch, outs, *places))


# ***** attention *****


def _in_blocks(node: Node) -> bool:
    """Whether attention goes block by block."""
    return node.outputs[0].shape[-2] >= FEW_QUERIES and all(numel(v.shape) for v in (*node.inputs, *node.outputs))


# ***** scans of a few long rows *****

FEW_ROWS, LONG_ROW = (
    3,
    1 << 11,
)  # rows up to which, and elements of a row from which on, a scan goes through parts of them


def _parts_of_row(node: Node) -> int:
    """Into how many parts the rows of a scan are cut, from their sizes alone; 0 where they are not."""
    x, size = node.inputs[0], node.inputs[0].shape[node.params["dim"]]
    if size < LONG_ROW or numel(x.shape) > FEW_ROWS * size:
        return 0
    return next((count for count in (256, 128, 64, 32, 16) if size % count == 0 and size >= count * 32), 0)


def _parts_of_sum(node: Node) -> int:
    """The same for running sums.  A part's own sum must not leave the range of numbers where no running sum does: those of float64 can."""
    x = node.inputs[0]
    narrow = x.node is not None and x.node.prim.name == "convert" and x.node.inputs[0].dtype.itemsize < x.dtype.itemsize
    return _parts_of_row(node) if x.dtype.kind in "iu" or x.dtype.kind == "f" and narrow else 0


def _shifted(x: Any, dim: int, by: int) -> Any:
    """Every element one place further along a dim, or back; 0 where none comes."""
    lo, hi = [0] * len(x.shape), [0] * len(x.shape)
    lo[dim], hi[dim] = by, -by
    return build.pad(x, lo, hi, [0] * len(x.shape))


def _for_parts(x: Any, dim: int, shape: tuple[int, ...]) -> Any:
    """What there is once for each part, for all its elements."""
    return build.broadcast_to(build.reshape(x, (*shape[: dim + 1], 1, *shape[dim + 2 :])), shape)


def _sums_in_parts(parts: int, x: Any, dim: int, reverse: bool) -> Any:
    """The running sums of all parts side by side: each begins with the sum of the parts before it."""
    shape = (*x.shape[:dim], parts, x.shape[dim] // parts, *x.shape[dim + 1 :])
    x, whole = build.reshape(x, shape), x.shape
    sums = PRIMITIVES["cumsum"](PRIMITIVES["sum"](x, dims=(dim + 1,)), dim=dim, reverse=reverse)
    begin = _for_parts(_shifted(sums, dim, -1 if reverse else 1), dim, shape)
    place = PRIMITIVES["iota"](shape=shape, dim=dim + 1, dtype=INT64)
    x = build.select(build.eq(place, shape[dim + 1] - 1 if reverse else 0), x + begin, x)
    return build.reshape(PRIMITIVES["cumsum"](x, dim=dim + 1, reverse=reverse), whole)


def _extremes_in_parts(name: str, parts: int, x: Any, dim: int) -> Any:
    """The running extremes of all parts side by side: each begins with what the parts before it end with, which stands for its first element."""
    shape = (*x.shape[:dim], parts, x.shape[dim] // parts, *x.shape[dim + 1 :])
    x, whole, length = build.reshape(x, shape), x.shape, shape[dim + 1]
    place = PRIMITIVES["iota"](shape=shape, dim=dim + 1, dtype=INT64)
    best = PRIMITIVES["amax" if name == "cummax" else "amin"](x, dims=(dim + 1,))
    same = build.eq(x, _for_parts(best, dim, shape))
    if x.dtype.kind == "f":
        same = same | PRIMITIVES["ne"](x, x)
    last = PRIMITIVES["amax"](build.select(same, place, -1), dims=(dim + 1,))  # where each part's extreme is
    best, part = PRIMITIVES[name](best, dim=dim)
    found = PRIMITIVES["gather"](last, part, dim=dim) + part * length
    best, found = _shifted(best, dim, 1), _shifted(found, dim, 1)
    firsts = _first_of(x, dim + 1)
    number = PRIMITIVES["iota"](shape=best.shape, dim=dim, dtype=INT64)
    own = build.eq(number, 0) | (firsts >= best if name == "cummax" else firsts <= best)
    if x.dtype.kind == "f":
        own = own | PRIMITIVES["ne"](firsts, firsts)
    begin = build.select(own, firsts, best)
    values, at = PRIMITIVES[name](build.select(build.eq(place, 0), _for_parts(begin, dim, shape), x), dim=dim + 1)
    start = number * length
    at = build.select(
        build.eq(at, 0), _for_parts(build.select(own, start, found), dim, shape), at + _for_parts(start, dim, shape)
    )
    return build.reshape(values, whole), build.reshape(at, whole)


def _first_of(x: Any, dim: int) -> Any:
    """The first element along a dim, which vanishes."""
    return build.squeeze(_steps(x, dim, 0, 1), (dim,))


# ***** sorting *****


def _last(x: Any, dim: int) -> tuple[list[int], list[int]]:
    """The permutation that brings a dim to the end, and the one that brings it back."""
    perm = [d for d in range(len(x.shape)) if d != dim] + [dim]
    return perm, [perm.index(d) for d in range(len(perm))]


def _sort_rows(x: Any, dim: int, descending: bool, stable: bool) -> Any:
    """Sorting along the last dim, for that is what the library call does."""
    perm, back = _last(x, dim)
    found = PRIMITIVES["sort"](build.transpose(x, perm), dim=len(perm) - 1, descending=descending, stable=stable)
    return tuple(build.transpose(v, back) for v in found)


def _topk_rows(x: Any, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    """The same for the largest or smallest few."""
    perm, back = _last(x, dim)
    found = PRIMITIVES["topk"](build.transpose(x, perm), k=k, dim=len(perm) - 1, largest=largest, sorted=sorted)
    return tuple(build.transpose(v, back) for v in found)


def _kth_rows(x: Any, rank: int, dim: int, ties: str) -> Any:
    """The same for the one of a rank."""
    perm, back = _last(x, dim)
    found = PRIMITIVES["kth"](build.transpose(x, perm), rank=rank, dim=len(perm) - 1, ties=ties)
    return tuple(build.transpose(v, back) for v in found)


def _topk_by_sort(x: Any, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    """The first of all in order."""
    starts, stops = (0,) * len(x.shape), tuple(k if d == dim else s for d, s in enumerate(x.shape))
    found = PRIMITIVES["sort"](x, dim=dim, descending=largest, stable=True)
    return tuple(PRIMITIVES["slice"](v, starts=starts, stops=stops, steps=(1,) * len(stops)) for v in found)
