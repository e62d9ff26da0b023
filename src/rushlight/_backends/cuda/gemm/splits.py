"""The sum over the parts of a product whose inner dim was cut: part after part, then the epilogue."""

from __future__ import annotations

from rushlight._backends.cuda.arguments import Arguments, Batch
from rushlight._backends.cuda.gemm.product import Epilogue, Place
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import INT64, DType

__all__ = ["sum_of_parts"]

_ROWS, _COLUMNS = 8, 128


def sum_of_parts(
    parts: Memory | Operand, dtype: DType, splits: int, shape: tuple[int, ...], epilogue: Epilogue
) -> Launch:
    """Sums dense parts [splits, *batch, rows, columns] of a real dtype and hands tiles to the epilogue."""
    *batch, rows, columns = shape
    arguments = Arguments()
    at = arguments.pointer(parts, "parts", dtype)
    sizes = [arguments.integer(n, name) for n, name in ((rows, "rows"), (columns, "columns"))]
    items = Batch(arguments, batch)
    emit = epilogue.declare(arguments)
    b = arguments.builder(f"sum_of_{splits}_{dtype.abbr}")
    height, width = (arguments.term(b, n) for n in sizes)
    across, down = (width + (_COLUMNS - 1)) // _COLUMNS, (height + (_ROWS - 1)) // _ROWS
    number = b.program(0)
    r = ((number // across % down) * _ROWS + b.index(_ROWS))[:, None]
    c = ((number % across) * _COLUMNS + b.index(_COLUMNS))[None, :]
    inside = ((r < height) & (c < width)).spread((_ROWS, _COLUMNS))
    item = number // (across * down)
    step = height.to(INT64) * width.to(INT64)
    offset = item.to(INT64) * step + r.to(INT64) * width.to(INT64) + c.to(INT64)
    whole = _count(b, arguments, items) * step
    total = b.number(0, dtype, (_ROWS, _COLUMNS))
    for part in range(splits):
        total = total + (arguments.term(b, at) + (offset + whole * part)).load(inside, 0)
    emit(b, total, Place(items.split(b, item), r, c, inside, height, width))
    size = 1
    for n in batch:
        size *= n
    grid = size * -(-rows // _ROWS) * -(-columns // _COLUMNS)
    return Launch(arguments.finish(b), (grid,), arguments.values)


def _count(b: TermBuilder, arguments: Arguments, items: Batch) -> Term:
    product = b.number(1, INT64)
    for n in items.counts:
        product = product * arguments.term(b, n).to(INT64)
    return product
