"""Factorisations of matrices that one program holds: real ones of at most `LARGEST` rows and columns.

All are right-looking: a step takes one column (or row) out of the tile by a masked sum, and changes the rest.
"""

from __future__ import annotations

from typing import Any

from rushlight._backends.cuda.arguments import Arguments, Array, Batch, merged
from rushlight._backends.cuda.program.steps import Launch, Operand
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import INT32, INT64
from rushlight._types.layout import numel

__all__ = ["LARGEST", "cholesky_launch", "lu_launch", "permutation_launch", "solve_launch"]

LARGEST = 64
_COLUMNS = 32  # right-hand sides of a program


def _padded(n: int) -> int:
    return max(4, 1 << (n - 1).bit_length())


class _Square:
    """The places of a tile of a matrix."""

    def __init__(self, b: TermBuilder, rows: int, columns: int) -> None:
        self.b, self.shape = b, (_padded(rows), _padded(columns))
        self.r, self.c = b.index(self.shape[0])[:, None], b.index(self.shape[1])[None, :]
        self.inside = ((self.r < rows) & (self.c < columns)).spread(self.shape)

    def column(self, x: Term, j: Term) -> Term:
        """Column j, [rows]."""
        return self.b.total(self.b.where(self.c.equals(j), x, 0), 1)

    def row(self, x: Term, i: Term) -> Term:
        """Row i, [columns]."""
        return self.b.total(self.b.where(self.r.equals(i), x, 0), 0)


def element(b: TermBuilder, x: Term, i: Term) -> Term:
    """One number of a tile of one dim."""
    return b.total(b.where(b.index(x.shape[0]).equals(i), x, 0), 0)


def _vectors(rows: Operand, lead: int) -> Operand:
    """An operand [*B, n] (or [*B]) with dims of size 1 so that it has matrices' dims."""
    more = lead + 2 - len(rows.shape)
    return Operand(rows.memory, rows.dtype, (*rows.shape, *(1,) * more), (*rows.strides, *(0,) * more), rows.offset)


def _alike(*xs: Operand) -> list[Operand]:
    """Operands of one batch, merged; all have two dims more than the batch."""
    lead = len(xs[0].shape) - 2
    return merged(2, *(_vectors(x, lead) for x in xs))


def cholesky_launch(a: Operand, lower: Operand, info: Operand) -> Launch:
    """L of the lower triangle; info is the number of the first column without a positive pivot, from 1."""
    a, lower, info = _alike(a, lower, info)
    n, arguments = a.shape[-1], Arguments()
    x, to, to_info = (Array(arguments, v, k) for v, k in ((a, "a"), (lower, "lower"), (info, "info")))
    batch = Batch(arguments, a.shape[:-2])
    b = arguments.builder(f"cholesky_{a.dtype.abbr}_{n}")
    at, m = batch.split(b, b.program(0)), _Square(b, n, n)
    part = m.inside & (m.r >= m.c)
    matrix = x.pointer(b, *at, m.r, m.c).load(part, 0.0)
    rows = b.index(m.shape[0])

    def step(j: Term, matrix: Term, failed: Term) -> list[Term]:
        column = m.column(matrix, j)
        pivot = element(b, column, j)
        failed = b.where(failed.equals(0) & ~(pivot > 0.0), j + 1, failed)
        root = b.apply("sqrt", pivot)
        scaled = b.where(rows.equals(j), root, b.where(rows > j, column / root, 0.0))
        scaled = b.where(failed.equals(0), scaled, 0.0)
        rest = b.where((m.r > j) & (m.c > j), matrix - scaled[:, None] * _across(scaled, m), matrix)
        return [b.where(m.c.equals(j).spread(m.shape), scaled[:, None], rest), failed]

    matrix, failed = b.loop(0, n, 1, [matrix, b.number(0, INT32)], step)
    to.pointer(b, *at, m.r, m.c).store(b.where(part, matrix, 0.0), m.inside)
    to_info.pointer(b, *at).store(failed)
    return Launch(arguments.finish(b, warps=4), (numel(a.shape[:-2]),), arguments.values)


def _across(x: Term, m: _Square) -> Term:
    return x[None, :].spread(m.shape)


