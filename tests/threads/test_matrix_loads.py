"""`ldmatrix`: which operands it brings, without conflicts of banks, and what it gives against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bench.cuda_group_kernels import tile_product
from bench.cuda_kernels import FLAGSHIPS
from tests.threads import stored
from tests.threads.twins import run_thread_kernel

from rushlight._codegen.blocks import kernel_text
from rushlight._codegen.threads import ThreadKernel, lower
from rushlight._codegen.threads.form import Body, Buffer, Instruction, Registers, ThreadBuilder
from rushlight._types.dtype import BY_NAME, FLOAT16, FLOAT32, INT64, UINT8, DType


def loads(made: ThreadKernel) -> list[Instruction]:
    return [i for i in made.body.walk() if i.kind == "matrix_load"]


def row_places(load: Instruction) -> list[int]:
    """Byte offsets, but for what is equal in all lanes, of the rows that eight lanes name together."""
    (place,) = load.operands
    while place.op is not None and place.op.kind != "index":
        place = place.op.operands[0]
    assert place.op is not None
    bits = place.op.attributes["lanes"][:3]
    return [sum(bit for k, bit in enumerate(bits) if lane >> k & 1) for lane in range(8)]


@pytest.mark.parametrize("name", ["matmul_bf16", "matmul_f16"])
def test_rows_lie_in_different_banks(name: str) -> None:
    """All operands of 16 bits come that way, and eight rows of 16 bytes are all of the 32 banks."""
    made = lower(FLAGSHIPS[name](True).kernel, "sm_80")
    found = loads(made)
    assert len(found) >= 2 and not any(i.kind == "shared_load" and i.attributes.get("ring") for i in made.body.walk())
    for load in found:
        assert {at >> 4 & 7 for at in row_places(load)} == set(range(8)), load.attributes


@pytest.mark.parametrize("orders", ["kk", "kn", "mk", "mn"])
def test_operands_along_rows_and_columns(orders: str) -> None:
    case = tile_product("k", (FLOAT16, FLOAT16, FLOAT32), (64, 64, 128), (64, 64, 64), 4, orders=orders)
    transposed = [load.attributes["transposed"] for load in loads(lower(case.kernel, "sm_80"))]
    assert transposed == [orders[0] == "m", orders[1] == "n"]


@pytest.mark.parametrize("name", ["forward_64", "forward_128", "to_queries_64", "to_queries_128", "to_keys_64", "to_keys_128"])  # fmt: skip
def test_scores_stay_in_registers(name: str) -> None:
    """No tile goes through shared memory within a turn of attention: scores become operands where they are, and what the
    loop does not change was moved before it.  A row's numbers may go from where they were loaded to the scores' columns.
    """
    made = lower(stored.KERNELS[f"attention_{name}"](), "sm_80")
    loops = [i for i in made.body.instructions if i.kind == "for"]
    stores = [i for loop in loops for i in loop.bodies[0].walk() if i.kind == "shared_store"]
    assert loops and all(i.operands[1].count <= 1 for i in stores)
    assert not stores or name.startswith("to_keys")


def test_kernels_of_other_stages_are_other_kernels() -> None:
    """Images are kept by a kernel's text: rings of other lengths must not be taken for each other."""
    kernels = [
        tile_product("k", (FLOAT16, FLOAT16, FLOAT32), (64, 64, 128), (64, 64, 64), 4, stages=n).kernel for n in (2, 3)
    ]
    assert lower(kernels[0]).shared < lower(kernels[1]).shared
    assert kernel_text(kernels[0]) != kernel_text(kernels[1])


def one_load(dtype: DType, matrices: int, transposed: bool, order: Any) -> ThreadKernel:
    """Bytes [1024] to shared memory, one load of rows in an order, what every lane got to [32, numbers]."""
    each = 4 // dtype.itemsize
    b = ThreadBuilder(Body([Registers(INT64, 1, True)] * 2), 1)
    body, buffer = b.bodies[0], Buffer(1024)
    place = b.index(range(32), [32, 64, 128, 256, 512], [])
    got = b.emit(
        "load", [b.pointwise("add", b.wide(place), body.params[0])], [Registers(UINT8, 32)], dtype=UINT8, vector=1
    )
    b.emit("shared_store", [place, got.result], [], buffer=buffer, vector=1)
    b.emit("barrier", [], [])
    rows = b.index([0], [16 << order[k] for k in range(5)], [])
    held = Registers(dtype, matrices * each)
    made = b.emit(
        "matrix_load", [rows], [held], buffer=buffer, dtype=dtype, matrices=matrices, transposed=transposed
    ).result
    at = b.index(
        [k * dtype.itemsize for k in range(held.count)], [dtype.itemsize * held.count << k for k in range(5)], []
    )
    b.emit("store", [b.pointwise("add", b.wide(at), body.params[1]), made], [], vector=1)
    kernel = ThreadKernel("one_load", body, frozenset(range(2)), {}, 1, None)
    kernel.shared = 1024
    return kernel


@pytest.mark.parametrize(
    ("name", "transposed"), [("float16", False), ("float16", True), ("float32", False), ("float8_e4m3fn", False)]
)
@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_what_a_lane_gets(name: str, transposed: bool, matrices: int) -> None:
    """The instruction set's words: row `lane / 4`, word `lane % 4`, of the matrix whose rows lanes 8 m to 8 m + 7 name."""
    dtype, order = BY_NAME[name], (1, 0, 2, 4, 3)
    raw = {"float16": np.float16, "float32": np.float32, "float8_e4m3fn": np.uint8}[name]
    given = (
        np.arange(1024 // dtype.itemsize).astype(raw)
        if raw is not np.uint8
        else np.arange(1024, dtype=np.uint64).astype(np.uint8) & 0x77
    )
    out = np.zeros((32, matrices * (4 // dtype.itemsize)), raw)
    arguments = [given.view(np.uint8).copy(), out.view(np.uint8).reshape(-1)]
    run_thread_kernel(one_load(dtype, matrices, transposed, order), (1,), arguments, [None] * 2)
    out = arguments[1].view(raw).reshape(out.shape)
    rows = [sum(1 << order[k] for k in range(5) if lane >> k & 1) for lane in range(32)]
    table, each = given.reshape(64, -1), 4 // dtype.itemsize
    for lane in range(32):
        for m in range(matrices):
            for k in range(each):
                row, column = (2 * (lane % 4) + k, lane // 4) if transposed else (lane // 4, each * (lane % 4) + k)
                assert out[lane, m * each + k] == table[rows[8 * m + row], column]
