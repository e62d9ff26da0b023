"""Whether the region of a reduction gives the same for either order of its operands: then any element may be combined with any.

One commutative primitive does.  So does a region that only compares and chooses, as argmax does, if it gives the same for all
ways in which the elements of two operands can lie to each other: those are few, and all are tried.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import product

from rushlight._types.dtype import DType

from .ir import Region

__all__ = ["commutes", "single_primitive"]

_COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"})
_CHOOSING = frozenset({"lt", "le", "eq", "ne", "select", "maximum", "minimum"})
_LOGICAL = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor"})
_MEANING: Mapping[str, Callable[..., int]] = {  # plain Python: the first kernel of a process need not wait for NumPy
    "lt": operator.lt, "le": operator.le, "eq": operator.eq, "ne": operator.ne, "select": lambda c, x, y: x if c else y, "maximum": max,
    "minimum": min, "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
}  # fmt: skip
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
    for ways in product((0, 1, 2), repeat=count):  # each operand is less, equal or greater
        left, right = [int(way == 2) for way in ways], [int(way == 0) for way in ways]
        if _evaluated(region, [*left, *right]) != _evaluated(region, [*right, *left]):
            return False
    return True


def _evaluated(region: Region, numbers: Sequence[int]) -> list[int]:
    """The results of a region for these numbers; the region only chooses among its operands."""
    known = dict(zip(region.params, numbers, strict=True))
    for op in region.ops[:-1]:
        known[op.result] = _MEANING[op.attributes["prim"]](*[known[v] for v in op.operands])
    return [known[v] for v in region.yielded]


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