def lu_launch(a: Operand, factors: Operand, pivots: Operand, info: Operand) -> Launch:
    """Gaussian elimination with row exchanges: both factors, the exchanges and the first zero pivot, from 1."""
    a, factors, pivots, info = _alike(a, factors, pivots, info)
    (rows, columns), arguments = a.shape[-2:], Arguments()
    given = ((a, "a"), (factors, "factors"), (pivots, "pivots"), (info, "info"))
    x, to, to_pivots, to_info = (Array(arguments, v, k) for v, k in given)
    batch = Batch(arguments, a.shape[:-2])
    b = arguments.builder(f"lu_{a.dtype.abbr}_{rows}x{columns}")
    at, m = batch.split(b, b.program(0)), _Square(b, rows, columns)
    matrix = x.pointer(b, *at, m.r, m.c).load(m.inside, 0.0)
    places, count = b.index(m.shape[0]), min(rows, columns)

    def step(j: Term, matrix: Term, exchanges: Term, failed: Term) -> list[Term]:
        column = m.column(matrix, j)
        size = b.where((places >= j) & (places < rows), b.apply("abs", column), -1.0)
        best = _first_largest(b, size, places)
        upper, chosen = m.row(matrix, j), m.row(matrix, best)
        matrix = b.where(m.r.equals(j), chosen[None, :], b.where(m.r.equals(best), upper[None, :], matrix))
        column = m.column(matrix, j)
        pivot = element(b, column, j)
        zero = pivot.equals(0.0)
        failed = b.where(failed.equals(0) & zero, j + 1, failed)
        scaled = b.where((places > j) & ~zero, column / b.where(zero, 1.0, pivot), 0.0)
        rest = matrix - scaled[:, None] * chosen[None, :]
        matrix = b.where((m.r > j) & (m.c > j), rest, matrix)
        below = (m.c.equals(j) & (m.r > j) & ~zero).spread(m.shape)
        return [b.where(below, scaled[:, None], matrix), b.where(places.equals(j), best + 1, exchanges), failed]

    begin = [matrix, b.number(0, INT32, places.shape), b.number(0, INT32)]
    matrix, exchanges, failed = b.loop(0, count, 1, begin, step)
    to.pointer(b, *at, m.r, m.c).store(matrix, m.inside)
    to_pivots.pointer(b, *at, places).store(exchanges, places < count)
    to_info.pointer(b, *at).store(failed)
    return Launch(arguments.finish(b, warps=4), (numel(a.shape[:-2]),), arguments.values)


def _first_largest(b: TermBuilder, x: Term, places: Term) -> Term:
    """The first place of the largest number."""

    def larger(k: TermBuilder, left: Any, right: Any) -> list[Any]:
        (x0, i0), (x1, i1) = left, right
        take = k.pointwise("lt", x0, x1)
        return [k.pointwise("select", take, x1, x0), k.pointwise("select", take, i1, i0)]

    return Term(b, b.reduce([x.value, places.value], 0, larger)[1])


def solve_launch(a: Operand, right: Operand, out: Operand, upper: bool, unit: bool) -> Launch:
    """X with A X = B for a triangle of A; `right` and `out` may be the same memory."""
    a, right, out = merged(2, a, right, out)
    n, columns = right.shape[-2:]
    arguments = Arguments()
    x, given, to = (Array(arguments, v, k) for v, k in ((a, "a"), (right, "right"), (out, "out")))
    batch, n_columns = Batch(arguments, a.shape[:-2]), arguments.integer(columns, "columns")
    b = arguments.builder(f"triangular_solve_{a.dtype.abbr}_{n}{'_upper' if upper else ''}{'_unit' if unit else ''}")
    many = arguments.term(b, n_columns)
    blocks = (many + (_COLUMNS - 1)) // _COLUMNS
    at, m = batch.split(b, b.program(0) // blocks), _Square(b, n, n)
    part = m.inside & ((m.r <= m.c) if upper else (m.r >= m.c))
    matrix = x.pointer(b, *at, m.r, m.c).load(part, 0.0)
    rows, columns_here = m.r, (b.program(0) % blocks * _COLUMNS + b.index(_COLUMNS))[None, :]
    inside = ((rows < n) & (columns_here < many)).spread((m.shape[0], _COLUMNS))
    values = given.pointer(b, *at, rows, columns_here).load(inside, 0.0)

    def step(turn: Term, values: Term) -> list[Term]:
        j = (n - 1) - turn if upper else turn
        column = m.column(matrix, j)
        row = b.total(b.where(rows.equals(j), values, 0.0), 0)
        if not unit:
            row = row / element(b, column, j)
        left = (rows < j) if upper else (rows > j)
        rest = values - column[:, None] * row[None, :]
        return [
            b.where(rows.equals(j).spread(values.shape), row[None, :], b.where(left.spread(values.shape), rest, values))
        ]

    (values,) = b.loop(0, n, 1, [values], step)
    to.pointer(b, *at, rows, columns_here).store(values, inside)
    programs = numel(a.shape[:-2]) * -(-columns // _COLUMNS)
    return Launch(arguments.finish(b, warps=4), (programs,), arguments.values)


def permutation_launch(pivots: Operand, order: Operand) -> Launch:
    """The order of rows after all exchanges."""
    as_pivots, as_order = merged(1, pivots, order)
    count, size, arguments = as_pivots.shape[-1], as_order.shape[-1], Arguments()
    x, to = Array(arguments, as_pivots, "pivots"), Array(arguments, as_order, "order")
    batch, n_count = Batch(arguments, as_pivots.shape[:-1]), arguments.integer(count, "count")
    b = arguments.builder(f"permutation_{_padded(size)}")
    at, places = batch.split(b, b.program(0)), b.index(_padded(size))

    def step(j: Term, order: Term) -> list[Term]:
        other = x.pointer(b, *at, j).load() - 1
        mine, theirs = element(b, order, j), element(b, order, other)
        return [b.where(places.equals(j), theirs, b.where(places.equals(other), mine, order))]

    (found,) = b.loop(0, arguments.term(b, n_count), 1, [places], step)
    to.pointer(b, *at, places).store(found.to(INT64), places < size)
    return Launch(arguments.finish(b, warps=4), (numel(as_pivots.shape[:-1]),), arguments.values)
