"""Rewrites of products of narrow floats for the backend's routines: operands as they are in memory, one rounding at the
end.

Bodies and derivatives widen both operands before they multiply.  If nothing else is done to them, the routine widens
while it packs (a `dot` in the wider dtype), and if the result is narrowed at once, it does that too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rushlight._graph.core import rebuilt
from rushlight._prims import build
from rushlight._schedule.rewrites.fused_products import (
    column_product,
    converted_product,
    in_pieces,
    lies_in_memory,
    outer_product,
    row_product,
    small_products,
)
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rushlight._graph.core import Graph, Node, Value
    from rushlight._types.dtype import DType

__all__ = ["LARGE_SIDE", "LARGE_WORK", "PACKED", "dot_rule", "narrowed", "takes_prologues"]

PACKED = ("float16", "bfloat16")  # dtypes that routines convert while packing
LARGE_WORK = 1 << 28  # multiplications above which operands are packed once for all pieces
# the same of rows, and of columns: with fewer, a panel is used too rarely to be written to memory and read again
LARGE_SIDE = 256
SLENDER = 16  # most elements of the matrix of a slender product, of many rows by it
_MOVES = ("reshape", "transpose", "broadcast", "slice")


def narrowed(graph: Graph, packed: Sequence[str] = PACKED) -> Graph:
    """The graph with products of widened operands, of a dtype in `packed`, replaced by products of the narrow ones; the
    same graph if there are none."""
    products = {
        node: sources
        for node in graph.nodes
        if node.prim.name == "dot"
        and not _slender(*node.inputs)
        and (sources := _sources(node.inputs, packed)) is not None
    }
    if not products:
        return graph
    uses: dict[Value, int] = {}
    for value in (*(v for node in graph.nodes for v in node.inputs), *graph.outputs):
        uses[value] = uses.get(value, 0) + 1

    def apply(node: Node, inputs: list[Any]) -> Any:
        if node in products:
            a, b = [_moved(chain, source) for source, chain in _sources(inputs, packed) or ()]
            return build.dot(a, b, node.outputs[0].dtype)
        if _rounds(node, products, uses):
            return build.dot(*inputs[0].node.inputs)
        return node.prim(*inputs, **node.params)

    return rebuilt(graph, apply)


def takes_prologues(node: Node, vector_bytes: int) -> bool:
    """Whether the operands of a product can be computed while they are packed: it is large, and by our own kernels.

    Packing then computes each element once.  A library reads operands from memory; it may be faster on machines with
    short vectors.
    """
    if node.prim.name != "dot":
        return False
    (a, b), dtype = node.inputs, node.inputs[0].dtype
    if len(a.shape) != 2 or dtype.kind != "f" or not (dtype.name in PACKED or vector_bytes == 64):
        return False
    (m, k), n = a.shape, b.shape[1]
    return min(m, n) >= LARGE_SIDE and m * n * k > LARGE_WORK


def _sources(values: Sequence[Value], packed: Sequence[str]) -> list[tuple[Value, list[Node]]] | None:
    """For both operands of a product its inputs, the narrow value that was widened, and its moves; None if there is
    none."""
    a, b = (_source(value, packed) for value in values)
    if a is None or b is None:
        return None
    x, y = a[0].dtype, b[0].dtype
    return [a, b] if x is y or (x.itemsize == 1 and y.itemsize == 1) else None


def _source(value: Value, packed: Sequence[str]) -> tuple[Value, list[Node]] | None:
    chain = []
    while value.node is not None and value.node.prim.name in _MOVES:
        chain.append(value.node)
        value = value.node.inputs[0]
    node = value.node
    if (
        node is None
        or node.prim.name != "convert"
        or node.inputs[0].dtype.name not in packed
        or node.inputs[0].dtype.wide is not value.dtype
    ):
        return None
    return node.inputs[0], chain[::-1]


def _moved(chain: list[Node], x: Any) -> Any:
    for node in chain:
        x = node.prim(x, **node.params)
    return x


def _rounds(node: Node, products: dict[Node, Any], uses: dict[Value, int]) -> bool:
    """Whether a node narrows a product without other readers to the dtype of its operands."""
    if node.prim.name != "convert" or uses[node.inputs[0]] != 1:
        return False
    product = products.get(node.inputs[0].node) if node.inputs[0].node is not None else None
    return product is not None and product[0][0].dtype is node.params["dtype"] and product[0][0].dtype.itemsize > 1


def narrow_rule(node: Node) -> Any:
    """The replacement of a product of narrow floats: None if routines take them, else one of widened operands, which
    fuses with vectors."""
    a, b = node.inputs
    thin = 1 in (a.shape[-2], a.shape[-1], b.shape[-1]) or 0 in (*a.shape, *b.shape)
    return _half_product if thin or _slender(a, b) or a.dtype.name not in PACKED else None


def _slender(a: Value, b: Value) -> bool:
    """Whether a product is many short rows times a small matrix: packing narrow numbers then takes longer than widening
    and multiplying them."""
    k, n = b.shape[-2:]
    return a.dtype.itemsize <= 4 and k * n <= SLENDER and a.shape[-2] >= 64 * max(k, n)


def _half_product(a: Any, b: Any, dtype: DType) -> Any:
    """Narrow dtypes multiplied and added in a wider one and rounded once."""
    wide = dtype.wide
    return build.convert(build.dot(build.convert(a, wide), build.convert(b, wide)), dtype)


# ***** products that are better sums *****

# Fewest matrices of a batch, and most multiplications, for which plain sums are faster than matrix kernels
MANY, TINY = (64, 512)
SMALL = 9  # most elements of a small matrix for which rows of many narrow numbers are multiplied by plain sums too
SPLIT_STEPS = 4096  # fewest steps whose sums may be divided for a small result
SPLIT_RESULT = 1 << 14  # most elements of such a result
PIECE_STEPS, PIECE_WORK, MOST_PIECES = (1024, 1 << 18, 32)  # least steps and multiplications of a piece; most pieces


def dot_rule(node: Node) -> Any:
    (a, b), dtype = node.inputs, node.outputs[0].dtype
    if dtype is not a.dtype:
        return (
            None if dtype.is_integer and len(a.shape) == 2 and numel(a.shape) and numel(b.shape) else converted_product
        )
    if (
        b.shape[-2] >= SPLIT_STEPS
        and (pieces := _pieces_of_steps(a.shape, b.shape)) > 1
        and (a.dtype.wide is a.dtype or a.dtype.name in PACKED)
    ):
        return partial(in_pieces, pieces)
    if numel(a.shape[:-2]) >= MANY and 0 < a.shape[-2] * b.shape[-2] * b.shape[-1] <= TINY and a.dtype.kind in "fc":
        return small_products
    if a.dtype.wide is not a.dtype:
        return (
            small_products
            if numel(a.shape[:-1]) >= MANY and 0 < b.shape[-2] * b.shape[-1] <= SMALL
            else narrow_rule(node)
        )
    if a.dtype.kind not in "fc" or numel(node.outputs[0].shape) == 0 or a.shape[-1] == 0:
        return None
    if a.shape[-1] == 1:
        return outer_product
    if b.shape[-1] == 1 and not lies_in_memory(a):
        return column_product
    if a.shape[-2] == 1 and not lies_in_memory(b):
        return row_product
    return None


def _pieces_of_steps(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """The number of partial sums of a product, from its sizes alone: otherwise a small result is one piece, however
    long its sums."""
    batch, (m, k), n = numel(a[:-2]), a[-2:], b[-1]
    if batch * m * n > SPLIT_RESULT or batch >= 8 or 1 in (m, n):
        return 1
    most = min(MOST_PIECES // batch, k // PIECE_STEPS, m * n * k // PIECE_WORK)
    # of equal length, if about as many can be
    return next((count for count in range(most, most // 2, -1) if k % count == 0), most)
