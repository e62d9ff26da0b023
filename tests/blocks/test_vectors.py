"""Block kernels as vector code beside the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.blocks.random_kernels import FEATURES, Case, draw, memory_of

from rushlight._backends.cpu.blocks import compile_block
from rushlight._codegen.blocks import BlockBuilder, BlockFault, Pointer, Tile, Value
from rushlight._codegen.blocks.memory import numbers_of
from rushlight._codegen.blocks.vectors import Machine
from rushlight._types.dtype import (
    BFLOAT16,
    BOOL,
    BY_NAME,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT32,
    DType,
)

MACHINES = {"here": None, "avx2": Machine(32), "sse": Machine(16, fma=False)}


def run(case: Case, **options: Any) -> list[Any]:
    """The arguments after the compiled kernel has run."""
    given = case.fresh()
    words = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in given]
    ranges = [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in given if isinstance(a, np.ndarray)]
    compile_block(case.kernel, **options).launch(case.grid, words, ranges)
    return given


def check(case: Case, **options: Any) -> list[Any]:
    """The same bytes as the interpreter's; the arguments."""
    found = run(case, **options)
    for one, other in zip(case.reference(), found, strict=True):
        np.testing.assert_array_equal(one, other)
    return found


# ***** random kernels *****


@pytest.mark.parametrize("seed", range(20))
def test_random_kernels(seed: int) -> None:
    check(draw(seed, 8))


@pytest.mark.parametrize("machine", ["avx2", "sse"])
@pytest.mark.parametrize("seed", range(100, 105))
def test_random_kernels_on_narrow_vectors(seed: int, machine: str) -> None:
    check(draw(seed, 8), machine=MACHINES[machine])


@pytest.mark.parametrize("seed", range(200, 205))
def test_random_kernels_with_every_access_checked(seed: int) -> None:
    check(draw(seed, 6), checked=True)


@pytest.mark.parametrize("seed", range(300, 308))
def test_random_kernels_that_write_what_they_read(seed: int) -> None:
    check(draw(seed, 10, FEATURES | {"memory"}))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(3000, 3300, 50))
def test_many_random_kernels_that_write_what_they_read(start: int) -> None:
    for seed in range(start, start + 50):
        check(draw(seed, 12, FEATURES | {"memory"}))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 1300, 50))
def test_many_random_kernels(start: int) -> None:
    for seed in range(start, start + 50):
        check(draw(seed, 10))


# ***** one operation on tiles of all dtypes *****


class One:
    """A kernel under construction: inputs are row-major tiles of parameters, the results are stored."""

    def __init__(self, inputs: Sequence[Any], dtypes: Sequence[DType], results: int) -> None:
        self.inputs, self.dtypes, self.results = list(inputs), list(dtypes), results
        types = [*(Tile(Pointer(d)) for d in dtypes), *[Tile(Pointer(UINT8))] * results]
        self.b = BlockBuilder("one", types)
        self.tiles = [self.b.load(self.at(p, x.shape)) for p, x in zip(self.b.params, inputs, strict=False)]
        self.sizes: list[tuple[DType, int]] = []

    def at(self, pointer: Value, shape: tuple[int, ...]) -> Value:
        b, total = self.b, int(np.prod(shape))
        return b.offset(b.splat(pointer, shape), b.reshape(b.arange(0, total), shape))

    def store(self, value: Value) -> None:
        if not value.shape:
            value = self.b.splat(value, (1,))
        pointer = self.b.value("pointer_cast", self.b.params[len(self.inputs) + len(self.sizes)], to=value.dtype)
        self.b.store(self.at(pointer, value.shape), value)
        self.sizes.append((value.dtype, int(np.prod(value.shape))))

    def case(self) -> Case:
        arrays = [memory_of(d, x) for x, d in zip(self.inputs, self.dtypes, strict=True)]
        results = [np.zeros(n * d.itemsize, np.uint8) for d, n in self.sizes]
        unused = [np.zeros(1, np.uint8)] * (self.results - len(results))
        return Case(self.b.finish(), (1,), [*arrays, *results, *unused])

    def close(self, rtol: float = 0.0, **options: Any) -> None:
        """The compiled kernel gives the interpreter's numbers."""
        case = self.case()
        expected, found = case.reference(), run(case, **options)
        for (dtype, _), one, other in zip(
            self.sizes, expected[len(self.inputs) :], found[len(self.inputs) :], strict=False
        ):
            a, b = numbers_of(one, dtype), numbers_of(other, dtype)
            np.testing.assert_allclose(np.asarray(b, np.float64), np.asarray(a, np.float64), rtol=rtol, atol=rtol)


