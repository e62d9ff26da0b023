"""Products with a vector: one operand has one row (or column).  Each program sums up some of the results; memory is the
limit, so it is read along whichever dim is dense.
"""

from __future__ import annotations

from rushlight._backends.cuda.arguments import Arguments, Array, Batch
from rushlight._backends.cuda.gemm.product import Epilogue, Place
from rushlight._backends.cuda.program.steps import Launch, Operand
from rushlight._codegen.blocks.expressions import Term
from rushlight._types.dtype import DType

__all__ = ["vector_launch"]


def vector_launch(matrix: Operand, vector: Operand, sums: DType, row: bool, epilogue: Epilogue) -> Launch:
    """sum over k of matrix[*, i, k] vector[*, k] into a result [*, 1, i] where `row`, else [*, i, 1]."""
    *batch, count, depth = matrix.shape
    dense = abs(matrix.strides[-1]) <= abs(matrix.strides[-2])
    outs, turn = (8, 512) if dense else (128, 32)
    arguments = Arguments()
    m, v = Array(arguments, matrix, "matrix"), Array(arguments, vector, "vector")
    sizes = [arguments.integer(n, name) for n, name in ((count, "count"), (depth, "depth"))]
    items = Batch(arguments, batch)
    emit = epilogue.declare(arguments)
    b = arguments.builder(f"vector_product_{matrix.dtype.abbr}_{vector.dtype.abbr}_{'rows' if dense else 'columns'}")
    many, deep = (arguments.term(b, n) for n in sizes)
    blocks = (many + (outs - 1)) // outs
    number = b.program(0)
    i = ((number % blocks) * outs + b.index(outs))[:, None]
    place = items.split(b, number // blocks)

    def turn_of(k: Term, *total: Term) -> list[Term]:
        at = (k + b.index(turn))[None, :]
        inside = ((i < many) & (at < deep)).spread((outs, turn))
        x = m.pointer(b, *place, i, at).load(inside, 0).to(sums)
        y = v.pointer(b, *place, at).load((at < deep).spread((1, turn)), 0).to(sums)
        return [total[0] + x * y]

    (spread,) = b.loop(0, deep, turn, [b.number(0, sums, (outs, turn))], turn_of)
    total = b.total(spread, 1)
    zero, one = b.number(0, i.dtype, (1, 1)), b.number(1, i.dtype)
    if row:
        where = Place(place, zero, i.reshape(1, outs), (i < many).reshape(1, outs), one, many)
        emit(b, total.reshape(1, outs), where)
    else:
        emit(b, total.reshape(outs, 1), Place(place, i, zero, (i < many), many, one))
    size = 1
    for n in batch:
        size *= n
    return Launch(arguments.finish(b, warps=4), (size * -(-count // outs),), arguments.values)
