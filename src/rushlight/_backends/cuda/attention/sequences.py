"""Attention within sequences that lie one behind the other: kernels read where each begins from the device's memory.

A program holds rows of one sequence and of one head of keys: a row is a query of one of the heads that share it, so each tile
of keys is read once for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rushlight._backends.cuda.arguments import Arguments, Array
from rushlight._backends.cuda.attention.forward import begun, finished, weighed
from rushlight._backends.cuda.attention.scores import LOG2_E, Ranges, Scores, Sizes, block_sizes, padded
from rushlight._backends.cuda.program.steps import Launch, Operand
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import INT32

__all__ = [
    "Sequences",
    "forward",
    "forward_of_parts",
    "key_parts",
    "parts_shapes",
    "sum_of_parts",
    "to_keys",
    "to_queries",
]


class Sequences(NamedTuple):
    """Operands and numbers of a call: `starts_k` is None with a `table` of pages, `left` and `right` are -1 for any number."""

    q: Operand
    k: Operand
    v: Operand
    starts_q: Operand
    starts_k: Operand | None
    used: Operand | None
    table: Operand | None
    scale: float
    left: int
    right: int
    max_q: int
    max_k: int
    precision: str

    @property
    def sequences(self) -> int:
        return self.starts_q.shape[0] - 1

    @property
    def heads(self) -> int:
        """Of keys."""
        return self.k.shape[-2]

    @property
    def each(self) -> int:
        """Heads of queries for one of keys."""
        return self.q.shape[1] // self.heads


class _Place(NamedTuple):
    """The share of one program: sequence `item`, head `group`, rows from `start` on.  Counts of queries and keys."""

    item: Term
    group: Term
    start: Term
    queries: Term
    keys: Term
    first_query: Term
    first_key: Term


class _Kernel:
    """A kernel under construction: its parameters, where it is, and tiles of operands."""

    def __init__(self, of: Sequences, name: str, more: Sequence[tuple[Operand, str]]) -> None:
        self.of, self.arguments = of, Arguments()
        self.name = f"{name}_{of.q.dtype.abbr}_{of.q.shape[-1]}_{of.v.shape[-1]}_{of.each}"
        given = [(of.q, "q"), (of.k, "k"), (of.v, "v"), (of.starts_q, "starts_q"), *more]
        for x, label in ((of.starts_k, "starts_k"), (of.used, "used"), (of.table, "table")):
            if x is not None:
                given.append((x, label))
        self.arrays = {label: Array(self.arguments, x, label) for x, label in given}
        self.sequences = self.arguments.integer(of.sequences, "sequences")
        self.groups = self.arguments.integer(of.heads, "groups")
        self.sums, self.tokens = of.q.dtype.wide, self.arguments.integer(0, "tokens")

    def begin(self, rows: int, size: Sizes) -> TermBuilder:
        """The builder; programs are blocks of `rows` rows, then heads, then sequences."""
        self.size, self.count_blocks = size, -(-rows // size.held)
        self.blocks = self.arguments.integer(self.count_blocks, "blocks")
        return self.arguments.builder(self.name)

    def number(self, b: TermBuilder, label: str, at: Term, there: Term) -> Term:
        return self.arrays[label].pointer(b, at).load(there, 0).to(INT32)

    def place(self, b: TermBuilder) -> _Place:
        """Where this program is; behind the last sequence there are programs of one more, which has no tokens."""
        blocks, groups = (self.arguments.term(b, x) for x in (self.blocks, self.groups))
        number = b.program(0)
        start, rest = number % blocks * self.size.held, number // blocks
        item, group = rest // groups, rest % groups
        there = item < self.arguments.term(b, self.sequences)
        first = self.number(b, "starts_q", item, there)
        queries = self.number(b, "starts_q", item + 1, there) - first
        zero = b.number(0, INT32)
        if self.of.starts_k is None:
            first_key, keys = zero, self.number(b, "used", item, there)
        else:
            first_key = self.number(b, "starts_k", item, there)
            keys = self.number(b, "starts_k", item + 1, there) - first_key
            if self.of.used is not None:
                keys = self.number(b, "used", item, there)
        return _Place(item, group, start, queries, keys, first, first_key)

    def all_keys(self, b: TermBuilder, at: _Place) -> Term:
        """Keys of the sequence, those included that are not used."""
        if self.of.used is None:
            return at.keys
        return self.number(b, "starts_k", at.item + 1, at.item < self.arguments.term(b, self.sequences)) - at.first_key

    # ***** tiles *****

    def rows(self, b: TermBuilder, at: _Place, lines: Term) -> tuple[Term, Term]:
        """The token and the head of each row."""
        each = self.of.each
        return at.first_query + lines // each, at.group * each + (lines % each if each > 1 else b.number(0, INT32))

    def row_tile(self, b: TermBuilder, label: str, at: _Place, lines: Term, width: int, even: bool) -> Term:
        token, head = self.rows(b, at, lines)
        pointer = self.arrays[label].pointer(b, token[:, None], _column(head), b.index(padded(width))[None, :])
        return _loaded(b, pointer, None if even else lines < at.queries * self.of.each, width)

    def row_numbers(self, b: TermBuilder, label: str, at: _Place, lines: Term) -> Term:
        token, head = self.rows(b, at, lines)
        return self.arrays[label].pointer(b, head, token).load(lines < at.queries * self.of.each, 0.0)

    def key_tile(
        self, b: TermBuilder, label: str, at: _Place, places: Term, width: int, turned: bool, even: bool
    ) -> Term:
        """Rows of keys or of values, [keys, width], or turned."""
        columns, array = b.index(padded(width)), self.arrays[label]
        line, column = (places[None, :], columns[:, None]) if turned else (places[:, None], columns[None, :])
        if self.of.table is None:
            pointer = array.pointer(b, at.first_key + line, at.group, column)
        else:
            size = self.of.k.shape[1]
            there = places < at.keys
            page = self.arrays["table"].pointer(b, at.item, places // size).load(there, 0).to(INT32)
            page = page[None, :] if turned else page[:, None]
            pointer = array.pointer(b, page, line % size, at.group, column)
        return _loaded(b, pointer, None if even else places < at.keys, width, turned)

    def store_rows(
        self, b: TermBuilder, label: str, at: _Place, lines: Term, width: int, value: Term, lead: tuple[Term, ...] = ()
    ) -> None:
        """Rows of [*lead, T, H, width]."""
        token, head = self.rows(b, at, lines)
        column = b.index(padded(width))[None, :]
        inside = (lines < at.queries * self.of.each)[:, None] & (column < width)
        to = self.arrays[label].pointer(b, *lead, token[:, None], _column(head), column)
        to.store(value, inside.spread(value.shape))

    def store_numbers(
        self, b: TermBuilder, label: str, at: _Place, lines: Term, value: Term, lead: tuple[Term, ...] = ()
    ) -> None:
        """A number of each row, of [*lead, H, T]."""
        token, head = self.rows(b, at, lines)
        self.arrays[label].pointer(b, *lead, head, token).store(value, lines < at.queries * self.of.each)

    def store_keys(self, b: TermBuilder, label: str, at: _Place, places: Term, width: int, value: Term) -> None:
        column = b.index(padded(width))[None, :]
        inside = (places < at.keys)[:, None] & (column < width)
        to = self.arrays[label].pointer(b, at.first_key + places[:, None], at.group, column)
        to.store(value, inside.spread(value.shape))

    # ***** scores *****

    def scores(
        self, b: TermBuilder, at: _Place, left: Term, right: Term, lines: Term, places: Term, edge: bool
    ) -> Scores:
        """Scores of rows and keys or turned, as `lines` and `places` lie."""
        of, shape = self.of, (left.shape[0], right.shape[1])
        products = b.matrix_product(left, right, b.number(0, self.sums, shape), of.precision)
        scores = Scores.of(products, of.scale * LOG2_E, of.q.dtype.itemsize == 2)
        if not edge:
            return scores
        inside = (lines < at.queries * of.each) & (places < at.keys)
        stands = lines // of.each + (at.keys - at.queries)
        if of.right >= 0:
            inside = inside & (places <= stands + of.right)
        if of.left >= 0:
            inside = inside & (stands <= places + of.left)
        return scores.limited(b, inside)

    def key_ranges(self, b: TermBuilder, at: _Place) -> Ranges:
        """The keys of the rows from `at.start` on."""
        of, ahead = self.of, at.keys - at.queries
        first = at.start // of.each + ahead
        last = ((at.start + (self.size.held - 1)) // of.each).least(at.queries - 1) + ahead
        low = None if of.left < 0 else (first - of.left, last - of.left)
        high = None if of.right < 0 else (last + (of.right + 1), first + (of.right + 1))
        held = at.start < at.queries * of.each
        return _ranges(b, self.size.others, b.where(held, at.keys, 0), low, high)

    def row_ranges(self, b: TermBuilder, at: _Place) -> Ranges:
        """The rows of the keys from `at.start` on."""
        of, ahead = self.of, at.keys - at.queries
        first = at.start - ahead
        last = (at.start + (self.size.held - 1)).least(at.keys - 1) - ahead
        low = None if of.right < 0 else ((first - of.right) * of.each, (last - of.right) * of.each)
        high = None if of.left < 0 else ((last + (of.left + 1)) * of.each, (first + (of.left + 1)) * of.each)
        return _ranges(b, self.size.others, b.where(at.start < at.keys, at.queries * of.each, 0), low, high)

    def behind(self, b: TermBuilder, at: _Place, starts: str, each: int, write: Callable[[_Place, Term], None]) -> None:
        """`write(place, lines)` for the lines (`each` for a token) behind the last sequence, by the programs of one more."""
        count = self.arguments.term(b, self.sequences)
        end = self.arrays[starts].pointer(b, count).load().to(INT32)
        missing = self.arguments.term(b, self.tokens) - end
        there = at._replace(first_query=end, first_key=end, queries=missing, keys=missing)

        def turn(first: Term) -> list[Term]:
            write(there, first + b.index(self.size.held))
            return []

        last = b.where(at.item.equals(count), missing * each, 0)
        b.loop(at.start, last, self.count_blocks * self.size.held, [], turn)

    def launch(self, b: TermBuilder, parts: int = 1) -> Launch:
        kernel = self.arguments.finish(b, warps=self.size.warps, stages=self.size.stages)
        programs = self.count_blocks * self.of.heads * (self.of.sequences + 1)
        return Launch(kernel, (programs, parts), self.arguments.values)


def _column(x: Term) -> Term:
    return x[:, None] if x.shape else x


def _loaded(b: TermBuilder, pointer: Term, lines: Term | None, width: int, turned: bool = False) -> Term:
    """A tile of `width` columns, zeros outside."""
    inside, columns = lines, pointer.shape[0 if turned else 1]
    if inside is not None:
        inside = inside[None, :] if turned else inside[:, None]
    if columns != width:
        limit = b.index(columns) < width
        limit = limit[:, None] if turned else limit[None, :]
        inside = limit if inside is None else inside & limit
    return pointer.load(None if inside is None else inside.spread(pointer.shape), None if inside is None else 0)


Bounds = tuple[Term, Term] | None


def _ranges(b: TermBuilder, step: int, count: Term, low: Bounds, high: Bounds) -> Ranges:
    """Tiles of `step` of `count` others.  `low`: from where on some and from where on all items take part; `high`: up to
    where some do and up to where all do.
    """
    zero = b.number(0, INT32)
    first = zero if low is None else low[0].greatest(0) // step * step
    last = count if high is None else count.least(high[0]).greatest(0)
    behind = (count if high is None else count.least(high[1]).greatest(0)) // step * step
    if low is None:
        return Ranges(first, first, behind, last)
    whole = ((low[1].greatest(0) + (step - 1)) // step * step).greatest(first)
    whole = whole.least((last + (step - 1)) // step * step)
    return Ranges(first, whole, behind.greatest(whole), last)


# ***** kernels *****


def _attended(kernel: _Kernel, b: TermBuilder, at: _Place, ranges: Ranges) -> tuple[Term, list[Term]]:
    """The rows of a program, and what they have summed over ranges of keys (see `begun`)."""
    of, size = kernel.of, kernel.size
    width, depth = of.q.shape[-1], of.v.shape[-1]
    lines = at.start + b.index(size.held)
    query = kernel.row_tile(b, "q", at, lines, width, False)

    def turn(first: Term, edge: bool, top: Term, total: Term, mixed: Term) -> list[Term]:
        places = first + b.index(size.others)
        keys = kernel.key_tile(b, "k", at, places, width, True, not edge)
        scores = kernel.scores(b, at, query, keys, lines[:, None], places[None, :], edge)
        top, total, weights, shrink = weighed(b, scores, top, total)
        values = kernel.key_tile(b, "v", at, places, depth, False, not edge)
        weights, mixed = weights.to(of.q.dtype), mixed * shrink[:, None]
        return [top, total, b.matrix_product(weights, values, mixed, of.precision)]

    return lines, ranges.run(b, size.others, begun(b, kernel.sums, size.held, padded(depth)), turn)


def _forward_kernel(of: Sequences, name: str, more: Sequence[tuple[Operand, str]]) -> tuple[_Kernel, TermBuilder]:
    kernel = _Kernel(of, name if of.table is None else f"{name}_of_pages", more)
    rows = of.max_q * of.each
    kernel.tokens = kernel.arguments.integer(of.q.shape[0], "tokens")
    size = block_sizes(of.q.dtype, padded(max(of.q.shape[-1], of.v.shape[-1])), rows)
    return kernel, kernel.begin(rows, size)


def forward(of: Sequences, out: Operand, norm: Operand) -> Launch:
    """The result and log(sum(exp(scores))) of each row."""
    kernel, b = _forward_kernel(of, "sequences", [(out, "out"), (norm, "norm")])
    depth, size, at = of.v.shape[-1], kernel.size, kernel.place(b)
    lines, sums = _attended(kernel, b, at, kernel.key_ranges(b, at))
    result, logarithm = finished(b, *sums)
    kernel.store_rows(b, "out", at, lines, depth, result)
    kernel.store_numbers(b, "norm", at, lines, logarithm)

    def empty(there: _Place, lines: Term) -> None:
        kernel.store_rows(b, "out", there, lines, depth, b.number(0, kernel.sums, (size.held, padded(depth))))
        kernel.store_numbers(b, "norm", there, lines, b.number(math.inf, kernel.sums, (size.held,)))

    kernel.behind(b, at, "starts_q", of.each, empty)
    return kernel.launch(b)


# ***** few rows and many keys: keys in parts *****

_PROGRAMS, _LEAST_SPAN, _MOST_PARTS = 264, 256, 64  # two programs for each multiprocessor of a card


def key_parts(of: Sequences) -> tuple[int, int]:
    """In how many parts the keys of each sequence are cut, and how many each has: by sizes and dtypes alone."""
    rows = of.max_q * of.each
    size = block_sizes(of.q.dtype, padded(max(of.q.shape[-1], of.v.shape[-1])), rows)
    programs = -(-rows // size.held) * of.heads * of.sequences
    wanted = min(_MOST_PARTS, -(-_PROGRAMS // programs))
    span = max(_LEAST_SPAN, padded(-(-of.max_k // wanted)))
    return -(-of.max_k // span), span


def parts_shapes(of: Sequences, parts: int) -> list[tuple[int, ...]]:
    """Of what the parts leave: the largest scores, the sums of weights, the sums of values."""
    tokens, heads = of.q.shape[:2]
    return [(parts, heads, tokens), (parts, heads, tokens), (parts, tokens, heads, of.v.shape[-1])]


_SUMS = ("tops", "totals", "mixed")


def forward_of_parts(of: Sequences, span: int, sums: Sequence[Operand]) -> Launch:
    """Results of each part of the keys, for `sum_of_parts`; the number of the part is the program's second."""
    kernel, b = _forward_kernel(of, "parts_of_sequences", list(zip(sums, _SUMS, strict=True)))
    depth, at, part = of.v.shape[-1], kernel.place(b), b.program(1)

    def store(there: _Place, lines: Term, values: Sequence[Term]) -> None:
        for label, value in zip(_SUMS[:2], values[:2], strict=True):
            kernel.store_numbers(b, label, there, lines, value, (part,))
        kernel.store_rows(b, "mixed", there, lines, depth, values[2], (part,))

    ranges = _clipped(kernel.key_ranges(b, at), part * span, (part + 1) * span)
    store(at, *_attended(kernel, b, at, ranges))
    nothing = lambda there, lines: store(there, lines, begun(b, kernel.sums, kernel.size.held, padded(depth)))
    kernel.behind(b, at, "starts_q", of.each, nothing)
    return kernel.launch(b, sums[0].shape[0])