def small(*shape: int, seed: int = 0, low: float = -8, high: float = 8) -> Any:
    """Small whole numbers."""
    return np.random.default_rng(seed).integers(int(low), int(high), shape)


FLOAT_UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc "
    "floor ceil trunc round neg abs sign lgamma digamma erfinv"
).split()
FLOAT_BINARY = "add sub mul div pow atan2 maximum minimum copysign rem_trunc nextafter eq ne lt le".split()
INT_BINARY = "add sub mul div_trunc rem_trunc maximum minimum bitwise_and bitwise_or bitwise_xor shift_left shift_right gcd eq lt".split()


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=lambda d: d.name)
def test_float_primitives(dtype: DType) -> None:
    x, y = np.linspace(0.05, 0.95, 48), np.linspace(-2.0, 2.0, 48)
    for prims, places in ((FLOAT_UNARY, (0,)), (FLOAT_BINARY, (0, 1))):
        one = One([x, y], [dtype, dtype], len(prims))
        for prim in prims:
            given = [0.5] if prim in ("acosh",) else []
            xs = [one.tiles[k] for k in places]
            if given:
                xs = [one.b.pointwise("add", xs[0], one.b.constant(1.0, dtype, (48,)))]
            one.store(one.b.pointwise(prim, *xs))
        one.close(1e-5 if dtype is FLOAT32 else 1e-13)


@pytest.mark.parametrize("dtype", [INT8, INT16, INT32, INT64, UINT8, UINT32], ids=lambda d: d.name)
def test_integer_primitives(dtype: DType) -> None:
    low = -100 if dtype.is_signed else 0
    x, y = small(48, seed=1, low=low, high=100), np.abs(small(48, seed=2)) + 1
    one = One([x, y], [dtype, dtype], len(INT_BINARY) + 1)
    for prim in INT_BINARY:
        one.store(one.b.pointwise(prim, *one.tiles))
    if dtype.itemsize >= 4:
        one.store(one.b.value("multiply_high", *one.tiles))
    one.close()


NAMES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2".split()


@pytest.mark.parametrize("source", NAMES)
def test_conversions(source: str) -> None:
    dtype = BY_NAME[source]
    one = One([small(48, low=0, high=2 if source == "bool" else 8)], [BY_NAME["int32"]], len(NAMES) + 1)
    x = one.b.convert(one.tiles[0], dtype)
    for name in NAMES:
        one.store(one.b.convert(x, BY_NAME[name]))
    one.close()


def test_narrow_floats_are_stored_and_computed_wide() -> None:
    one = One([small(64), small(64, seed=3)], [BFLOAT16, FLOAT16], 2)
    x, y = (one.b.convert(t, FLOAT32) for t in one.tiles)
    one.store(one.b.convert(one.b.pointwise("mul", x, y), BFLOAT16))
    one.store(one.b.pointwise("bitcast", one.tiles[0], dtype=INT16))
    one.close()


# ***** shapes, reductions, scans *****


def add(b: BlockBuilder, p: Any, q: Any) -> list[Value]:
    return [b.pointwise("add", p[0], q[0])]


