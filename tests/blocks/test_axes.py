"""What the axis analysis claims holds in every random kernel, for every value, by the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.blocks.random_kernels import draw

from rushlight._codegen.blocks import BlockBuilder, BlockMemory, Kernel, Pointer, Tile, Value
from rushlight._codegen.blocks.axes import Axes, axes_of
from rushlight._codegen.blocks.interpret import Program
from rushlight._types.dtype import FLOAT32, INT32


def check(value: Value, known: Axes, x: Any) -> None:
    """Whether an array is as the analysis says."""
    element = value.type.element
    unit = element.to.itemsize if isinstance(element, Pointer) else 1
    x = np.asarray(x).astype(np.int64) if unit > 1 or x.dtype.kind in "iub" else x
    x = x.reshape(x.shape or (1,))
    for d, size in enumerate(x.shape):
        rows = np.moveaxis(x, d, -1)
        run, same = known.contiguous[d], known.constant[d]
        for start in range(0, size, run):
            part = rows[..., start : start + run]
            assert (part == part[..., :1] + unit * np.arange(part.shape[-1])).all() if run > 1 else True, (value, known)
            if x.dtype.kind in "iu" and known.multiple[d] > 1:
                assert (part[..., 0] % known.multiple[d] == 0).all(), (value, known, part[..., 0])
        for start in range(0, size, same):
            part = rows[..., start : start + same]
            assert (part == part[..., :1]).all(), (value, known)


class Checked(Program):
    known: dict[Value, Axes]

    def found(self, value: Value, array: Any) -> None:
        within = np.ndim(array) > len(value.shape)  # of a reduction's region, which the interpreter runs on whole tiles
        if (
            value in self.known
            and not within
            and (isinstance(value.type.element, Pointer) or value.dtype.kind in "iub")
        ):
            check(value, self.known[value], array)


def run_checked(kernel: Kernel, programs: int, arguments: list[Any]) -> None:
    memory = BlockMemory()
    words = [memory.add(a) if isinstance(a, np.ndarray) else a for a in arguments]
    given = [
        np.asarray(w, np.int64 if isinstance(p.type.element, Pointer) else np.int32)
        for p, w in zip(kernel.params, words, strict=True)
    ]
    known = axes_of(kernel)
    for x in range(programs):
        program = Checked(memory, (x, 0, 0), (programs, 1, 1), 0, lambda text: None)
        program.known = known
        with np.errstate(all="ignore"):
            program.region(kernel.body, given)


@pytest.mark.parametrize("seed", range(15))
def test_claims_hold_in_random_kernels(seed: int) -> None:
    case = draw(seed, 9)
    run_checked(case.kernel, case.grid[0], case.fresh())


def test_a_wrapped_row_is_contiguous_where_the_bound_is_divisible() -> None:
    b = BlockBuilder("k", [Tile(Pointer(FLOAT32)), Tile(INT32), Tile(INT32)])
    x, n, stride = b.params
    start = b.pointwise("mul", b.program_id(), b.constant(32, INT32))
    place = b.pointwise("add", b.splat(start, (32,)), b.arange(0, 32))
    column = b.pointwise("rem_trunc", place, b.splat(n, (32,)))
    row = b.broadcast(b.expand_dims(b.pointwise("mul", b.arange(0, 4), b.splat(stride, (4,))), 1), (4, 32))
    at = b.offset(b.splat(x, (4, 32)), b.pointwise("add", row, b.broadcast(b.expand_dims(column, 0), (4, 32))))
    mask = b.pointwise("lt", place, b.splat(n, (32,)))
    b.load(at)
    kernel = b.finish(divisible={0: 64, 1: 16, 2: 16})
    known = axes_of(kernel)
    assert known[at] == Axes((1, 16), (4, 64), (1, 1))
    assert known[mask].constant == (16,)
    run_checked(kernel, 2, [np.zeros(400, np.float32), 48, 80])


def test_pointers_that_advance_in_a_loop() -> None:
    b = BlockBuilder("k", [Tile(Pointer(FLOAT32))])
    first = b.offset(b.splat(b.params[0], (64,)), b.arange(0, 64))
    zero, one, count = (b.constant(v, INT32) for v in (0, 1, 4))
    kept: list[Value] = []

    def body(i: Value, pointer: Value) -> list[Value]:
        kept.append(pointer)
        b.load(pointer)
        return [b.offset(pointer, b.constant(32, INT32, (64,)))]

    b.for_(zero, count, one, [first], body)
    kernel = b.finish(divisible={0: 16})
    assert axes_of(kernel)[kept[0]] == Axes((64,), (16,), (1,))
    run_checked(kernel, 1, [np.zeros(400, np.float32)])
