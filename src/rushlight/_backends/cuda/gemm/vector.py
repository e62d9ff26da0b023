"""Products with a vector: one operand has one row (or column).  Each program sums up some of the results; memory is the
limit, so it is read along whichever dim is dense.
"""

from __future__ import annotations

from rushlight._backends.cuda.arguments import Arguments, index_dtype
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
    m, v = arguments.pointer(matrix, "matrix"), arguments.pointer(vector, "vector")
    of_m, of_v = index_dtype(matrix), index_dtype(vector)
    m_strides = [arguments.integer(s, f"matrix_stride{d}", of_m) for d, s in enumerate(matrix.strides)]
    v_strides = [arguments.integer(s, f"vector_stride{d}", of_v) for d, s in enumerate(vector.strides)]
    sizes = [arguments.integer(n, name) for n, name in ((count, "count"), (depth, "depth"))]
    counts = [arguments.integer(n, f"batch{d}") for d, n in enumerate(batch)]
    emit = epilogue.declare(arguments)
    b = arguments.builder(f"vector_product_{matrix.dtype.abbr}_{vector.dtype.abbr}_{'rows' if dense else 'columns'}")
    many, deep = (arguments.term(b, n) for n in sizes)
    blocks = (many + (outs - 1)) // outs
    number = b.program(0)
    i = ((number % blocks) * outs + b.index(outs))[:, None]
    rest, indices = number // blocks, []
    for size in reversed(counts):
        n = arguments.term(b, size)
        indices.append(rest % n)
        rest = rest // n
    place = tuple(reversed(indices))

    def turn_of(k: Term, *total: Term) -> list[Term]:
        at = (k + b.index(turn))[None, :]
        inside = ((i < many) & (at < deep)).spread((outs, turn))
        offset_m, offset_v = (
            i.to(of_m) * arguments.term(b, m_strides[-2], of_m) + at.to(of_m) * arguments.term(b, m_strides[-1], of_m),
            at.to(of_v) * arguments.term(b, v_strides[-1], of_v),
        )
        for index, s, t in zip(place, m_strides, v_strides, strict=False):
            offset_m = offset_m + index.to(of_m) * arguments.term(b, s, of_m)
            offset_v = offset_v + index.to(of_v) * arguments.term(b, t, of_v)
        x = (arguments.term(b, m) + offset_m).load(inside, 0).to(sums)
        y = (arguments.term(b, v) + offset_v).load((at < deep).spread((1, turn)), 0).to(sums)
        return [total[0] + x * y]

    (spread,) = b.loop(0, deep, turn, [b.number(0, sums, (outs, turn))], turn_of)
    total = b.total(spread, 1)
    zero = b.number(0, i.dtype, (1, 1))
    if row:
        where = Place(place, zero, i.reshape(1, outs), (i < many).reshape(1, outs))
        emit(b, total.reshape(1, outs), where)
    else:
        emit(b, total.reshape(outs, 1), Place(place, i, zero, (i < many)))
    size = 1
    for n in batch:
        size *= n
    return Launch(arguments.finish(b, warps=4), (size * -(-count // outs),), arguments.values)
