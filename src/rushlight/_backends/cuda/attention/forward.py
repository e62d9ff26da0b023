"""Attention block by block: one program holds a tile of queries, and goes over the keys once (Dao et al.,
"FlashAttention-2", 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rushlight._backends.cuda.attention.scores import (
    LOG2_E,
    AttentionForm,
    Operands,
    Scores,
    block_sizes,
    padded,
    power,
    rows_from,
    tile_ranges,
)
from rushlight._backends.cuda.attention.warpgroups import group_sizes, groups_attend
from rushlight._backends.cuda.program.steps import Launch, Operand
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import DType

__all__ = ["begun", "finished", "forward_launch", "weighed"]


def begun(b: TermBuilder, sums: DType, rows: int, width: int) -> list[Term]:
    """Rows before their first key: the largest score, the sum of weights, the sum of values."""
    return [b.number(-math.inf, sums, (rows,)), b.number(0, sums, (rows,)), b.number(0, sums, (rows, width))]


def weighed(b: TermBuilder, scores: Scores, top: Term, total: Term) -> tuple[Term, Term, Term, Term]:
    """The largest scores (in units of log2) and the sums of weights with more scores, the weights of these, and the factor
    of what was summed before.
    """
    new_top = top.greatest(scores.top(b))
    base = b.where(new_top.equals(-math.inf), 0.0, new_top)
    weights = scores.weights(b, base[:, None])
    shrink = power(b, top - base, scores.narrow)
    return new_top, total * shrink + b.total(weights, 1), weights, shrink


def finished(b: TermBuilder, top: Term, total: Term, mixed: Term) -> tuple[Term, Term]:
    """The result and log(sum(exp(scores))) of rows; 0 and inf without keys."""
    dead = total.equals(0.0)
    logarithm = (b.apply("log2", b.where(dead, 1.0, total)) + b.where(dead, 0.0, top)) * (1 / LOG2_E)
    return mixed / b.where(dead, 1.0, total)[:, None], b.where(dead, math.inf, logarithm)


def forward_launch(
    form: AttentionForm, q: Operand, k: Operand, v: Operand, mask: Sequence[Operand], out: Operand, norm: Operand
) -> Launch:
    """out = softmax(scores) v of [*B, L, E], [*B, S, E], [*B, S, F], and norm = log(sum(exp(scores))) [*B, L]."""
    grouped = groups_attend(form, (q, k, v), mask)
    given = Operands(form, q, k, v, mask, grouped)
    to, to_norm = given.array(out, "out"), given.array(norm, "norm")
    sizes = group_sizes if grouped else block_sizes
    size = sizes(q.dtype, padded(max(given.width, given.depth)), given.rows)
    b = given.arguments.builder(f"attention_{q.dtype.abbr}_{given.width}_{given.depth}")
    n_rows, n_keys = given.sizes(b)
    start, at = given.begin(b, n_rows, size.held)
    held = rows_from(b, start, size.held)
    lines, rows = held.lines, held.lines[:, None]
    query = given.tile(b, given.q, at, held, n_rows, given.width)
    sums, deep = given.sums, padded(given.depth)
    before, after = form.bounds()
    ranges = tile_ranges(b, start, size.held, size.others, n_keys, before, after, given.keys % size.others != 0)

    def step(first: Term, edge: bool, top: Term, total: Term, mixed: Term) -> list[Term]:
        places = rows_from(b, first, size.others)
        columns = places.lines[None, :]
        keys = given.tile(b, given.k, at, places, n_keys, given.width, turned=True, even=not edge)
        scores = given.scores(b, query, keys, at, rows, columns, edge)
        new_top, total, weights, shrink = weighed(b, scores, top, total)
        kept = given.kept(b, at, rows, first, size.others)
        if kept is not None:
            weights = weights * kept
        values = given.tile(b, given.v, at, places, n_keys, given.depth, even=not edge)
        mixed = b.matrix_product(weights.to(given.dtype), values, mixed * shrink[:, None], form.precision)
        return [new_top, total, mixed]

    begin = begun(b, sums, size.held, deep)
    top, total, mixed = ranges.run(b, size.others, begin, step)
    result, logarithm = finished(b, top, total, mixed)
    inside = lines < n_rows
    column = b.index(deep)[None, :]
    to.pointer(b, *at, rows, column).store(result, (inside[:, None] & (column < given.depth)).spread(result.shape))
    to_norm.pointer(b, *at, lines).store(logarithm, inside)
    return given.launch(b, size, given.rows, size.held)
