"""Batched products of which one operand is the same for all: the batch becomes rows of one product.

So do convolutions of one tap over channels-last images, whose weights are the operand that repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rushlight._backends.cuda.arguments import Arguments, Batch
from rushlight._backends.cuda.gemm.product import Epilogue, Place
from rushlight._backends.cuda.program.steps import Operand
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.layout import numel

__all__ = ["Joined", "join_batch", "of_transposed", "transposed"]

_MOST_ROWS = 1 << 30  # that int32 counts with room for a tile


class Joined(NamedTuple):
    """A product without a batch, and what stores its tiles as those of the product that it was."""

    a: Operand
    b: Operand
    out: Operand
    store: Epilogue


def join_batch(a: Operand, b: Operand, out: Operand, store: Epilogue) -> Joined | None:
    """The same product with the batch among its rows; None where both operands change along it, or where the rows of the one
    that does are no matrix in memory.  The strides of `out` mean nothing then.
    """
    batch = tuple(out.shape[:-2])
    if numel(batch) < 2:
        return None
    if _repeats(b):
        return _rows_joined(a, b, out, store, batch)
    if _repeats(a):
        given = (transposed(b), transposed(a), transposed(out))
        return _rows_joined(*given, of_transposed(store), batch)
    return None


def _repeats(x: Operand) -> bool:
    return all(stride == 0 or size == 1 for size, stride in zip(x.shape[:-2], x.strides[:-2], strict=True))


def _rows_joined(a: Operand, b: Operand, out: Operand, store: Epilogue, batch: tuple[int, ...]) -> Joined | None:
    step, reach = 1, 1
    for size, stride in zip(reversed(a.shape[:-1]), reversed(a.strides[:-1]), strict=True):
        if size > 1 and (stride == 0 or (reach > 1 and stride != step * reach)):
            return None
        step = stride if size > 1 and reach == 1 else step
        reach *= size
    if reach >= _MOST_ROWS:
        return None
    rows, depth, columns = reach, a.shape[-1], b.shape[-1]
    left = Operand(a.memory, a.dtype, (rows, depth), (step, a.strides[-1]), a.offset)
    right = Operand(b.memory, b.dtype, b.shape[-2:], b.strides[-2:], b.offset)
    whole = Operand(out.memory, out.dtype, (rows, columns), (0, 0), out.offset)
    return Joined(left, right, whole, _of_joined(store, batch, out.shape[-2]))


def _of_joined(store: Epilogue, batch: Sequence[int], rows: int) -> Epilogue:
    """The epilogue that stores tiles of a batch, given tiles of all its rows."""

    def declare(arguments: Arguments) -> Callable[[TermBuilder, Term, Place], None]:
        emit, items = store.declare(arguments), Batch(arguments, batch)
        count = arguments.integer(rows, "rows_of_item")

        def apart(b: TermBuilder, sums: Term, place: Place) -> None:
            each = arguments.term(b, count)
            item = place.rows // each
            row = b.where(place.rows < place.row_end, place.rows % each, each)  # those behind the end stay behind
            emit(b, sums, Place(items.split(b, item), row, place.columns, place.inside, each, place.column_end))

        return apart

    return Epilogue(declare)


def transposed(x: Operand) -> Operand:
    """The last two dims exchanged."""
    order = (*range(len(x.shape) - 2), -1, -2)
    return Operand(x.memory, x.dtype, [x.shape[d] for d in order], [x.strides[d] for d in order], x.offset)


def of_transposed(store: Epilogue) -> Epilogue:
    """The epilogue that stores a product, given tiles of its transpose."""

    def declare(arguments: Arguments) -> Callable[[TermBuilder, Term, Place], None]:
        emit = store.declare(arguments)

        def turned(b: TermBuilder, sums: Term, place: Place) -> None:
            rows, columns = place.columns.permute(1, 0), place.rows.permute(1, 0)
            batch = tuple(x.permute(1, 0) if x.shape else x for x in place.batch)
            inside = None if place.inside is None else place.inside.permute(1, 0)
            emit(b, sums.permute(1, 0), Place(batch, rows, columns, inside, place.column_end, place.row_end))

        return turned

    return Epilogue(declare)
