"""Each operation of the block IR through the thread form, on several dtypes, shapes and numbers of warps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.blocks.random_kernels import memory_of
from tests.threads.twins import TwinError, compare, run_twin

from rushlight._codegen.blocks import BlockBuilder, Kernel, Pointer, Tile, Value
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import (
    BFLOAT16,
    BOOL,
    COMPLEX64,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    UINT8,
    DType,
)

Body = Callable[[TermBuilder, list[Term]], Term]
WARPS = (1, 4, 8)


def kernel_of(shapes: Sequence[tuple[tuple[int, ...], DType]], body: Body, result: DType, warps: int) -> Kernel:
    """Loads tiles, stores what `body` makes of them, all row-major."""
    b = TermBuilder("k", [Tile(Pointer(d)) for _, d in shapes] + [Tile(Pointer(result))])
    loaded = [_places(b, p, shape).load() for p, (shape, _) in zip(b.terms, shapes, strict=False)]
    made = body(b, loaded)
    _places(b, b.terms[-1], made.shape).store(made)
    return b.finish(warps=warps, divisible=dict.fromkeys(range(len(shapes) + 1), 16))


def _places(b: TermBuilder, pointer: Term, shape: Sequence[int]) -> Term:
    size = int(np.prod(shape))
    return pointer + b.index(size).reshape(*shape) if shape else pointer


def numbers(shape: Sequence[int], dtype: DType, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    low = 0 if dtype in (BOOL, UINT8) else -4
    made = random.integers(low, 2 if dtype is BOOL else 5, shape)
    return memory_of(dtype, made.astype(np.float64) if dtype.kind == "f" else made)


def check(
    shapes: Sequence[tuple[tuple[int, ...], DType]],
    body: Body,
    result: DType,
    out: Sequence[int],
    warps: int,
    **close: Any,
) -> None:
    given = [numbers(shape, dtype, n) for n, (shape, dtype) in enumerate(shapes)]
    compare(kernel_of(shapes, body, result, warps), (1,), [*given, memory_of(result, np.zeros(out))], **close)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT16, BFLOAT16, FLOAT64, INT8, INT32, INT64, UINT8, BOOL, COMPLEX64])
def test_every_dtype_is_loaded_moved_and_stored(dtype: DType) -> None:
    """A transpose: written in another layout than it was read in."""
    for warps, shape in ((1, (4, 8)), (4, (32, 64))):
        check([(shape, dtype)], lambda b, x: x[0].permute(1, 0), dtype, shape[::-1], warps)


@pytest.mark.parametrize("warps", WARPS)
@pytest.mark.parametrize(("shape", "axis"), [((256,), 0), ((64, 16), 0), ((16, 64), 1), ((2, 8, 16), 1), ((4, 4), 0)])
def test_reductions(shape: tuple[int, ...], axis: int, warps: int) -> None:
    out = shape[:axis] + shape[axis + 1 :]
    check([(shape, FLOAT32)], lambda b, x: b.total(x[0], axis), FLOAT32, out, warps)


def _argmax(b: BlockBuilder, left: list[Value], right: list[Value]) -> list[Value]:
    """The greater number, of equal ones the first; not commutative in how it is written."""
    better = b.pointwise("le", right[0], left[0])
    return [b.pointwise("select", better, x, y) for x, y in zip(left, right, strict=True)]


def _affine(b: BlockBuilder, left: list[Value], right: list[Value]) -> list[Value]:
    """x -> a x + c, one after the other: associative, not commutative."""
    scaled = b.pointwise("mul", left[1], right[0])
    return [b.pointwise("mul", left[0], right[0]), b.pointwise("add", scaled, right[1])]


@pytest.mark.parametrize("warps", WARPS)
def test_ordered_reductions(warps: int) -> None:
    def body(b: TermBuilder, x: list[Term]) -> Term:
        places = b.index(64).spread((16, 64))
        _, place = b.reduce([x[0].value, places.value], 1, _argmax)
        return Term(b, place)

    check([((16, 64), FLOAT32)], body, INT32, (16,), warps)
    maps = lambda b, x: Term(b, b.reduce([x[0].value, x[1].value], 0, _affine)[1])
    check([((128, 2), INT32)] * 2, maps, INT32, (2,), warps)


@pytest.mark.parametrize("warps", WARPS)
@pytest.mark.parametrize("reverse", [False, True])
def test_scans(reverse: bool, warps: int) -> None:
    for shape, axis in (((128,), 0), ((32, 8), 0), ((8, 32), 1)):
        maps = lambda b, x, axis=axis: Term(b, b.scan([x[0].value, x[1].value], axis, _affine, reverse=reverse)[1])
        check([(shape, INT32)] * 2, maps, INT32, shape, warps)


@pytest.mark.parametrize("warps", WARPS)
def test_shapes(warps: int) -> None:
    pair = [((16, 8), INT32)] * 2
    check(pair, lambda b, x: b.paired(x[0], x[1]), INT32, (16, 8, 2), warps)
    check(pair, lambda b, x: Term(b, b.value("cat", x[0].value, x[1].value)), INT32, (32, 8), warps)
    check([((16, 8, 2), INT32)], lambda b, x: b.halves(x[0])[1] - b.halves(x[0])[0], INT32, (16, 8), warps)
    check([((16, 8), INT32)], lambda b, x: x[0].reshape(8, 16).permute(1, 0), INT32, (16, 8), warps)
    check([((8,), INT32), ((16, 1), INT32)], lambda b, x: x[0] * x[1], INT32, (16, 8), warps)


@pytest.mark.parametrize("warps", WARPS)
def test_gather_and_histogram(warps: int) -> None:
    index = lambda x: x & 15
    check([((16, 32), FLOAT32), ((8, 32), INT32)], lambda b, x: b.taken(x[0], index(x[1]), 0), FLOAT32, (8, 32), warps)
    check([((8, 16), FLOAT32), ((8, 64), INT64)], lambda b, x: b.taken(x[0], index(x[1]), 1), FLOAT32, (8, 64), warps)
    check([((256,), INT32)], lambda b, x: Term(b, b.value("histogram", x[0].value, bins=4)), INT32, (4,), warps)


@pytest.mark.parametrize("combine", ["add", "max", "min", "and", "or", "xor"])
def test_atomics(combine: str) -> None:
    """Several elements and programs at each address."""
    for dtype in (INT32, INT64, FLOAT32, FLOAT16, BFLOAT16):
        if dtype.kind == "f" and combine in ("and", "or", "xor"):
            continue
        b = TermBuilder("k", [Tile(Pointer(dtype))] * 2)
        x, out = b.terms
        places = b.index(64)
        value = (x + places + b.program() * 64).load()
        b.emit("atomic", (out + (places & 7)).value, value.value, combine=combine)
        compare(b.finish(warps=4), (3,), [numbers((192,), dtype), numbers((8,), dtype, 1)])


def test_results_of_atomics_reach_all_threads() -> None:
    b = TermBuilder("k", [Tile(Pointer(INT32))] * 3)
    x, count, out = b.terms
    ticket = b.value("atomic", count.value, b.constant(1, INT32), combine="add")
    (out + b.program() * 64 + b.index(64)).store((x + b.index(64)).load() + Term(b, ticket))
    compare(b.finish(warps=4), (2,), [numbers((64,), INT32), np.array([5], np.int32), np.zeros(128, np.int32)])

    b = TermBuilder("k", [Tile(Pointer(INT32))] * 2)
    x, out = b.terms
    at = x + b.index(8)
    old = b.value("atomic_cas", at.value, b.constant(1, INT32, (8,)), b.constant(9, INT32, (8,)))
    (out + b.index(8)).store(Term(b, old))
    compare(b.finish(warps=4), (1,), [np.arange(8, dtype=np.int32) % 3, np.zeros(8, np.int32)])


def test_control_flow_of_tiles_and_scalars() -> None:
    """A while loop whose turns depend on what was loaded, with an `if` within."""
    b = TermBuilder("k", [Tile(Pointer(INT32))] * 2)
    x, out = b.terms
    tile, left = (x + b.index(64)).load(), x.load()
    with b.region([left.value.type, tile.value.type]) as before:
        more = b.pointwise("lt", b.constant(0, INT32), before.params[0])
        b.emit("yield", more, *before.params)
    with b.region([left.value.type, tile.value.type]) as after:
        odd = b.pointwise("eq", b.pointwise("bitwise_and", after.params[0], b.constant(1, INT32)), b.constant(1, INT32))
        same = after.params[1]
        (grown,) = b.if_(
            odd, lambda: [b.pointwise("add", same, b.arange(0, 64))], lambda: [b.pointwise("add", same, same)]
        )
        b.emit("yield", b.pointwise("sub", after.params[0], b.constant(1, INT32)), grown)
    results = b.emit("while", left.value, tile.value, regions=[before, after]).results
    (out + b.index(64)).store(Term(b, results[1]))
    given = numbers((64,), INT32)
    given[0] = 5
    kernel = b.finish()
    for kernel.warps in WARPS:
        compare(kernel, (1,), [given, np.zeros(64, np.int32)])


def test_values_that_change_places_in_a_loop() -> None:
    b = TermBuilder("k", [Tile(Pointer(INT32))] * 2)
    x, out = b.terms
    first, second = (x + b.index(64)).load(), (x + b.index(64) + 64).load()
    got = b.loop(0, 3, 1, [first, second], lambda i, u, v: [v, u + v])
    (out + b.index(64)).store(got[0])
    compare(b.finish(warps=2), (1,), [numbers((128,), INT32), np.zeros(64, np.int32)])


def test_products_of_batches_and_small_tiles() -> None:
    for shapes in (((2, 16, 8), (2, 8, 16)), ((4, 8), (8, 4)), ((16, 16), (16, 8))):
        out = (*shapes[0][:-1], shapes[1][-1])
        for dtype in (FLOAT16, FLOAT64):
            result = FLOAT32 if dtype is FLOAT16 else dtype
            body = lambda b, x, out=out, result=result: b.matrix_product(x[0], x[1], b.number(1.0, result, out))
            check([(s, dtype) for s in shapes], body, result, out, 4)


def test_accesses_outside_of_memory_are_reported_with_their_line() -> None:
    b = TermBuilder("k", [Tile(Pointer(FLOAT32))], line=("user.py", 12))
    (b.terms[0] + b.index(64) + (1 << 20)).store(1.0)
    with pytest.raises(TwinError, match=r"user\.py:12: store: 4 bytes at 0x") as found:
        run_twin(b.finish(), (1,), [np.zeros(64, np.float32)])
    assert found.value.code == 700


def test_failed_assertions_are_reported_with_their_message() -> None:
    b = TermBuilder("k", [Tile(Pointer(FLOAT32))], line=("user.py", 3))
    b.emit("assert", ((b.terms[0] + b.index(64)).load() < 2.0).value, message="all below 2")
    kernel = b.finish()
    run_twin(kernel, (1,), [np.ones(64, np.float32)])
    with pytest.raises(TwinError, match=r"user\.py:3: all below 2") as found:
        run_twin(kernel, (1,), [np.full(64, 2, np.float32)])
    assert found.value.code == 710


def test_prints(capfd: pytest.CaptureFixture[str]) -> None:
    """Each element once, whatever the number of threads that hold it."""
    b = TermBuilder("k", [Tile(Pointer(FLOAT32))])
    tile = (b.terms[0] + b.index(4).reshape(2, 2)).load()
    b.emit("print", tile.value, prefix="x 100%")
    b.emit("print", (b.program() + 20).value, prefix="n", hex=True)
    b.emit("print", prefix="done")
    run_twin(b.finish(warps=2), (1,), [np.array([1, 2.5, -3, 4], np.float32)])
    lines = sorted(capfd.readouterr().out.splitlines())
    expected = ["pid (0, 0, 0) done", "pid (0, 0, 0) idx (0, 0) x 100% 1", "pid (0, 0, 0) idx (0, 1) x 100% 2.5"]
    assert lines == [
        *expected,
        "pid (0, 0, 0) idx (1, 0) x 100% -3",
        "pid (0, 0, 0) idx (1, 1) x 100% 4",
        "pid (0, 0, 0) n 0x14",
    ]
