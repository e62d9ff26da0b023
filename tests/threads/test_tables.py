"""Operands of products that lie where a table says: copied ahead of time, if nothing in the loop is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bench.cuda_kernels import builder
from tests.threads.twins import compare

from rushlight._codegen.blocks import Kernel
from rushlight._codegen.blocks.expressions import Term
from rushlight._codegen.threads import lower
from rushlight._types.dtype import FLOAT16, FLOAT32, INT32

_ROWS, _PAGE, _WIDTH = 32, 8, 64


def gathered(how: str) -> Kernel:
    """out = sum over turns of x @ (32 rows of y): `rows`: a table has the number of each row, `page`: one number for a turn,
    whose entry behind the last turn is not there.
    """
    b, (x, y, table, out, count) = builder(
        "gathered", {"x": FLOAT16, "y": FLOAT16, "table": INT32, "out": FLOAT32, "count": [INT32]}
    )
    row, column = b.index(_ROWS), b.index(_WIDTH)
    left = (x + (row[:, None] * _ROWS + b.index(_ROWS)[None, :])).load()

    def turn(i: Term, total: Term, *more: Term) -> list[Term]:
        if how == "page":
            at = (table + i // _ROWS).load() * _ROWS + row
        else:
            at = (table + i + row).load()
        if how == "chained":
            at = (at + more[0]) % 64
        right = (y + (at[:, None] * _WIDTH + column[None, :])).load()
        if how == "written":
            (table + i + row).store(at * 0)
        made = [b.matrix_product(left, right, total)]
        return made if how != "chained" else [*made, (table + i).load() % 2]

    carried = [b.number(0.0, FLOAT32, (_ROWS, _WIDTH))]
    if how == "chained":
        carried.append(b.number(0, INT32))
    total = b.loop(0, count, _ROWS, carried, turn)[0]
    (out + (row[:, None] * _WIDTH + column[None, :])).store(total)
    return b.finish(warps=4, stages=3, divisible={0: 16, 1: 16, 2: 16, 3: 16})


def arguments(how: str) -> list[Any]:
    drawn = np.random.default_rng(0)
    x, y = (drawn.integers(-4, 5, s).astype(np.float16) for s in ((_ROWS, _ROWS), (64, _WIDTH)))
    turns = 5
    entries = drawn.integers(0, 2, turns) if how == "page" else drawn.integers(0, 64, turns * _ROWS)
    return [x, y, entries.astype(np.int32), np.zeros((_ROWS, _WIDTH), np.float32), turns * _ROWS]


@pytest.mark.parametrize("how", ["rows", "page", "written", "chained"])
def test_rows_that_a_table_tells(how: str) -> None:
    """The twin refuses a read behind the table's end."""
    compare(gathered(how), (1,), arguments(how))


def test_which_are_copied_ahead() -> None:
    """Not where the loop writes, or where what a turn has read decides where the next one reads."""
    kinds = lambda how: {i.kind for i in lower(gathered(how), "sm_80").body.walk()}
    assert "copy_async" in kinds("rows") and "copy_async" in kinds("page")
    assert "copy_async" not in kinds("written") and "copy_async" not in kinds("chained")
