"""Which regions of reductions may combine in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rushlight._codegen.blocks import BlockBuilder, Region, Tile, Value
from rushlight._codegen.blocks.commuting import commutes
from rushlight._types.dtype import FLOAT32, INT32


def region(combine: Callable[[BlockBuilder, Any, Any], list[Value]]) -> Region:
    return BlockBuilder("k", []).combining([Tile(FLOAT32), Tile(INT32)], combine)


def chosen(tie: str) -> Callable[[BlockBuilder, Any, Any], list[Value]]:
    """The larger, and where it is; of equals the one that `tie` says."""

    def combine(b: BlockBuilder, p: Any, q: Any) -> list[Value]:
        left = b.pointwise("lt", q[0], p[0])
        equal = b.pointwise("eq", q[0], p[0])
        if tie == "first":
            left = b.pointwise("bitwise_or", left, b.pointwise("bitwise_and", equal, b.pointwise("lt", p[1], q[1])))
        elif tie == "left":
            left = b.pointwise("bitwise_or", left, equal)
        return [b.pointwise("select", left, x, y) for x, y in zip(p, q, strict=True)]

    return combine


@pytest.mark.parametrize(("tie", "expected"), [("first", True), ("left", False), ("", False)])
def test_argmax(tie: str, expected: bool) -> None:
    """Only where equals are told apart by their places may they change sides."""
    assert commutes(region(chosen(tie))) is expected


def test_arithmetic_is_not_looked_into() -> None:
    both = lambda b, p, q: [b.pointwise("add", p[0], q[0]), b.pointwise("maximum", p[1], q[1])]
    assert not commutes(region(both))
    assert commutes(region(lambda b, p, q: [b.pointwise("maximum", p[0], q[0]), b.pointwise("minimum", q[1], p[1])]))
    assert not commutes(region(lambda b, p, q: [p[0], q[1]]))
    one = BlockBuilder("k", []).combining([Tile(FLOAT32)], lambda b, p, q: [b.pointwise("mul", q[0], p[0])])
    assert commutes(one)