def first_largest(b: BlockBuilder, p: Any, q: Any) -> list[Value]:
    """The larger, and where it is: the first of equals."""
    less, equal = b.pointwise("lt", q[0], p[0]), b.pointwise("eq", p[0], q[0])
    left = b.pointwise("bitwise_or", less, b.pointwise("bitwise_and", equal, b.pointwise("lt", p[1], q[1])))
    return [b.pointwise("select", left, x, y) for x, y in zip(p, q, strict=True)]


@pytest.mark.parametrize("shape", [(256,), (8, 32), (32, 8), (4, 4, 16), (1, 64), (64, 1), (12, 5), (3, 100)], ids=str)
def test_reductions_and_scans(shape: tuple[int, ...]) -> None:
    one = One([small(*shape)], [FLOAT32], 5 * len(shape))
    (x,), b = one.tiles, one.b
    place = b.reshape(b.arange(0, int(np.prod(shape))), shape)
    for axis in range(len(shape)):
        one.store(b.reduce([x], axis, add)[0])
        one.store(b.reduce([x, place], axis, first_largest)[1])
        one.store(b.reduce([place], axis, lambda b, p, q: [p[0]])[0])
        one.store(b.scan([x], axis, add)[0])
        one.store(b.scan([x, place], axis, first_largest, reverse=True)[1])
    one.close()


def test_tiles_of_tiles() -> None:
    x = small(8, 32)
    one = One([x], [INT32], 7)
    (t,), b = one.tiles, one.b
    one.store(b.permute(t, (1, 0)))
    one.store(b.value("cat", t, b.pointwise("neg", t)))
    joined = b.value("join", t, b.pointwise("neg", t))
    one.store(joined)
    one.store(b.reshape(joined, (16, 32)))
    one.store(b.emit("split", b.reshape(t, (8, 16, 2))).results[1])
    index = b.pointwise("bitwise_xor", b.reshape(b.arange(0, 32), (1, 32)), b.constant(5, INT32, (1, 32)))
    one.store(b.value("gather", t, b.broadcast(index, (8, 32)), axis=1))
    one.store(b.value("histogram", b.reshape(b.pointwise("abs", t), (256,)), bins=8))
    one.close()


@pytest.mark.parametrize("a", [FLOAT32, FLOAT64, BFLOAT16, FLOAT16, INT8, INT32], ids=lambda d: d.name)
@pytest.mark.parametrize("machine", MACHINES)
def test_products(a: DType, machine: str) -> None:
    sums = INT32 if a.is_integer else FLOAT64 if a is FLOAT64 else FLOAT32
    for m, n, k in ((16, 64, 32), (48, 16, 64), (2, 8, 16), (64, 32, 128), (12, 20, 5)):
        one = One([small(m, k), small(n, k, seed=1), small(m, n, seed=2)], [a, a, sums], 2)
        x, y, c = one.tiles
        one.store(one.b.dot(x, one.b.permute(y, (1, 0)), c))
        z = one.b.reshape(y, (k, n))
        one.store(one.b.dot(x, z, one.b.constant(0, sums, (m, n))))
        one.close(machine=MACHINES[machine])


def test_batched_products() -> None:
    one = One([small(3, 16, 8), small(3, 8, 32, seed=1)], [BFLOAT16, BFLOAT16], 1)
    one.store(one.b.dot(*one.tiles, one.b.constant(0.0, FLOAT32, (3, 16, 32))))
    one.close()


# ***** memory *****


