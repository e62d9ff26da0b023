"""Combiners of reductions and scans: the parts of a running result, their initial values, and how two are merged.

Part lists are [value], [real, imaginary] for complex numbers, and [value, position] for extremes with their positions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._codegen.blocks import BlockBuilder, Value
from rushlight._codegen.grid.elements import Elements
from rushlight._codegen.grid.signature import part_of
from rushlight._schedule.expressions import Item, identity
from rushlight._types.dtype import INT64, DType

__all__ = ["Combined"]

_EXTREMES = {"argmax": (True, False), "argmin": (False, False), "lastmax": (True, True), "lastmin": (False, True)}
_BOOLS = {"maximum": "bitwise_or", "minimum": "bitwise_and", "add": "bitwise_or", "mul": "bitwise_and"}
Combine = Callable[[BlockBuilder, Sequence[Value], Sequence[Value]], list[Value]]


class Combined:
    """One item of a reduction or a scan."""

    def __init__(self, item: Item, index: DType) -> None:
        self.item, self.dtype, self.index = item, item.dtype, index
        self.positioned = item.op in _EXTREMES
        if self.positioned:
            self.dtypes = [self.dtype, index]
        else:
            self.dtypes = [part_of(self.dtype)] * (2 if self.dtype.kind == "c" else 1)

    def parts(self, elements: Elements) -> list[Value]:
        """The parts of one element."""
        b = elements.b
        value = elements.x(self.item.value)
        if self.positioned:
            position = self.item.position
            assert position is not None
            at = elements.ix(position.value) if position.kind == "ix" else b.convert(elements.x(position), self.index)
            return elements.together(value, at)
        return [b.pointwise(n, value) for n in ("real", "imag")] if self.dtype.kind == "c" else [value]

    def neutral(self, elements: Elements) -> list[Value]:
        """Where a running result begins: scalars."""
        constant = elements.signature.constant
        if self.positioned:
            largest, last = _EXTREMES[self.item.op]
            far = -1 if last else (1 << 31 if self.index.itemsize == 4 else sys.maxsize + 1) - 1
            return [
                constant(identity("maximum" if largest else "minimum", self.dtype), self.dtype),
                constant(far, self.index),
            ]
        if self.dtype.kind == "c":
            return [constant(float(self.item.op == "mul" and not k), d) for k, d in enumerate(self.dtypes)]
        return [constant(identity(self.item.op, self.dtype), self.dtype)]

    def combine(self, b: BlockBuilder, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
        """Two running results as one; `left` has the elements that come first."""
        if self.positioned:
            return self._extreme(b, left, right)
        if self.dtype.kind == "c":
            z = b.pointwise(self.item.op, b.pointwise("complex", *left), b.pointwise("complex", *right))
            return [b.pointwise("real", z), b.pointwise("imag", z)]
        op = _BOOLS[self.item.op] if self.dtype.kind == "b" else self.item.op
        return [b.pointwise(op, left[0], right[0])]

    def _extreme(self, b: BlockBuilder, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
        """The greater (or smaller) value; NaN before all others; of equal ones the first or the last position."""
        largest, last = _EXTREMES[self.item.op]
        (x, i), (y, j) = left, right
        better = b.pointwise("lt", x, y) if largest else b.pointwise("lt", y, x)
        same = b.pointwise("eq", x, y)
        if self.dtype.kind == "f":
            x_nan, y_nan = b.pointwise("ne", x, x), b.pointwise("ne", y, y)
            both = b.pointwise("bitwise_and", x_nan, y_nan)
            better = b.pointwise("bitwise_or", better, b.pointwise("lt", x_nan, y_nan))
            same = b.pointwise("bitwise_or", same, both)
        later = b.pointwise("lt", i, j) if last else b.pointwise("lt", j, i)
        take = b.pointwise("bitwise_or", better, b.pointwise("bitwise_and", same, later))
        return [b.pointwise("select", take, y, x), b.pointwise("select", take, j, i)]

    def results(self, elements: Elements, parts: Sequence[Value]) -> dict[Any, Value]:
        """The values of the references to this item."""
        b, item = elements.b, self.item
        if self.positioned:
            return {(item, 0): b.convert(parts[1], INT64), (item, 1): parts[0]}
        value = b.pointwise("complex", *parts) if self.dtype.kind == "c" else parts[0]
        return {(item, 0): value}
