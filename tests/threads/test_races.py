"""Faults that are put into kernels of the thread form on purpose, and that their twins must report."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from bench.cuda_kernels import UNITS
from tests.blocks.random_kernels import draw
from tests.threads.twins import TwinError, run_thread_kernel

from rushlight._codegen.blocks import Kernel, Pointer, Tile
from rushlight._codegen.blocks.expressions import TermBuilder
from rushlight._codegen.threads import ThreadKernel, lower
from rushlight._codegen.threads.form import Instruction
from rushlight._types.dtype import FLOAT16, FLOAT32, INT32, DType


def transpose() -> Kernel:
    b = TermBuilder("transpose", [Tile(Pointer(FLOAT32))] * 2, line=("user.py", 5))
    x, out = b.terms
    tile = (x + b.index(1024).reshape(32, 32)).load()
    b.line = ("user.py", 6)
    (out + b.index(1024).reshape(32, 32)).store(tile.permute(1, 0))
    return b.finish(warps=4, divisible={0: 16, 1: 16})


def product(dtype: DType = FLOAT16) -> Kernel:
    """A loop in which shared memory is written and read in each turn; of float32 by a second loop, along k."""
    b = TermBuilder("product", [Tile(Pointer(dtype))] * 2 + [Tile(Pointer(FLOAT32))], line=("user.py", 9))
    x, y, out = b.terms
    flat = b.index(256).reshape(16, 16)

    def turn(i: object, total: object) -> list[object]:
        return [b.matrix_product((x + flat).load(), (y + flat).load(), total)]

    (total,) = b.loop(0, 3, 1, [b.number(0.0, FLOAT32, (16, 16))], turn)
    (out + flat).store(total)
    return b.finish(warps=2)


def run(made: ThreadKernel, kernel: Kernel) -> None:
    arguments = [np.ones(1024, {"f16": np.float16, "f32": np.float32}[p.type.element.to.abbr]) for p in kernel.params]
    run_thread_kernel(made, (1,), arguments, [p.type.element for p in kernel.params])


def barriers(made: ThreadKernel) -> list[tuple[list[Instruction], Instruction]]:
    """Every barrier, and the list that holds it."""
    found = []
    bodies = [made.body]
    while bodies:
        body = bodies.pop()
        for instruction in body.instructions:
            bodies += instruction.bodies
            if instruction.kind == "barrier":
                found.append((body.instructions, instruction))
    return found


def test_a_loop_waits_in_front_where_that_is_enough() -> None:
    """Of float32 a product's own loop only reads: its threads wait once before it, and not in each of its turns."""
    loops = [(lower(product(FLOAT32)).body, 0)]
    depths = []
    while loops:
        body, depth = loops.pop()
        for instruction in body.instructions:
            loops += [(inner, depth + 1) for inner in instruction.bodies]
            if instruction.kind == "barrier":
                depths.append(depth)
    assert sorted(depths, reverse=True)[:3] == [1, 1, 0]  # before operands are written, and before they are read


@pytest.mark.parametrize("build", [transpose, product, partial(product, FLOAT32)])
def test_each_barrier_is_needed(build: Callable[[], Kernel]) -> None:
    kernel = build()
    run(lower(kernel), kernel)
    for n in range(len(barriers(lower(kernel)))):
        made = lower(kernel)
        holder, barrier = barriers(made)[n]
        holder.remove(barrier)
        with pytest.raises(TwinError, match=r"user\.py:\d+: .*threads -?\d+ and \d+ touch byte \d+ of shared memory"):
            run(made, kernel)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4, 6, 8, 9])
def test_barriers_of_random_kernels_are_needed_or_harmless(seed: int) -> None:
    """Without a barrier a twin reports a race, or the kernel is right all the same: it is never silently wrong."""
    case = draw(seed)
    case.kernel.warps, expected = 4, case.reference()
    types = [p.type.element for p in case.kernel.params]
    for n in range(min(len(barriers(lower(case.kernel))), 4)):
        made, given = lower(case.kernel), case.fresh()
        holder, barrier = barriers(made)[n]
        holder.remove(barrier)
        try:
            run_thread_kernel(made, case.grid, given, types)
        except TwinError as error:
            assert error.code == 719
        else:
            for a, b in zip(expected, given, strict=True):
                if isinstance(a, np.ndarray):
                    np.testing.assert_array_equal(b, a)


def test_copies_ahead_need_their_waits_and_barriers() -> None:
    """The twin copies when a thread waits, no sooner: after a wait that is too weak others read what is yet to be copied."""
    case = UNITS["copies_ahead"][0]()
    types = [p.type.element for p in case.kernel.params]
    expected = case.expected()[2]

    def run_changed(change: Callable[[list[Instruction]], None]) -> np.ndarray:
        made = lower(case.kernel)
        (loop,) = [i for i in made.body.instructions if i.kind == "for"]
        change(loop.bodies[0].instructions)
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in case.arguments]
        run_thread_kernel(made, case.grid, given, types)
        return given[2]

    def weaker(instructions: list[Instruction]) -> None:
        (wait,) = [i for i in instructions if i.kind == "copy_wait"]
        assert wait.attributes["pending"] == 1
        wait.attributes["pending"] = 2

    def without_barrier(instructions: list[Instruction]) -> None:
        instructions.remove(next(i for i in instructions if i.kind == "barrier"))

    np.testing.assert_array_equal(run_changed(lambda instructions: None), expected)
    for change in (weaker, without_barrier):
        with pytest.raises(TwinError, match="touch byte"):
            run_changed(change)


def test_threads_that_write_one_place_are_reported() -> None:
    kernel = transpose()
    made = lower(kernel)
    (write,) = [i for i in made.body.instructions if i.kind == "shared_store"]
    index = write.operands[0].op
    assert index is not None and index.kind == "index"
    index.attributes["lanes"] = (0, *index.attributes["lanes"][1:])
    with pytest.raises(TwinError, match="touch byte"):
        run(made, kernel)


def test_a_vector_that_is_no_run_is_reported() -> None:
    kernel = transpose()
    made = lower(kernel)
    load = next(i for i in made.body.instructions if i.kind == "load")
    assert load.attributes["vector"] == 4
    load.attributes["vector"] = 8
    with pytest.raises(TwinError, match="no aligned run") as found:
        run(made, kernel)
    assert found.value.code == 716


def test_a_value_that_is_not_uniform_is_reported() -> None:
    b = TermBuilder("uniform", [Tile(Pointer(INT32))] * 2, line=("user.py", 4))
    x, out = b.terms
    out.store(b.total((x + b.index(64)).load(), 0))
    kernel = b.finish(warps=1)
    made = lower(kernel)
    shuffle = next(i for i in made.body.instructions if i.kind == "shuffle")
    shuffle.attributes["xor"] = 0
    with pytest.raises(TwinError, match=r"user\.py:4: uniform: a value that is to be uniform differs"):
        run_thread_kernel(made, (1,), [np.arange(64, dtype=np.int32), np.zeros(1, np.int32)], [None, None])