@pytest.mark.parametrize("dtype", [BOOL, INT8, BFLOAT16, FLOAT32, INT64, FLOAT64], ids=lambda d: d.name)
def test_accesses_of_all_kinds(dtype: DType) -> None:
    """Neighbours, steps, the reverse, one element for all, with masks and without; stores likewise."""
    n, data = 64, small(512, low=0, high=2)
    b = BlockBuilder("k", [Tile(Pointer(dtype)), Tile(Pointer(dtype)), Tile(INT32)])
    x, out, bound = b.params
    places = b.arange(0, n)
    forms: list[Callable[[Value], Value]] = [
        lambda p: p,
        lambda p: b.pointwise("mul", p, b.constant(3, INT32, (n,))),
        lambda p: b.pointwise("sub", b.constant(n, INT32, (n,)), p),
        lambda p: b.pointwise("bitwise_xor", p, b.constant(21, INT32, (n,))),
        lambda p: b.constant(7, INT32, (n,)),
    ]
    start = 0
    for form in forms:
        at = form(places)
        for masked in (False, True):
            mask = b.pointwise("lt", at, b.splat(bound, (n,)))
            target = b.offset(b.splat(out, (n,)), b.pointwise("add", at, b.constant(start, INT32, (n,))))
            pointer = b.offset(b.splat(x, (n,)), at)
            value = b.load(pointer, mask, b.constant(1, dtype, (n,))) if masked else b.load(pointer)
            b.store(target, value, *([mask] if masked else []))
            start += 256
    check(Case(b.finish(), (1,), [memory_of(dtype, data), memory_of(dtype, np.zeros(start)), 41]))


@pytest.mark.parametrize("dtype", [INT32, INT64, UINT32, FLOAT32, FLOAT64, FLOAT16, BFLOAT16], ids=lambda d: d.name)
def test_atomics(dtype: DType) -> None:
    """All lanes and programs meet at few places."""
    combines = ["add", "max", "min"] + (["and", "or", "xor"] if dtype.is_integer else [])
    b = BlockBuilder("k", [Tile(Pointer(dtype)), Tile(Pointer(dtype))])
    places = b.pointwise("rem_trunc", b.arange(0, 32), b.constant(4, INT32, (32,)))
    x = b.load(b.offset(b.splat(b.params[0], (32,)), b.arange(0, 32)))
    mask = b.pointwise("lt", places, b.constant(3, INT32, (32,)))
    for k, combine in enumerate(combines):
        target = b.offset(b.splat(b.params[1], (32,)), b.pointwise("add", places, b.constant(4 * k, INT32, (32,))))
        b.value("atomic", target, x, mask, combine=combine)
    single = b.offset(b.params[1], b.constant(4 * len(combines), INT32))
    b.value("atomic", single, b.constant(1, dtype), combine="add", order="relaxed")
    check(Case(b.finish(), (6,), [memory_of(dtype, small(32, low=0)), memory_of(dtype, np.zeros(40))]))


def test_compare_and_swap_as_a_lock() -> None:
    """Programs on all threads add to one number without atomics, one after another."""
    b = BlockBuilder("lock", [Tile(Pointer(INT32)), Tile(Pointer(INT32))])
    lock, total = b.params
    zero, one = b.constant(0, INT32), b.constant(1, INT32)
    with b.region([]) as before:
        b.emit("yield", b.pointwise("eq", b.value("atomic_cas", lock, zero, one), one))
    with b.region([]) as after:
        b.emit("yield")
    b.emit("while", regions=[before, after])
    b.store(total, b.pointwise("add", b.load(total), one))
    b.value("atomic", lock, zero, combine="xchg")
    check(Case(b.finish(), (500,), [np.zeros(1, np.int32), np.zeros(1, np.int32)]))


def test_a_load_behind_a_store_sees_it() -> None:
    """Scalars and tiles, at the same places and at others."""
    n = 32
    b = BlockBuilder("k", [Tile(Pointer(INT32))])
    (x,) = b.params
    b.store(x, b.pointwise("add", b.load(x), b.constant(5, INT32)))
    b.store(b.offset(x, b.constant(1, INT32)), b.load(x))
    forth = b.offset(b.splat(x, (n,)), b.arange(0, n))
    back = b.offset(b.splat(x, (n,)), b.pointwise("sub", b.constant(n - 1, INT32, (n,)), b.arange(0, n)))
    b.store(back, b.load(forth))
    b.store(forth, b.pointwise("mul", b.load(forth), b.load(back)))
    shifted = b.offset(b.splat(x, (n,)), b.arange(1, n + 1))
    b.store(shifted, b.load(forth))
    check(Case(b.finish(), (1,), [np.arange(64, dtype=np.int32)]))


