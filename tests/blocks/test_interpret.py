"""The reference interpreter of block kernels beside NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.blocks.random_kernels import draw

from rushlight._codegen.blocks import (
    BlockBuilder,
    BlockFault,
    BlockMemory,
    Pointer,
    Tile,
    Value,
    interpret,
    kernel_text,
    verify,
)
from rushlight._types.dtype import BFLOAT16, BOOL, FLOAT32, INT32, INT64


def test_vector_add_with_a_mask() -> None:
    b = BlockBuilder("add", [Tile(Pointer(FLOAT32))] * 3 + [Tile(INT32)])
    x, y, out, n = b.params
    at = b.pointwise("add", b.arange(0, 8), b.splat(b.pointwise("mul", b.program_id(), b.constant(8, INT32)), (8,)))
    mask = b.pointwise("lt", at, b.splat(n, (8,)))
    p, q = (b.load(b.offset(b.splat(v, (8,)), at), mask) for v in (x, y))
    b.store(b.offset(b.splat(out, (8,)), at), b.pointwise("add", p, q), mask)
    kernel, memory = b.finish(), BlockMemory()
    verify(kernel)
    u, v, w = np.arange(13, dtype=np.float32), np.ones(13, np.float32), np.zeros(13, np.float32)
    interpret(kernel, (2,), [memory.add(u), memory.add(v), memory.add(w), 13], memory)
    np.testing.assert_array_equal(w, u + 1)


def run(tile: Any, make: Any, result: Any) -> Any:
    """What `make(builder, value)` gives of one tile."""
    b = BlockBuilder("one", [Tile(Pointer(INT32)), Tile(Pointer(result))])

    def pointers(pointer: Value, shape: tuple[int, ...]) -> Value:
        total = int(np.prod(shape))
        return b.offset(b.splat(pointer, shape), b.reshape(b.arange(0, total), shape))

    made = make(b, b.load(pointers(b.params[0], tile.shape)))
    b.store(pointers(b.params[1], made.shape), made)
    memory, out = BlockMemory(), np.zeros(made.shape, result.name)
    interpret(b.finish(), (1,), [memory.add(tile.astype(np.int32)), memory.add(out)], memory)
    return out


def test_reductions_and_scans_keep_the_order() -> None:
    """With the first of two as the combination, and with "keep the digits side by side"."""
    x = np.arange(24).reshape(4, 6)
    np.testing.assert_array_equal(run(x, lambda b, v: b.reduce([v], 1, lambda b, p, q: [p[0]])[0], INT32), x[:, 0])
    np.testing.assert_array_equal(run(x, lambda b, v: b.reduce([v], 0, lambda b, p, q: [q[0]])[0], INT32), x[3])
    add = lambda b, p, q: [b.pointwise("add", p[0], q[0])]
    np.testing.assert_array_equal(run(x, lambda b, v: b.scan([v], 1, add)[0], INT32), x.cumsum(1))
    back = x[::-1].cumsum(0)[::-1]
    np.testing.assert_array_equal(run(x, lambda b, v: b.scan([v], 0, add, True)[0], INT32), back)


def test_shapes() -> None:
    x = np.arange(24).reshape(4, 6)
    np.testing.assert_array_equal(run(x, lambda b, v: b.permute(v, (1, 0)), INT32), x.T)
    np.testing.assert_array_equal(run(x, lambda b, v: b.value("cat", v, v), INT32), np.concatenate([x, x]))
    joined = run(x, lambda b, v: b.value("join", v, b.pointwise("neg", v)), INT32)
    np.testing.assert_array_equal(joined, np.stack([x, -x], -1))
    halves = run(x.reshape(12, 2), lambda b, v: b.emit("split", v).results[1], INT32)
    np.testing.assert_array_equal(halves, x.reshape(12, 2)[:, 1])
    wide = run(x, lambda b, v: b.pointwise("mul", b.convert(v, INT64), b.constant(1 << 40, INT64, (4, 6))), INT64)
    np.testing.assert_array_equal(wide, x.astype(np.int64) << 40)
    high = run(x, lambda b, v: b.value("multiply_high", v, b.constant(1 << 30, INT32, (4, 6))), INT32)
    np.testing.assert_array_equal(high, x >> 2)


def test_bfloat16_is_rounded() -> None:
    out = run(np.array([257, 258, 259]), lambda b, v: b.convert(b.convert(v, BFLOAT16), FLOAT32), FLOAT32)
    np.testing.assert_array_equal(out, [256, 258, 260])


def test_faults_name_the_line() -> None:
    b = BlockBuilder("far", [Tile(Pointer(FLOAT32))])
    b.line = ("kernel.py", 7)
    b.load(b.offset(b.params[0], b.constant(4, INT32)))
    memory = BlockMemory()
    address = memory.add(np.zeros(4, np.float32))
    with pytest.raises(BlockFault, match=r"kernel\.py:7: load: 4 bytes at .*16 bytes"):
        interpret(b.finish(), (1,), [address], memory)
    b = BlockBuilder("wrong", [])
    b.line = ("kernel.py", 9)
    b.emit("assert", b.constant(0, BOOL), message="zero is not one")
    with pytest.raises(BlockFault, match=r"kernel\.py:9: assert: zero is not one \(program 0, 0, 0\)"):
        interpret(b.finish(), (1,), [], memory)


def test_atomics_and_prints() -> None:
    b = BlockBuilder("count", [Tile(Pointer(INT32))])
    old = b.value("atomic", b.splat(b.params[0], (4,)), b.arange(0, 4), combine="add")
    b.emit("print", old, prefix="old")
    memory, lines = BlockMemory(), []
    data = np.zeros(1, np.int32)
    interpret(b.finish(), (1,), [memory.add(data)], memory, printed=lines.append)
    assert data[0] == 6 and lines[3] == "pid (0, 0, 0) idx (3) old 3"


@pytest.mark.parametrize("seed", range(10))
def test_random_kernels_are_well_formed(seed: int) -> None:
    """They run, do not depend on what is undefined, and print alike."""
    case = draw(seed)
    verify(case.kernel)
    assert kernel_text(case.kernel) == kernel_text(draw(seed).kernel)
    for one, other in zip(case.reference(0), case.reference(0xFF), strict=True):
        np.testing.assert_array_equal(one, other)
