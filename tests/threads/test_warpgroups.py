"""Products by warpgroups: layouts against the tables of NVIDIA's instruction set, faults put in on purpose, other architectures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bench.cuda_group_kernels import tile_product
from tests.threads.twins import TwinError, compare, run_thread_kernel

from rushlight._codegen.blocks import Kernel, kernel_text
from rushlight._codegen.blocks.expressions import TermBuilder
from rushlight._codegen.blocks.types import Pointer, Tile
from rushlight._codegen.threads import ThreadKernel, lower
from rushlight._codegen.threads.form import Body, Buffer, Instruction, Registers, ThreadBuilder
from rushlight._codegen.threads.tile_maps import TileMap
from rushlight._codegen.threads.warpgroups.find_products import Side
from rushlight._types.dtype import BFLOAT16, BOOL, BY_NAME, FLOAT16, FLOAT32, INT8, INT32, INT64, UINT8

# ***** the layouts, as section 9.7.15.5.1.2 of "Parallel Thread Execution" states them *****


def cute(shape: tuple[int, ...], stride: tuple[int, ...], index: int) -> int:
    """A mode of a CuTe layout: the index is split along its sizes, the first fastest."""
    total = 0
    for size, step in zip(shape, stride, strict=True):
        total += index % size * step
        index //= size
    return total


def swizzle_343(address: int) -> int:
    """Swizzle<3, 4, 3>: the three bits from bit 4 on are xored by the three bits from bit 7 on."""
    return address ^ (address >> 7 & 7) << 4


def canonical(dense_k: bool, itemsize: int, outer: int, k: int, leading: int, stride: int) -> int:
    """The byte of element (outer, k) behind the start, before the swizzle: the canonical layouts for 128 bytes, in elements."""
    t = 16 // itemsize
    lbo, sbo = leading // itemsize, stride // itemsize
    if dense_k:  # ((8, m), (T, 2k)) : ((8T, SBO), (1, T))
        return (cute((8, 99), (8 * t, sbo), outer) + cute((t, 99), (1, t), k)) * itemsize
    # ((T, 8, m), (8, k)) : ((1, T, LBO), (8T, SBO))
    return (cute((t, 8, 99), (1, t, lbo), outer) + cute((8, 99), (8 * t, sbo), k)) * itemsize


def element_address(descriptor: int, dense_k: bool, itemsize: int, outer: int, k: int) -> int:
    """Where the hardware reads an element, from the fields of a descriptor (table 40)."""
    assert descriptor >> 62 == 1
    start, leading, stride = ((descriptor >> low & 0x3FFF) << 4 for low in (0, 16, 32))
    return swizzle_343(start + canonical(dense_k, itemsize, outer, k, leading, stride))


# ***** what the twin does with them *****

ROWS, COLUMNS, DEPTH = 64, 128, 64
SLOT = 1024


def one_instruction(
    sides: tuple[Side, Side], boxes: list[tuple[TileMap, int, tuple[int, int], int]], n: int
) -> ThreadKernel:
    """Copies of boxes (map, bytes, places, target), one product, then all of shared memory as it was: [out, image]."""
    body = Body([Registers(INT64, 1, True)] * 4)
    b = ThreadBuilder(body, 4)
    size = max(target + nbytes for _, nbytes, _, target in boxes)
    buffer, barriers = Buffer(size, 1024), Buffer(16)
    zero, one = b.number(0, INT32), b.number(1, INT32)
    b.emit("mbarrier_init", [], [], buffer=barriers, arrivals=(1, 4), ring=True)
    with b.body([Registers(INT32, 1, True)]) as copying:
        b.emit("mbarrier_wait", [b.number(8, INT32), one], [], buffer=barriers, ring=True)
        total = sum(nbytes for _, nbytes, _, _ in boxes)
        b.emit("mbarrier_expect", [zero], [], buffer=barriers, bytes=total, ring=True)
        for number, (_, nbytes, places, target) in enumerate(boxes):
            at = [b.number(x, INT32) for x in (target, 0, *places)]
            b.emit("tile_copy", at, [], buffer=buffer, barriers=barriers, map=number, bytes=nbytes, ring=True)
        copying.yielded = []
    held = Registers(FLOAT32, n // 2)
    with b.body([Registers(INT32, 1, True), held]) as multiplying:
        b.emit("mbarrier_wait", [zero, zero], [], buffer=barriers, ring=True)
        operands = [zero, multiplying.params[1], b.number(False, BOOL)]
        made = b.emit(
            "wgmma", operands, [held], form="f32.f16.f16", n=n, a=sides[0], b=sides[1], buffer=buffer, ring=True
        ).result
        b.emit("wgmma_commit", [], [])
        made = b.emit("wgmma_wait", [made], [held], pending=0).result
        multiplying.yielded = [made]
    start = b.emit("undefined", [], [held]).result
    roles = b.emit("roles", [zero, one, one, start], [held], [copying, multiplying], carried=0)
    b.emit("barrier", [], [])
    _store(b, roles.result, body.params[2], n)
    _show(b, buffer, size, body.params[3])
    kernel = ThreadKernel("one_instruction", body, frozenset(range(4)), {}, 4, None)
    kernel.maps, kernel.copiers, kernel.shared = [m for m, *_ in boxes], 4, size + 16
    barriers.offset = size
    return kernel


def run_left_from_registers(registers: Any, right: Any) -> tuple[Any, int, Any]:
    """One product of [64, 16] in registers, eight for each of 128 threads, and the first 16 rows of [64, 128] in memory: its
    result, the descriptor of the right operand, shared memory as it was.
    """
    body = Body([Registers(INT64, 1, True)] * 4)
    b, size = ThreadBuilder(body, 4), 2 * COLUMNS * DEPTH
    buffer, barriers = Buffer(size, 1024), Buffer(8)
    tile_map = TileMap("float16", 2, 1, (COLUMNS, DEPTH), (COLUMNS,), (64, DEPTH))
    thread = b.index(range(0, 16, 2), [16, 32, 64, 128, 256], [512, 1024])
    address = b.pointwise("add", b.wide(thread), body.params[0])
    left = b.emit("load", [address], [Registers(FLOAT16, 8)], dtype=FLOAT16, vector=1).result
    zero, held = b.number(0, INT32), Registers(FLOAT32, COLUMNS // 2)
    b.emit("mbarrier_init", [], [], buffer=barriers, arrivals=(1,), ring=True)
    with b.body() as copying:
        b.emit("mbarrier_expect", [zero], [], buffer=barriers, bytes=size, ring=True)
        for box in range(COLUMNS // 64):
            at = [b.number(x, INT32) for x in (box * 128 * DEPTH, 0, 64 * box, 0)]
            b.emit("tile_copy", at, [], buffer=buffer, barriers=barriers, map=0, bytes=128 * DEPTH, ring=True)
    side = Side(0, (), 128 * DEPTH, 1024, False)
    with b.body() as multiplying:
        b.emit("mbarrier_wait", [zero, zero], [], buffer=barriers, ring=True)
        (left,) = b.emit("wgmma_fence", [left], [left.type]).results
        operands = [zero, b.emit("undefined", [], [held]).result, b.number(False, BOOL), left]
        made = b.emit(
            "wgmma", operands, [held], form="f32.f16.f16", n=COLUMNS, a=None, b=side, buffer=buffer, ring=True
        ).result
        b.emit("wgmma_commit", [], [])
        multiplying.yielded = b.emit("wgmma_wait", [made], [held], pending=0).results
    made = b.emit("roles", [], [held], [copying, multiplying]).result
    b.emit("barrier", [], [])
    _store(b, made, body.params[2], COLUMNS)
    _show(b, buffer, size, body.params[3])
    kernel = ThreadKernel("left_from_registers", body, frozenset(range(4)), {}, 4, None)
    kernel.maps, kernel.copiers, kernel.shared, barriers.offset = [tile_map], 4, size + 8, size
    out, image = np.zeros((ROWS, COLUMNS), np.float32), np.zeros(size, np.uint8)
    run_thread_kernel(kernel, (1,), [registers, right, out, image], [None] * 4)
    return out, side.descriptor(), image


def _show(b: ThreadBuilder, buffer: Buffer, size: int, pointer: Any) -> None:
    """Shared memory byte by byte."""
    each = size // 128
    thread = b.index([0] * each, [1, 2, 4, 8, 16], [32, 64])
    first = b.pointwise("mul", thread, b.number(each, INT32))
    place = b.pointwise("add", first, b.index(range(each), [0] * 5, [0] * 2))
    raw = b.emit("shared_load", [place], [Registers(UINT8, each)], buffer=buffer, dtype=UINT8, vector=1).result
    b.emit("store", [b.pointwise("add", b.wide(place), pointer), raw], [], vector=1)


def _store(b: ThreadBuilder, value: Any, pointer: Any, n: int) -> None:
    """The accumulators, [64, n]: figure 152 of the instruction set says which thread holds which."""
    registers = [(r // 4 * 8 + r % 2) + (r // 2 % 2) * 8 * n for r in range(n // 2)]
    lanes = [2, 4, n, 2 * n, 4 * n]
    place = b.index(registers, lanes, [16 * n, 32 * n])
    at = b.wide(b.pointwise("mul", place, b.number(4, INT32)))
    b.emit("store", [b.pointwise("add", at, pointer), value], [], vector=1)


@pytest.mark.parametrize("dense", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("step", [0, 16, 48])
def test_descriptor_and_swizzle_are_those_of_the_instruction_set(dense: tuple[bool, bool], step: int) -> None:
    """Copies put bytes where the swizzle says, and products read elements where the canonical layouts say."""
    random = np.random.default_rng(5)
    a, b = random.integers(-8, 9, (ROWS, DEPTH)), random.integers(-8, 9, (DEPTH, COLUMNS))
    a, b = a.astype(np.float16), b.astype(np.float16)
    arrays = [a if dense[0] else np.ascontiguousarray(a.T), np.ascontiguousarray(b.T) if dense[1] else b]
    boxes, image, sides, target = [], np.zeros(24576, np.uint8), [], 0
    for number, (array, is_dense, outer) in enumerate(zip(arrays, dense, (ROWS, COLUMNS), strict=True)):
        rows, width = array.shape
        tile_map = TileMap("float16", 2, number, (width, rows), (width,), (64, rows))
        starts = range(0, width, 64)
        for j, start in enumerate(starts):
            boxes.append((tile_map, 128 * rows, (start, 0), target + j * 128 * rows))
            for r in range(rows):  # the copy, by the statement on swizzled modes of bulk copies
                for c in range(64):
                    at = swizzle_343(target + j * 128 * rows + 128 * r + 2 * c)
                    image[at : at + 2] = array[r, start + c : start + c + 1].view(np.uint8)
        begin = target + (2 * step if is_dense else 128 * step)
        sides.append(Side(begin, (), 16 if is_dense else 128 * rows, 1024, is_dense))
        target += 2 * outer * DEPTH
    out, found = np.zeros((ROWS, COLUMNS), np.float32), np.zeros(24576, np.uint8)
    made = one_instruction((sides[0], sides[1]), boxes, COLUMNS)
    run_thread_kernel(made, (1,), [*arrays, out, found], [None] * 4)
    np.testing.assert_array_equal(found, image)

    def operand(side: Side, count: int) -> Any:
        word = side.descriptor() | side.start >> 4
        places = [[element_address(word, side.dense_k, 2, o, k) for k in range(16)] for o in range(count)]
        return image.view(np.float16)[np.array(places) // 2].astype(np.float64)

    np.testing.assert_array_equal(operand(sides[0], ROWS), a[:, step : step + 16])
    np.testing.assert_array_equal(operand(sides[1], COLUMNS), b[step : step + 16].T)
    np.testing.assert_array_equal(out, operand(sides[0], ROWS) @ operand(sides[1], COLUMNS).T)


# ***** faults *****

SIZES, TILE = (128, 64, 320), (128, 64, 64)


def case() -> Any:
    return tile_product("faulty", (FLOAT16, FLOAT16, FLOAT32), SIZES, TILE, 8, stages=3)


def run(made: ThreadKernel) -> list[Any]:
    given = case()
    arguments = [a.copy() if isinstance(a, np.ndarray) else a for a in given.arguments]
    run_thread_kernel(made, given.grid, arguments, [p.type.element for p in given.kernel.params])
    return arguments


def roles(made: ThreadKernel) -> tuple[Body, Body]:
    (found,) = (i for i in made.body.walk() if i.kind == "roles")
    return found.bodies[0], found.bodies[1]


def find(body: Body, kind: str) -> Instruction:
    return next(i for i in body.instructions if i.kind == kind)


def _no_wait_for_bytes(copying: Body, multiplying: Body) -> None:
    multiplying.instructions.remove(find(multiplying, "mbarrier_wait"))


def _free_before_done(copying: Body, multiplying: Body) -> None:
    """Each slot is freed in its own turn, while products of it may go on."""
    wait, arrive = find(multiplying, "mbarrier_wait"), find(multiplying, "mbarrier_arrive")
    index = multiplying.instructions.index(arrive)
    b = ThreadBuilder(multiplying, 8)
    place = b.pointwise("add", wait.operands[0], b.number(24, INT32))
    always = b.number(True, BOOL)
    made = [multiplying.instructions.pop() for _ in range(3)][::-1]
    multiplying.instructions[index:index] = made
    arrive.operands = [place, always]


def _too_few_bytes(copying: Body, multiplying: Body) -> None:
    find(copying, "mbarrier_expect").attributes["bytes"] += 128


def _never_free(copying: Body, multiplying: Body) -> None:
    multiplying.instructions.remove(find(multiplying, "mbarrier_arrive"))


def _products_stay_open(copying: Body, multiplying: Body) -> None:
    find(multiplying, "wgmma_wait").attributes["pending"] = 2


FAULTS: list[tuple[Callable[[Body, Body], None], str]] = [
    (_no_wait_for_bytes, "products read byte .* no copy into it was waited for"),
    (_free_before_done, "a copy into byte .* starts while another or products may use it"),
    (_too_few_bytes, "waits for a phase .* 128 bytes are missing"),
    (_never_free, "waits for a phase of a barrier that nothing completes"),
    (_products_stay_open, "a copy into byte .* starts while another or products may use it"),
]


@pytest.mark.parametrize(("fault", "message"), FAULTS, ids=[f.__name__ for f, _ in FAULTS])
def test_faults_are_reported(fault: Callable[[Body, Body], None], message: str) -> None:
    made = lower(case().kernel, "sm_90a")
    fault(*roles(made))
    with pytest.raises(TwinError, match=message):
        run(made)


def test_without_a_fault_it_is_right() -> None:
    np.testing.assert_allclose(run(lower(case().kernel, "sm_90a"))[2], case().expected()[2], atol=1e-4)


# ***** what qualifies, and what becomes of the rest *****


def kinds(kernel: Kernel, architecture: str = "sm_90a") -> set[str]:
    return {i.kind for i in lower(kernel, architecture).body.walk()}


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100a"])
def test_other_architectures_load_by_pointers(architecture: str) -> None:
    made = lower(case().kernel, architecture)
    assert not {"wgmma", "tile_copy"} & {i.kind for i in made.body.walk()} and not made.maps
    np.testing.assert_allclose(run(made)[2], case().expected()[2], atol=1e-4)


def test_what_bulk_copies_cannot_bring_is_loaded_by_pointers() -> None:
    good = case().kernel
    assert "wgmma" in kinds(good)
    for change in ({0: 8}, {4: 4}, {5: 1}):  # an address and strides that are no multiples of 16 bytes
        kernel = case().kernel
        kernel.divisible |= change
        assert "wgmma" not in kinds(kernel)
    e4m3 = BY_NAME["float8_e4m3fn"]
    assert "wgmma" not in kinds(
        tile_product("k", (e4m3, e4m3, FLOAT32), (64, 128, 128), (64, 128, 128), 4, orders="kn").kernel
    )
    assert "wgmma" not in kinds(
        tile_product("k", (INT8, INT8, INT32), (64, 128, 128), (64, 128, 128), 4, orders="mk").kernel
    )
    assert "wgmma" not in kinds(tile_product("k", (BFLOAT16, BFLOAT16, FLOAT32), (64, 64, 64), (64, 64, 64), 2).kernel)


@pytest.mark.parametrize(
    ("warps", "tile"), [(8, (256, 64, 64)), (8, (64, 256, 64)), (4, (128, 128, 64)), (8, (64, 512, 64))]
)
def test_shares_of_warpgroups(warps: int, tile: tuple[int, int, int]) -> None:
    """Rows and columns cut among warpgroups, several instructions beside each other."""
    made = tile_product("k", (FLOAT16, FLOAT16, FLOAT32), (tile[0] - 8, tile[1] - 8, 72), tile, warps, stages=2)
    assert "wgmma" in kinds(made.kernel)
    compare(made.kernel, made.grid, made.arguments, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_slots(stages: int) -> None:
    """A slot is freed in the turn behind its own, but for one alone, which the next turn needs."""
    made = tile_product("k", (FLOAT16, FLOAT16, FLOAT32), (64, 64, 328), (64, 64, 64), 4, stages=stages)
    compare(made.kernel, made.grid, made.arguments, rtol=1e-5, atol=1e-4)


def _batched(start: float) -> Kernel:
    """out[item] = start + a[item] b[item]^T over arrays of three dims."""
    b = TermBuilder("batched", [Tile(Pointer(FLOAT16))] * 2 + [Tile(Pointer(FLOAT32))] + [Tile(INT32)] * 2)
    x, y, out, deep, step = b.terms
    zero, one, two, rows = (b.number(n, INT32) for n in (0, 1, 2, 64))
    item = b.program()

    def turn(k: Any, total: Any) -> list[Any]:
        sizes, strides, starts = (two, rows, deep), (step, deep, one), (item, zero, k)
        left, right = (b.tile(p, sizes, strides, starts, (1, 64, 64)).reshape(64, 64) for p in (x, y))
        return [b.matrix_product(left, right.permute(1, 0), total)]

    (total,) = b.loop(0, deep, 64, [b.number(start, FLOAT32, (64, 64))], turn)
    (out + item * 4096 + b.index(4096).reshape(64, 64)).store(total)
    return b.finish(warps=4, stages=2, divisible=dict.fromkeys(range(5), 16))


@pytest.mark.parametrize(("depth", "start"), [(128, 0.0), (0, 0.0), (64, 1.5)])
def test_tiles_of_arrays_of_more_dims(depth: int, start: float) -> None:
    """A loop without a turn gives what it began with; lowering leaves the kernel alone."""
    kernel = _batched(start)
    text = kernel_text(kernel)
    assert "wgmma" in kinds(kernel)
    assert kernel_text(kernel) == text
    random, width = np.random.default_rng(1), max(depth, 8)
    arrays = [random.integers(-4, 5, (2, 64, width)).astype(np.float16) for _ in range(2)]
    out = np.full((2, 64, 64), 7, np.float32)
    found = compare(kernel, (2,), [*arrays, out, depth, 64 * width], rtol=0, atol=0)[2]
    left, right = (a[:, :, :depth].astype(np.float64) for a in arrays)
    np.testing.assert_array_equal(found, left @ right.transpose(0, 2, 1) + start)