def _clipped(ranges: Ranges, low: Term, high: Term) -> Ranges:
    """Ranges within a part."""
    made: dict[int, Term] = {id(x): x.greatest(low).least(high) for x in ranges}
    return Ranges(*(made[id(x)] for x in ranges))


_ROWS = 4


def sum_of_parts(sums: Sequence[Operand], out: Operand, norm: Operand) -> Launch:
    """The result and the logarithm of each row from what the parts gave, part after part."""
    arguments, dtype = Arguments(), sums[0].dtype
    tops, totals, mixed, to, to_norm = (
        Array(arguments, x, name) for x, name in zip((*sums, out, norm), (*_SUMS, "out", "norm"), strict=True)
    )
    parts, heads, tokens = sums[0].shape
    depth = out.shape[-1]
    sizes = [arguments.integer(n, name) for n, name in ((parts, "parts"), (heads, "heads"), (tokens, "tokens"))]
    b = arguments.builder(f"sum_of_parts_of_keys_{out.dtype.abbr}_{depth}")
    n_parts, n_heads, n_tokens = (arguments.term(b, n) for n in sizes)
    row, column = b.program(0) * _ROWS + b.index(_ROWS), b.index(padded(depth))[None, :]
    token, head, inside = row // n_heads, row % n_heads, row < n_heads * n_tokens
    within = (inside[:, None] & (column < depth)).spread((_ROWS, padded(depth)))

    def turn(part: Term, top: Term, total: Term, whole: Term) -> list[Term]:
        own_top = tops.pointer(b, part, head, token).load(inside, -math.inf)
        own_total = totals.pointer(b, part, head, token).load(inside, 0.0)
        own = mixed.pointer(b, part, token[:, None], head[:, None], column).load(within, 0.0)
        new_top = top.greatest(own_top)
        base = b.where(new_top.equals(-math.inf), 0.0, new_top)
        before, mine = (b.apply("exp2", x - base) for x in (top, own_top))
        return [new_top, total * before + own_total * mine, whole * before[:, None] + own * mine[:, None]]

    result, logarithm = finished(b, *b.loop(0, n_parts, 1, begun(b, dtype, _ROWS, padded(depth)), turn))
    to.pointer(b, token[:, None], head[:, None], column).store(result, within)
    to_norm.pointer(b, head, token).store(logarithm, inside)
    return Launch(arguments.finish(b, warps=1), (-(-heads * tokens // _ROWS),), arguments.values)


# ***** derivatives *****


def _derivative(
    of: Sequences, name: str, rows: int, tokens: int, more: Sequence[tuple[Operand, str]]
) -> tuple[_Kernel, TermBuilder]:
    kernel = _Kernel(of, name, more)
    kernel.tokens = kernel.arguments.integer(tokens, "tokens")
    size = block_sizes(of.q.dtype, padded(max(of.q.shape[-1], of.v.shape[-1])), rows, backward=True)
    return kernel, kernel.begin(rows, size)


def to_queries(of: Sequences, ct: Operand, norm: Operand, delta: Operand, out: Operand) -> Launch:
    """The cotangent of the queries."""
    more = [(ct, "ct"), (norm, "norm"), (delta, "delta"), (out, "out")]
    kernel, b = _derivative(of, "sequences_to_queries", of.max_q * of.each, of.q.shape[0], more)
    width, depth, size, at = of.q.shape[-1], of.v.shape[-1], kernel.size, kernel.place(b)
    lines = at.start + b.index(size.held)
    query = kernel.row_tile(b, "q", at, lines, width, False)
    cotangent = kernel.row_tile(b, "ct", at, lines, depth, False)
    norms, deltas = (kernel.row_numbers(b, label, at, lines)[:, None] for label in ("norm", "delta"))
    norms = norms * LOG2_E
    less = -norms
    shape = (size.held, size.others)

    def turn(first: Term, edge: bool, total: Term) -> list[Term]:
        places = first + b.index(size.others)
        keys = kernel.key_tile(b, "k", at, places, width, False, not edge)
        values = kernel.key_tile(b, "v", at, places, depth, True, not edge)
        scores = kernel.scores(b, at, query, keys.permute(1, 0), lines[:, None], places[None, :], edge)
        weights = scores.weights(b, norms, less)
        share = b.matrix_product(cotangent, values, b.number(0, kernel.sums, shape), of.precision)
        slopes = (weights * (share - deltas) * of.scale).to(of.q.dtype)
        return [b.matrix_product(slopes, keys, total, of.precision)]

    zero = b.number(0, kernel.sums, (size.held, padded(width)))
    (total,) = kernel.key_ranges(b, at).run(b, size.others, [zero], turn)
    kernel.store_rows(b, "out", at, lines, width, total)
    nothing = b.number(0, kernel.sums, (size.held, padded(width)))
    empty = lambda there, lines: kernel.store_rows(b, "out", there, lines, width, nothing)
    kernel.behind(b, at, "starts_q", of.each, empty)
    return kernel.launch(b)


def to_keys(of: Sequences, ct: Operand, norm: Operand, delta: Operand, to_k: Operand, to_v: Operand) -> Launch:
    """The cotangents of keys and values, summed over the heads that share them; scores are turned, [keys, rows]."""
    kernel, b = _derivative(
        of,
        "sequences_to_keys",
        of.max_k,
        of.k.shape[0],
        [(ct, "ct"), (norm, "norm"), (delta, "delta"), (to_k, "to_k"), (to_v, "to_v")],
    )
    width, depth, size, at = of.q.shape[-1], of.v.shape[-1], kernel.size, kernel.place(b)
    places = at.start + b.index(size.held)
    keys = kernel.key_tile(b, "k", at, places, width, False, False)
    values = kernel.key_tile(b, "v", at, places, depth, False, False)
    shape = (size.held, size.others)

    def turn(first: Term, edge: bool, of_k: Term, of_v: Term) -> list[Term]:
        lines = first + b.index(size.others)
        query = kernel.row_tile(b, "q", at, lines, width, not edge)
        cotangent = kernel.row_tile(b, "ct", at, lines, depth, not edge)
        norms, deltas = (kernel.row_numbers(b, label, at, lines)[None, :] for label in ("norm", "delta"))
        scores = kernel.scores(b, at, keys, query.permute(1, 0), lines[None, :], places[:, None], edge)
        weights = scores.weights(b, norms * LOG2_E)
        share = b.matrix_product(values, cotangent.permute(1, 0), b.number(0, kernel.sums, shape), of.precision)
        slopes = (weights * (share - deltas) * of.scale).to(of.q.dtype)
        of_v = b.matrix_product(weights.to(of.q.dtype), cotangent, of_v, of.precision)
        return [b.matrix_product(slopes, query, of_k, of.precision), of_v]

    zeros = [b.number(0, kernel.sums, (size.held, padded(n))) for n in (width, depth)]
    totals = kernel.row_ranges(b, at).run(b, size.others, zeros, turn)
    unused = kernel.all_keys(b, at)
    for label, columns, total in zip(("to_k", "to_v"), (width, depth), totals, strict=True):
        value = b.where((places < at.keys)[:, None].spread(total.shape), total, 0.0)
        kernel.store_keys(b, label, at._replace(keys=unused), places, columns, value)

    def empty(there: _Place, places: Term) -> None:
        for label, columns in (("to_k", width), ("to_v", depth)):
            zero = b.number(0, kernel.sums, (size.held, padded(columns)))
            kernel.store_keys(b, label, there, places, columns, zero)

    kernel.behind(b, at, "starts_k", 1, empty)
    return kernel.launch(b)
