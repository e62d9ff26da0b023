"""Convolutions put as their routine takes them: what came before and after one becomes a number of it.

Padding and spreading by zeros (both gradients and transposed convolutions are made of them), a turned kernel and operands widened from a
narrow dtype are not written out; neither are a bias that is added and the rounding of the result.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rushlight._graph.core import GraphBuilder, evaluate
from rushlight._prims import build
from rushlight._prims.record import PRIMITIVES
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._graph.core import Graph, Node, Value

__all__ = ["finished", "fits_routine", "windowed"]

_DTYPES = ("float32", "float64", "float16", "bfloat16")


def fits_routine(node: Node) -> bool:
    """Whether a `conv` (or `conv_windows`) has elements, a dtype that the routine knows, and at most three dims of space."""
    dims = len(node.inputs[0].shape) - (2 if node.prim.name == "conv" else 3)
    return dims <= 3 and node.inputs[0].dtype.name in _DTYPES and all(numel(v.shape) for v in (*node.inputs, *node.outputs))


def windowed(size: tuple[int, ...], x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """A `conv` whose result has `size` places."""
    n, dtype = len(size), x.dtype
    x, w = _unwidened(x, w)
    lo, spread = tuple(padding), (1,) * n
    unpadded = _pad_of_space(x, padding)
    if unpadded is not None and (all(s == 1 for s in stride) or not any(unpadded.params["interior"])):
        lo = tuple(p + q for p, q in zip(padding, unpadded.params["lo"][2:], strict=True))
        spread = tuple(gap + 1 for gap in unpadded.params["interior"][2:])
        x = unpadded.inputs[0]
    flip = w.node is not None and w.node.prim.name == "flip" and set(w.node.params["dims"]) == set(range(2, n + 2))
    if flip:
        w = w.node.inputs[0]
    batch, outs = x.shape[0], w.shape[0]
    made = PRIMITIVES["conv_windows"](
        build.reshape(x, (batch, groups, x.shape[1] // groups, *x.shape[2:])), build.reshape(w, (groups, outs // groups, *w.shape[1:])),
        stride=tuple(stride), spread=spread, dilation=tuple(dilation), lo=lo, size=tuple(size), flip=flip, dtype=dtype,
    )  # fmt: skip
    return build.reshape(made, (batch, outs, *size))


def _unwidened(x: Value, w: Value) -> tuple[Value, Value]:
    """The operands before both were widened to the dtype of the sums."""
    narrow = [v.node.inputs[0] if v.node is not None and v.node.prim.name == "convert" else v for v in (x, w)]
    if narrow[0].dtype is narrow[1].dtype and narrow[0].dtype.name in _DTYPES and narrow[0].dtype.wide is x.dtype is not narrow[0].dtype:
        return narrow[0], narrow[1]
    return x, w


def _pad_of_space(x: Value, padding: Any) -> Node | None:
    """The node that padded (or spread) the dims of space with zeros, if reading beyond its operand gives zeros as well."""
    node = x.node
    if node is None or node.prim.name != "pad" or node.params["value"] != 0:
        return None
    lo, hi, gaps = node.params["lo"], node.params["hi"], node.params["interior"]
    if any((*lo[:2], *hi[:2], *gaps[:2])) or (any(padding) and min(*lo, *hi) < 0):
        return None
    return node


# ***** what comes after *****


def finished(graph: Graph) -> Graph:
    """The graph with biases and roundings that follow a `conv_windows`, and nobody else wants to see apart, put into it."""
    uses = Counter(id(x) for node in graph.nodes for x in node.inputs) + Counter(map(id, graph.outputs))
    alone: set[int] = set()  # values made by the routine that only one node reads
    builder = GraphBuilder()
    values = [builder.input(v.shape, v.dtype, v.weak) for v in graph.inputs]

    def apply(node: Node, inputs: list[Any]) -> Any:
        name, made = node.prim.name, None
        begun = [id(x) in alone for x in node.inputs]
        if name == "add" and any(begun):
            i = begun.index(True)
            made = _with_bias(inputs[i], inputs[1 - i])
        elif name == "convert" and begun[0]:
            made = _rounded(inputs[0], node.params["dtype"])
        if (made is not None or name == "conv_windows" or (name == "reshape" and begun[0])) and uses[id(node.outputs[0])] == 1:
            alone.add(id(node.outputs[0]))
        return made if made is not None else node.prim(*inputs, **node.params)

    with builder:
        outputs = evaluate(graph, values, apply)
    return builder.finish(outputs)


def _routine_of(value: Any) -> Any:
    """The `conv_windows` without a bias that a value is in another shape, or None."""
    node = value.node
    if node is None or node.prim.name != "reshape":
        return None
    node = node.inputs[0].node
    return node if node is not None and node.prim.name == "conv_windows" and len(node.inputs) == 2 else None


def _channel_row(value: Value, dtype: Any) -> Any:
    """The row [O] whose elements a value [N, O, *P] repeats for every place, or None."""
    node = value.node
    if node is None or node.prim.name != "broadcast":
        return None
    x, dims = node.inputs[0], node.params["dims"]
    kept = [(d, s) for d, s in zip(dims, x.shape, strict=True) if s != 1]
    whole = value.shape[1]
    if kept != ([(1, whole)] if whole != 1 else []):
        return None
    return build.reshape(x, (whole,))


def _with_bias(y: Any, other: Any) -> Any:
    """`y + other` where y has just been made by the routine and other repeats a row of channels; None where that is not so."""
    node = _routine_of(y)
    row = None if node is None else _channel_row(other, y.dtype)
    if node is None or row is None:
        return None
    made = PRIMITIVES["conv_windows"](*node.inputs, build.reshape(row, node.inputs[1].shape[:2]), **node.params)
    return build.reshape(made, y.shape)


def _rounded(y: Any, dtype: Any) -> Any:
    """`y` in a narrow dtype where it has just been made from operands of that dtype; None where that is not so."""
    node = y.node
    if node is None or node.prim.name != "reshape":
        return None
    node = node.inputs[0].node
    if node is None or node.prim.name != "conv_windows" or node.inputs[0].dtype is not dtype or node.params["dtype"] is dtype:
        return None
    bias = []
    for row in node.inputs[2:]:
        narrow = _narrow_row(row, dtype)
        if narrow is None:
            return None
        bias.append(narrow)
    made = PRIMITIVES["conv_windows"](*node.inputs[:2], *bias, **{**node.params, "dtype": dtype})
    return build.reshape(made, y.shape)


def _narrow_row(row: Value, dtype: Any) -> Any:
    """A bias before it was widened, or None."""
    x = row
    while x.node is not None and x.node.prim.name == "reshape":
        x = x.node.inputs[0]
    if x.node is None or x.node.prim.name != "convert" or x.node.inputs[0].dtype is not dtype:
        return None
    return build.reshape(x.node.inputs[0], row.shape)