def test_scalars_with_masks() -> None:
    """Loads and stores of single elements, where the mask is true and where it is not."""
    b = BlockBuilder("k", [Tile(Pointer(FLOAT32)), Tile(Pointer(FLOAT32)), Tile(INT32)])
    x, out, n = b.params
    at = b.program_id()
    inside = b.pointwise("lt", at, n)
    far = b.pointwise("mul", at, b.pointwise("convert", inside, dtype=INT32))
    value = b.load(b.offset(x, far), inside, b.constant(7.0, FLOAT32))
    b.store(b.offset(out, at), value)
    b.store(b.offset(out, b.pointwise("add", at, b.constant(8, INT32))), value, inside)
    check(Case(b.finish(), (8,), [np.arange(8, dtype=np.float32), np.zeros(16, np.float32), 5]))


def test_scalars_come_and_go_in_tiles() -> None:
    one = One([small(2), small(1)], [INT32, INT32], 4)
    (pair, single), b = one.tiles, one.b
    left, right = b.emit("split", pair).results
    scalar = b.reshape(single, ())
    one.store(b.value("join", b.pointwise("add", left, scalar), right))
    one.store(b.splat(b.pointwise("sub", left, right), (4,)))
    one.store(b.reshape(left, (1, 1)))
    one.store(scalar)
    one.close()


def test_counts_where_a_mask_is_true() -> None:
    one = One([small(64, low=-2, high=20)], [INT32], 2)
    (x,), b = one.tiles, one.b
    one.store(b.value("histogram", x, b.pointwise("lt", x, b.constant(9, INT32, (64,))), bins=16))
    index = b.pointwise("bitwise_xor", b.reshape(b.arange(0, 64), (8, 8)), b.constant(8, INT32, (8, 8)))
    row = b.pointwise("div_trunc", index, b.constant(8, INT32, (8, 8)))
    one.store(b.value("gather", b.reshape(x, (8, 8)), b.convert(row, INT16), axis=0))
    one.close()


def test_large_tiles_are_allocated() -> None:
    n = 1 << 17
    one = One([small(n)], [FLOAT64], 2)
    (x,), b = one.tiles, one.b
    total = b.reduce([x], 0, add)[0]
    y = b.pointwise("exp", b.pointwise("sub", x, b.splat(total, (n,))))
    one.store(b.pointwise("div", y, b.splat(b.reduce([y], 0, add)[0], (n,))))
    one.store(total)
    one.close(1e-12)


# ***** control flow *****


def test_tiles_change_places_in_a_loop() -> None:
    """What a turn gives is computed before any of it is written."""
    n = 32
    one = One([small(n), small(n, seed=1), small(8, 8), small(8, 8, seed=2)], [INT32, INT32, INT32, INT32], 4)
    b = one.b

    def body(i: Value, x: Value, y: Value, p: Value, q: Value) -> list[Value]:
        return [y, b.pointwise("add", x, b.splat(i, (n,))), b.permute(q, (1, 0)), b.pointwise("sub", p, q)]

    bounds = [b.constant(v, INT64) for v in (0, 5, 1)]
    bounds = [b.convert(v, INT32) for v in bounds]
    for value in b.for_(*bounds, one.tiles, body):
        one.store(value)
    one.close()


def test_loops_that_do_not_turn() -> None:
    one = One([small(16)], [INT32], 2)
    b = one.b
    low, high, step = b.constant(3, INT32), b.constant(3, INT32), b.constant(2, INT32)
    one.store(b.for_(low, high, step, [one.tiles[0]], lambda i, x: [b.pointwise("add", x, x)])[0])
    one.store(
        b.for_(high, b.constant(-5, INT32), step, [b.constant(7, INT32)], lambda i, x: [b.pointwise("add", x, x)])[0]
    )
    one.close()


# ***** what programs say *****


