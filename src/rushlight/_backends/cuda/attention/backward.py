"""The derivative of attention: one kernel for the queries, one for keys and values, so that each sum has one program
and one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rushlight._backends.cuda.arguments import Array
from rushlight._backends.cuda.attention.scores import (
    LOG2_E,
    AttentionForm,
    Operands,
    Sizes,
    block_sizes,
    padded,
    rows_from,
    tile_ranges,
)
from rushlight._backends.cuda.attention.warpgroups import group_sizes, groups_attend
from rushlight._backends.cuda.program.steps import Launch, Operand
from rushlight._codegen.blocks.expressions import Term, TermBuilder

__all__ = ["BackwardInputs", "to_keys_launch", "to_queries_launch"]


class BackwardInputs(NamedTuple):
    """The inputs of the primitive `attention_grad`: `norm` is log(sum(exp(scores))) of each row, and `delta` is subtracted
    from each row of the cotangents of scores.
    """

    ct: Operand
    q: Operand
    k: Operand
    v: Operand
    norm: Operand
    delta: Operand
    mask: Sequence[Operand]


class _Back(Operands):
    """The operands of the derivative, and the slopes of a tile of scores."""

    def __init__(self, form: AttentionForm, inputs: BackwardInputs) -> None:
        ct, q, k, v, norm, delta, mask = inputs
        super().__init__(form, q, k, v, mask, groups_attend(form, (q, ct, k, v), mask, backward=True))
        self.ct, self.norm, self.delta = (self.array(x, n) for x, n in ((ct, "ct"), (norm, "norm"), (delta, "delta")))

    def builder(self, of: str, rows: int) -> tuple[Sizes, TermBuilder]:
        """The tiles, and the builder of the kernel for the cotangents of so many queries or keys, once all parameters are
        there.
        """
        sizes = group_sizes if self.grouped else block_sizes
        size = sizes(self.dtype, padded(max(self.width, self.depth)), rows, backward=True)
        return size, self.arguments.builder(f"attention_to_{of}_{self.dtype.abbr}_{self.width}_{self.depth}")

    def store(
        self, b: TermBuilder, to: Array, at: tuple[Term, ...], lines: Term, count: Term, width: int, total: Term
    ) -> None:
        """The sums of some rows, as far as there are so many rows and columns."""
        rows, column = lines[:, None], b.index(padded(width))[None, :]
        inside = ((rows < count) & (column < width)).spread(total.shape)
        to.pointer(b, *at, rows, column).store(total, inside)

    def row_numbers(self, b: TermBuilder, at: tuple[Term, ...], lines: Term, n_rows: Term) -> tuple[Term, Term]:
        """log(sum(exp(scores))) in units of log2, and delta, of rows."""
        norm, delta = (x.pointer(b, *at, lines).load(lines < n_rows, 0.0) for x in (self.norm, self.delta))
        return norm * LOG2_E, delta

    def slopes(self, b: TermBuilder, weights: Term, share: Term, delta: Term, kept: Term | None) -> Term:
        """The derivative by the products of queries and keys."""
        share = share if kept is None else share * kept
        return weights * (share - delta) * self.form.scale


def to_queries_launch(form: AttentionForm, inputs: BackwardInputs, out: Operand) -> Launch:
    """The cotangent of the queries."""
    given = _Back(form, inputs)
    to = given.array(out, "to_q")
    size, b = given.builder("queries", given.rows)
    n_rows, n_keys = given.sizes(b)
    start, at = given.begin(b, n_rows, size.held)
    held = rows_from(b, start, size.held)
    lines, rows = held.lines, held.lines[:, None]
    query = given.tile(b, given.q, at, held, n_rows, given.width)
    cotangent = given.tile(b, given.ct, at, held, n_rows, given.depth)
    norms, deltas = (x[:, None] for x in given.row_numbers(b, at, lines, n_rows))
    less = -norms
    before, after = form.bounds()
    ranges = tile_ranges(b, start, size.held, size.others, n_keys, before, after, given.keys % size.others != 0)
    shape, wide = (size.held, size.others), padded(given.width)

    def step(first: Term, edge: bool, total: Term) -> list[Term]:
        places = rows_from(b, first, size.others)
        keys = given.tile(b, given.k, at, places, n_keys, given.width, even=not edge)
        values = given.tile(b, given.v, at, places, n_keys, given.depth, turned=True, even=not edge)
        scores = given.scores(b, query, keys.permute(1, 0), at, rows, places.lines[None, :], edge)
        weights = scores.weights(b, norms, less)
        share = b.matrix_product(cotangent, values, b.number(0, given.sums, shape), form.precision)
        slopes = given.slopes(b, weights, share, deltas, given.kept(b, at, rows, first, size.others))
        return [b.matrix_product(slopes.to(given.dtype), keys, total, form.precision)]

    (total,) = ranges.run(b, size.others, [b.number(0, given.sums, (size.held, wide))], step)
    given.store(b, to, at, lines, n_rows, given.width, total)
    return given.launch(b, size, given.rows, size.held)


def to_keys_launch(form: AttentionForm, inputs: BackwardInputs, outs: tuple[Operand, Operand]) -> Launch:
    """The cotangents of keys and values: one program holds a tile of keys and goes over the queries.

    Scores are turned, [keys, queries], so that what is made of them is the left operand of the products that follow.
    """
    given = _Back(form, inputs)
    to_k, to_v = (given.array(out, name) for out, name in zip(outs, ("to_k", "to_v"), strict=True))
    size, b = given.builder("keys", given.keys)
    n_rows, n_keys = given.sizes(b)
    start, at = given.begin(b, n_keys, size.held)
    held = rows_from(b, start, size.held)
    places, columns = held.lines, held.lines[:, None]
    keys = given.tile(b, given.k, at, held, n_keys, given.width)
    values = given.tile(b, given.v, at, held, n_keys, given.depth)
    left, right = form.bounds()
    ranges = tile_ranges(b, start, size.held, size.others, n_rows, right, left, given.rows % size.others != 0)
    shape = (size.held, size.others)

    def step(first: Term, edge: bool, of_k: Term, of_v: Term) -> list[Term]:
        turn = rows_from(b, first, size.others)
        lines = turn.lines
        query = given.tile(b, given.q, at, turn, n_rows, given.width, even=not edge)
        cotangent = given.tile(b, given.ct, at, turn, n_rows, given.depth, even=not edge)
        norms, deltas = (x[None, :] for x in given.row_numbers(b, at, lines, n_rows))
        scores = given.scores(b, keys, query.permute(1, 0), at, lines[None, :], columns, edge)
        weights = scores.weights(b, norms)
        kept = given.kept(b, at, lines[:, None], start, size.held)
        kept = None if kept is None else kept.permute(1, 0)
        share = b.matrix_product(values, cotangent.permute(1, 0), b.number(0, given.sums, shape), form.precision)
        slopes = given.slopes(b, weights, share, deltas, kept).to(given.dtype)
        dropped = (weights if kept is None else weights * kept).to(given.dtype)
        of_v = b.matrix_product(dropped, cotangent, of_v, form.precision)
        return [b.matrix_product(slopes, query, of_k, form.precision), of_v]

    zeros = [b.number(0, given.sums, (size.held, padded(n))) for n in (given.width, given.depth)]
    for total, to, width in zip(
        ranges.run(b, size.others, zeros, step), (to_k, to_v), (given.width, given.depth), strict=True
    ):
        given.store(b, to, at, places, n_keys, width, total)
    return given.launch(b, size, given.keys, size.held)
