"""Whether the region of a reduction gives the same for either order of its operands: then any element may be combined with any.

One commutative primitive does.  So does a region that only compares and chooses, as argmax does, if it gives the same for all
ways in which the elements of two operands can lie to each other: those are few, and all are tried.
"""

from __future__ import annotations

from rushlight._base.lazy import numpy as np
from rushlight._prims.numbers import holder
from rushlight._types.dtype import DType

from .interpret import Program
from .ir import Region
from .memory import BlockMemory

__all__ = ["commutes", "single_primitive"]

_COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"})
_CHOOSING = frozenset({"lt", "le", "eq", "ne", "select", "maximum", "minimum"})
_LOGICAL = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor"})
_MOST = 5  # operands, of which each may be less, equal or greater


def single_primitive(region: Region) -> str:
    """The primitive that a region is, if it is a commutative one; else empty."""
    if len(region.ops) != 2 or region.ops[0].kind != "pointwise" or len(region.params) != 2:
        return ""
    op = region.ops[0]
    fits = op.operands in (region.params, region.params[::-1]) and region.yielded == op.results
    return op.attributes["prim"] if fits and op.attributes["prim"] in _COMMUTATIVE else ""


def commutes(region: Region) -> bool:
    """Whether the order of the two operands is known not to matter (but for NaN, which no order is defined with)."""
    if single_primitive(region):
        return True
    count = len(region.params) // 2
    if count > _MOST or not _chooses(region):
        return False
    # for each operand: less, equal, greater
    ways = np.array(np.meshgrid(*[[0, 1, 2]] * count, indexing="ij")).reshape(count, -1)
    dtypes = [holder(p.dtype) for p in region.params]
    left = [np.where(w == 2, 1, 0).astype(d) for w, d in zip(ways, dtypes, strict=False)]
    right = [np.where(w == 0, 1, 0).astype(d) for w, d in zip(ways, dtypes, strict=False)]
    one = Program(BlockMemory(), (0, 0, 0), (1, 1, 1), 0, print).region(region, [*left, *right])
    other = Program(BlockMemory(), (0, 0, 0), (1, 1, 1), 0, print).region(region, [*right, *left])
    return all(bool((a == b).all()) for a, b in zip(one, other, strict=True))


def _chooses(region: Region) -> bool:
    """Whether a region does nothing but compare elements of one operand, combine what comes out, and choose.

    What it does then depends on how the elements lie to each other, and not on what they are.
    """
    origin = {p: k % (len(region.params) // 2) for k, p in enumerate(region.params)}
    truth: set[object] = set()
    for op in region.ops[:-1]:
        prim = op.attributes.get("prim") if op.kind == "pointwise" else None
        element = op.result.type.element if op.results else None
        if prim in _LOGICAL and all(v in truth for v in op.operands):
            truth.add(op.result)
            continue
        if prim not in _CHOOSING or not isinstance(element, DType):
            return False
        given = op.operands[1:] if prim == "select" else op.operands
        if prim == "select" and op.operands[0] not in truth:
            return False
        places = {origin.get(v) for v in given}
        if len(places) != 1 or None in places:
            return False
        if prim in ("lt", "le", "eq", "ne"):
            truth.add(op.result)
        else:
            (origin[op.result],) = (p for p in places if p is not None)
    return all(v in origin for v in region.yielded)