@pytest.mark.parametrize("line", [12, 21])
def test_a_failed_assertion_names_line_and_program(line: int) -> None:
    b = BlockBuilder("k", [])
    b.line = ("user.py", line)
    b.emit("assert", b.pointwise("lt", b.program_id(), b.constant(3, INT32)), message="too far")
    launch = compile_block(b.finish())
    launch.launch((3,), [])
    with pytest.raises(BlockFault, match=rf"user\.py:{line}: assert: too far \(program 3, 0, 0\)"):
        launch.launch((4,), [])


def test_an_access_outside_names_line_and_address() -> None:
    b = BlockBuilder("k", [Tile(Pointer(FLOAT32)), Tile(INT32)])
    x, n = b.params
    at = b.arange(0, 64)
    b.line = ("user.py", 5)
    value = b.load(b.offset(b.splat(x, (64,)), at), b.pointwise("lt", at, b.splat(n, (64,))))
    b.line = ("user.py", 6)
    b.store(b.offset(b.splat(x, (64,)), at), value, b.pointwise("lt", at, b.constant(40, INT32, (64,))))
    data = np.zeros(40, np.float32)
    ranges = [(data.ctypes.data, data.ctypes.data + data.nbytes)]
    launch = compile_block(b.finish(), checked=True)
    launch.launch((1,), [data.ctypes.data, 40], ranges)
    with pytest.raises(BlockFault, match=rf"user\.py:5: load: 4 bytes at {data.ctypes.data + 160:#x} are outside"):
        launch.launch((1,), [data.ctypes.data, 41], ranges)
    with pytest.raises(BlockFault, match=r"user\.py:6: store"):
        launch.launch((1,), [data.ctypes.data, 32], [(data.ctypes.data, data.ctypes.data + 128)])


def test_prints(capfd: pytest.CaptureFixture[str]) -> None:
    b = BlockBuilder("k", [Tile(FLOAT32)])
    b.emit("print", prefix="100% there")
    b.emit("print", b.params[0], prefix="x:")
    b.emit("print", b.arange(0, 2), prefix="i", hex=True)
    compile_block(b.finish()).launch((1,), [1.5])
    expected = ["100% there", "x: 1.5", "idx (0) i 0x00000000", "idx (1) i 0x00000001"]
    assert capfd.readouterr().out.splitlines() == [f"pid (0, 0, 0) {line}" for line in expected]


def test_wrong_arguments_are_refused() -> None:
    b = BlockBuilder("k", [Tile(INT32)])
    launch = compile_block(b.finish(divisible={0: 16}))
    launch.launch((1,), [32])
    with pytest.raises(ValueError, match="argument 0 of k is 33, which 16 does not divide"):
        launch.launch((1,), [33])
    with pytest.raises(TypeError, match="k takes 1 arguments, got 2"):
        launch.launch((1,), [32, 1])


# ***** memory that is written between a load and its use *****


def test_a_tile_is_what_it_was_when_it_was_loaded() -> None:
    """Two stores to the same places, the second of which adds what was there before the first."""
    n = 64
    b = BlockBuilder("k", [Tile(Pointer(INT32))])
    here, there = (b.offset(b.splat(b.params[0], (n,)), b.arange(k, n + k)) for k in (0, 1))
    before, neighbour = b.load(here), b.load(there)
    b.store(here, neighbour)
    b.store(here, b.pointwise("add", b.load(here), before))
    check(Case(b.finish(), (1,), [np.arange(2 * n, dtype=np.int32)]))


def test_the_later_of_two_stores_stays() -> None:
    """At places that overlap, in other chunks of the same loop."""
    n = 64
    b = BlockBuilder("k", [Tile(Pointer(INT32))])
    for k, number in ((0, 1), (16, 2), (8, 3)):
        at = b.offset(b.splat(b.params[0], (n,)), b.arange(k, n + k))
        b.store(at, b.constant(number, INT32, (n,)))
    check(Case(b.finish(), (1,), [np.zeros(2 * n, np.int32)]))
