"""Several launches of one kernel as one launch: what differs between them is a table among the parameters.

A row of the table is a launch: the number of its first program, then the arguments that differ.  A program finds its row
by bisection, and does what it would have done in that launch.

>>> from rushlight._codegen.blocks import BlockBuilder, Pointer, Tile
>>> from rushlight._codegen.blocks.joined import joined_kernel
>>> from rushlight._types.dtype import FLOAT32
>>> b = BlockBuilder("ones", [Tile(Pointer(FLOAT32)), Tile(FLOAT32)])
>>> b.store(b.offset(b.params[0], b.program_id()), b.params[1])
>>> [p.type for p in joined_kernel(b.finish(), [0], 2).params]
[f32, i32, *f32, i32, *f32]
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._types.dtype import INT32

from .builder import BlockBuilder
from .ir import Kernel, Value
from .passes import copied_ops
from .types import Tile

__all__ = ["can_be_joined", "joined_kernel"]


def can_be_joined(kernel: Kernel) -> bool:
    """Whether programs of a kernel know of the grid their number along x alone."""
    for op in kernel.body.walk():
        if op.kind in ("num_programs", "load_tile", "load_windows", "dot", "print", "choose"):
            return False
        if op.kind == "program_id" and op.attributes["axis"]:
            return False
    return True


def joined_kernel(kernel: Kernel, varying: Sequence[int], rows: int) -> Kernel:
    """A kernel of the parameters that are equal in all launches, then of a table with `rows` rows, a power of two.

    `varying` are the numbers of the parameters that differ.  A row that no program is to take begins behind the last one.
    """
    assert rows & (rows - 1) == 0
    equal = [k for k in range(len(kernel.params)) if k not in varying]
    columns = [Tile(INT32), *[kernel.params[k].type for k in varying]]
    types = [*[kernel.params[k].type for k in equal], *columns * rows]
    b = BlockBuilder(kernel.name, types)

    def column(number: int) -> list[Value]:
        return b.params[len(equal) + number :: len(columns)]

    program, row = b.program_id(), b.constant(0, INT32)
    step = rows // 2
    while step:
        later = b.pointwise("add", row, b.constant(step, INT32))
        reached = b.pointwise("le", b.choose(later, column(0)), program)
        row, step = b.pointwise("select", reached, later, row), step // 2
    own = b.pointwise("sub", program, b.choose(row, column(0)))
    found = {kernel.params[k]: b.params[n] for n, k in enumerate(equal)}
    found |= {kernel.params[k]: b.choose(row, column(1 + n)) for n, k in enumerate(varying)}
    found |= {op.result: own for op in kernel.body.walk() if op.kind == "program_id"}
    b.regions[-1].ops += copied_ops(kernel.body, found)[:-1]
    divisible = {n: kernel.divisible[k] for n, k in enumerate(equal) if k in kernel.divisible}
    for n, k in enumerate(varying):
        if k in kernel.divisible:
            places = range(len(equal) + 1 + n, len(types), len(columns))
            divisible |= dict.fromkeys(places, kernel.divisible[k])
    return b.finish(divisible=divisible, warps=kernel.warps, stages=kernel.stages)
