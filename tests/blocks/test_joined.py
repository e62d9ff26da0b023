"""Launches of one kernel as one launch: by the interpreter, by the twin, and as PTX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.threads.twins import compare

from rushlight._codegen.blocks import Kernel, Pointer, Tile, verify
from rushlight._codegen.blocks.expressions import TermBuilder
from rushlight._codegen.blocks.joined import can_be_joined, joined_kernel
from rushlight._codegen.threads import lower, nvptx_text
from rushlight._native.nvidia.nvptx import ptx_of
from rushlight._native.nvidia.ptxas import assemble, find_tool
from rushlight._types.dtype import FLOAT32, FLOAT64, INT32

TILE = 64


def scaled_sums() -> Kernel:
    """x[i] *= by, and the sum of each tile of x as it was."""
    b = TermBuilder("scaled", [Tile(Pointer(FLOAT32)), Tile(FLOAT64), Tile(INT32), Tile(Pointer(FLOAT32))], ["x", "by", "n", "sums"])  # fmt: skip
    x, by, n, sums = b.terms
    at = b.program() * TILE + b.index(TILE)
    was = (x + at).load(mask=at < n, other=0)
    (x + at).store(was * by.to(FLOAT32), mask=at < n)
    (sums + b.program()).store(b.total(was, 0))
    return b.finish(divisible={0: 16, 3: 16})


def table(sizes: list[int], rows: int) -> tuple[list[Any], int, list[Any]]:
    """Arguments for a table of rows, programs, and the arrays among the arguments."""
    rng, given, arrays, programs = np.random.default_rng(0), list[Any](), list[Any](), 0
    for k, size in enumerate(sizes):
        x, sums = rng.standard_normal(size, np.float32), np.zeros(-(-size // TILE), np.float32)
        given += [programs, x, k + 1.5, size, sums]
        arrays.append((x, sums))
        programs += len(sums)
    for _ in range(rows - len(sizes)):
        given += [programs, np.zeros(1, np.float32), 0.0, 0, np.zeros(1, np.float32)]
    return given, programs, arrays


@pytest.mark.parametrize(("sizes", "rows"), [([5], 1), ([200, 64], 2), ([1, 300, 64, 65, 7], 8), ([64] * 32, 32)])
def test_each_row_is_a_launch(sizes: list[int], rows: int) -> None:
    kernel = joined_kernel(scaled_sums(), [0, 1, 2, 3], rows)
    verify(kernel)
    given, programs, arrays = table(sizes, rows)
    found = compare(kernel, (programs,), given)
    for k, (x, sums) in enumerate(arrays):
        single = compare(scaled_sums(), (len(sums),), [x, k + 1.5, x.size, sums])
        for a, b in zip(found[2 * k : 2 * k + 2], single, strict=True):
            np.testing.assert_array_equal(a, b)


def test_parameters_that_are_equal_are_told_once() -> None:
    kernel = joined_kernel(scaled_sums(), [0, 3], 4)
    assert len(kernel.params) == 2 + 3 * 4
    assert kernel.divisible == dict.fromkeys((3, 4, 6, 7, 9, 10, 12, 13), 16)


def test_only_kernels_that_know_their_number_alone_can_be_joined() -> None:
    assert can_be_joined(scaled_sums())
    b = TermBuilder("grid", [Tile(Pointer(INT32))], ["x"])
    (b.terms[0] + b.program(1)).store(b.program())
    assert not can_be_joined(b.finish())


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100a"])
def test_the_table_is_read_where_parameters_lie(architecture: str) -> None:
    kernel = joined_kernel(scaled_sums(), [0, 1, 2, 3], 64)
    ptx = ptx_of(nvptx_text(lower(kernel, architecture)), architecture)
    assert ".param .align 8 .b8" in ptx and "ld.local" not in ptx and "__local_depot" not in ptx
    if find_tool("ptxas"):
        made = assemble(ptx, architecture)
        assert made.stack == made.spills == 0
