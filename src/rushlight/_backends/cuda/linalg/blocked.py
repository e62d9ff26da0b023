"""Large factorisations and triangular systems in blocks of rows: small kernels on the diagonal, products elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from rushlight._backends.cuda.arguments import Arguments, Array, merged
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.gemm.dot import product_steps
from rushlight._backends.cuda.gemm.product import Epilogue, Place
from rushlight._backends.cuda.linalg.small import LARGEST, cholesky_launch, solve_launch
from rushlight._backends.cuda.program.steps import Launch, Operand, Step
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import INT32
from rushlight._types.layout import numel

__all__ = ["cholesky_steps", "solve_steps"]

_BLOCK = 1024


def part(x: Operand, rows: tuple[int, int], columns: tuple[int, int]) -> Operand:
    """Rows and columns of a matrix, from the first to before the last."""
    shape = (*x.shape[:-2], rows[1] - rows[0], columns[1] - columns[0])
    return Operand(x.memory, x.dtype, shape, x.strides, x.offset + rows[0] * x.strides[-2] + columns[0] * x.strides[-1])


def turned(x: Operand) -> Operand:
    """The transpose."""
    shape, strides = ((*of[:-2], of[-1], of[-2]) for of in (x.shape, x.strides))
    return Operand(x.memory, x.dtype, shape, strides, x.offset)


def _subtracted(call: ExternCall, a: Operand, b: Operand, target: Operand) -> list[Step]:
    """target -= a b."""

    def declare(arguments: Arguments) -> Callable[[TermBuilder, Term, Place], None]:
        array = Array(arguments, target, "target")

        def emit(k: TermBuilder, sums: Term, place: Place) -> None:
            pointer = array.pointer(k, *place.batch, place.rows, place.columns)
            before = pointer.spread(sums.shape).load(place.inside, None if place.inside is None else 0.0)
            pointer.store(before - sums, place.inside)

        return emit

    a, b, target = merged(2, a, b, target)
    return product_steps(call, a, b, target, epilogue=Epilogue(declare), precision="ieee")


def solve_steps(call: ExternCall) -> list[Step]:
    """`triangular_solve`: block after block of rows."""
    a, right = call.inputs
    return _solved(call, a, right, call.outputs[0], call.params["upper"], call.params["unit"])


def _solved(call: ExternCall, a: Operand, right: Operand, out: Operand, upper: bool, unit: bool) -> list[Step]:
    n, columns = right.shape[-2:]
    if n <= LARGEST:
        return [solve_launch(a, right, out, upper, unit)]
    steps: list[Step] = [] if right is out else [_copied(right, out, "all")]
    starts = list(range(0, n, LARGEST))
    for first in reversed(starts) if upper else starts:
        here, every = (first, min(first + LARGEST, n)), (0, columns)
        rows = part(out, here, every)
        steps.append(solve_launch(part(a, here, here), rows, rows, upper, unit))
        rest = (0, first) if upper else (here[1], n)
        if rest[0] < rest[1]:
            steps += _subtracted(call, part(a, rest, here), rows, part(out, rest, every))
    return steps


def cholesky_steps(call: ExternCall) -> list[Step]:
    """`cholesky`: a block of columns, then the rest of the matrix minus its product with itself."""
    a, (lower, info) = call.inputs[0], call.outputs
    n = a.shape[-1]
    if n <= LARGEST:
        return [cholesky_launch(a, lower, info)]
    starts = range(0, n, LARGEST)
    infos = call.scratch(4 * len(starts) * max(numel(info.shape), 1), "infos")
    count = numel(info.shape)
    steps: list[Step] = [_copied(a, lower, "lower")]
    for k, first in enumerate(starts):
        here, below = (first, min(first + LARGEST, n)), (min(first + LARGEST, n), n)
        block = part(lower, here, here)
        steps.append(cholesky_launch(block, block, Operand(infos, INT32, info.shape, _dense(info.shape), k * count)))
        if below[0] < below[1]:
            column = part(lower, below, here)
            steps += _solved(call, block, turned(column), turned(column), upper=False, unit=False)
            steps += _subtracted(call, column, turned(column), part(lower, below, below))
    steps += [
        _copied(lower, lower, "lower"),
        _first_failure(Operand(infos, INT32, (len(starts), count), (count, 1)), info),
    ]
    return steps


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _copied(source: Operand, target: Operand, what: str) -> Launch:
    """All of a dense matrix, or its lower triangle with zeros above."""
    arguments, (rows, columns) = Arguments(), source.shape[-2:]
    x, to = arguments.pointer(source, "source"), arguments.pointer(target, "target")
    total = numel(source.shape)
    n = arguments.integer(total, "total")
    n_rows, n_columns = arguments.integer(rows, "rows"), arguments.integer(columns, "columns")
    b = arguments.builder(f"copy_{what}_{source.dtype.abbr}")
    place = b.program(0) * _BLOCK + b.index(_BLOCK)
    inside = place < arguments.term(b, n)
    value = (arguments.term(b, x) + place).load(inside, 0.0)
    if what == "lower":
        width = arguments.term(b, n_columns)
        row, column = place // width % arguments.term(b, n_rows), place % width
        value = b.where(row >= column, value, 0.0)
    (arguments.term(b, to) + place).store(value, inside)
    return Launch(arguments.finish(b), (-(-total // _BLOCK),), arguments.values)


def _first_failure(infos: Operand, info: Operand) -> Launch:
    """The column number of the first block that failed; 0 where none did."""
    arguments, (blocks, count) = Arguments(), infos.shape
    x, to = arguments.pointer(infos, "infos"), arguments.pointer(info, "info")
    n = arguments.integer(count, "count")
    b = arguments.builder(f"first_failure_{blocks}")
    place = b.program(0) * 128 + b.index(128)
    inside, many = place < arguments.term(b, n), arguments.term(b, n)
    found = b.number(0, INT32, (128,))
    for k in range(blocks):
        here = (arguments.term(b, x) + (place + many * k)).load(inside, 0)
        found = b.where(found.equals(0) & here.differs(0), here + k * LARGEST, found)
    (arguments.term(b, to) + place).store(found, inside)
    return Launch(arguments.finish(b), (-(-count // 128),), arguments.values)
