"""Shared parts of the attention kernels: their form, the scores of a tile of queries and keys, and which keys there are.

Scores are kept in units of log2, since the hardware's exponential is that of 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight._backends.cuda.arguments import Arguments, Array, Batch
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand
from rushlight._backends.cuda.random.philox import in_order, uniform, words
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import BOOL, FLOAT32, INT32, UINT64, DType

__all__ = [
    "LOG2_E",
    "AttentionForm",
    "Dropout",
    "Operands",
    "Ranges",
    "Rows",
    "Scores",
    "Sizes",
    "block_sizes",
    "padded",
    "power",
    "rows_from",
    "tile_ranges",
]

LOG2_E = math.log2(math.e)
Score = Callable[[TermBuilder, Term, tuple[Term, ...], Term, Term], Term]


class Dropout(NamedTuple):
    """Weights that are left out by chance: the state is two uint64, seed and offset, in the device's memory."""

    p: float
    state: Memory | Operand


class AttentionForm(NamedTuple):
    """Which pairs of queries and keys take part, and how.

    - `causal`: keys up to the query's index;
    - `window`: (left, right), so many keys before and after the query's index; None is any number;
    - `precision`: of float32 products;
    - `score`: more pointwise work on scores, `score(b, scores, batch, rows, columns)`, in natural units;
    - `dropout`: weights are left out by chance, and the others divided by what is kept on average.
    """

    scale: float
    causal: bool = False
    window: tuple[int | None, int | None] = (None, None)
    precision: str = "ieee"
    score: Score | None = None
    dropout: Dropout | None = None

    @property
    def limited(self) -> bool:
        """Whether not all keys of a query take part for their index alone."""
        return self.causal or self.window != (None, None)

    def bounds(self) -> tuple[int | None, int | None]:
        """The window, with what `causal` says."""
        left, right = self.window
        return left, (0 if right is None else min(right, 0)) if self.causal else right


def padded(size: int) -> int:
    """The width of a tile that holds so many columns."""
    return max(16, 1 << (size - 1).bit_length())


class Sizes(NamedTuple):
    """Rows that a program holds (of queries, or of keys), rows of the others in a turn, warps, and turns on their way."""

    held: int
    others: int
    warps: int
    stages: int


def block_sizes(dtype: DType, width: int, rows: int, backward: bool = False) -> Sizes:
    """By the padded width of a head, and the rows that there are.  With 16 rows for each warp its accumulators are operands."""
    if dtype.itemsize == 8:
        found = Sizes(32, 16, 4, 1) if width <= 64 else Sizes(16, 16, 4, 1)
    elif dtype.itemsize == 4:
        found = Sizes(64, 32, 4, 1) if width <= 64 else Sizes(32, 32, 4, 1)
    elif width <= 64:
        found = Sizes(64, 64, 4, 2) if backward else Sizes(128, 64, 8, 2)
    elif width <= 128:
        found = Sizes(64, 32, 4, 2) if backward else Sizes(128, 64, 8, 2)
    else:
        found = Sizes(32, 32, 4, 1) if backward else Sizes(64, 32, 4, 2)
    return found._replace(held=min(found.held, padded(rows)))


class Scores(NamedTuple):
    """Scores of pairs, in units of log2 times `factor`, which is positive; -inf where a pair takes no part.

    `narrow`: weights become numbers of 16 bits, so that a factor may be multiplied together with a subtraction, and the hardware's
    exponential will do.
    """

    values: Term
    factor: float
    narrow: bool

    @staticmethod
    def of(values: Term, factor: float, narrow: bool) -> Scores:
        return Scores(values, factor, True) if narrow and factor > 0 else Scores(values * factor, 1.0, narrow)

    def limited(self, b: TermBuilder, inside: Term) -> Scores:
        """-inf where a condition does not hold."""
        return self._replace(values=b.where(inside.spread(self.values.shape), self.values, -math.inf))

    def top(self, b: TermBuilder) -> Term:
        """The largest of each row, in units of log2."""
        largest = b.largest(self.values, 1)
        return largest if self.factor == 1.0 else largest * self.factor

    def weights(self, b: TermBuilder, base: Term, less: Term | None = None) -> Term:
        """2**(scores - base); `less` is -base, where a loop does not change it."""
        if self.factor == 1.0:
            return power(b, self.values - base, self.narrow)
        shape = self.values.shape
        factor, less = b.number(self.factor, self.values.dtype, shape), (-base if less is None else less).spread(shape)
        return power(b, b.apply("fma", self.values, factor, less), self.narrow)


def power(b: TermBuilder, x: Term, narrow: bool) -> Term:
    """2**x."""
    return b.approximate("exp2", x) if narrow and x.dtype is FLOAT32 else b.apply("exp2", x)


class Rows(NamedTuple):
    """The numbers of the rows of a tile."""

    first: Term
    lines: Term


def rows_from(b: TermBuilder, first: Term, size: int) -> Rows:
    return Rows(first, first + b.index(size))


class Operands:
    """q, k, v and masks among the parameters of a kernel, and the sizes."""

    def __init__(
        self, form: AttentionForm, q: Operand, k: Operand, v: Operand, mask: Sequence[Operand], grouped: bool = False
    ) -> None:
        self.form, self.arguments, self.grouped = form, Arguments(), grouped
        self.shapes: dict[Array, tuple[int, ...]] = {}
        self.rows, self.keys, self.width, self.depth = q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1]
        self.count = _product(q.shape[:-2])
        self.batch = Batch(self.arguments, q.shape[:-2])
        self.n_rows = self.arguments.integer(self.rows, "rows")
        self.n_keys = self.arguments.integer(self.keys, "keys")
        self.q, self.k, self.v = (self.array(x, n) for x, n in ((q, "q"), (k, "k"), (v, "v")))
        self.masks = [(self.array(m, "mask"), m.dtype) for m in mask]
        self.sums = q.dtype.wide
        self.dtype = q.dtype
        self.state = None
        if form.dropout is not None:
            self.state = self.arguments.pointer(form.dropout.state, "state", UINT64)

    def array(self, x: Operand, name: str) -> Array:
        made = Array(self.arguments, x, name)
        self.shapes[made] = x.shape
        return made

    def sizes(self, b: TermBuilder) -> tuple[Term, Term]:
        """How many queries and keys there are."""
        return self.arguments.term(b, self.n_rows), self.arguments.term(b, self.n_keys)

    def begin(self, b: TermBuilder, count: Term, step: int) -> tuple[Term, tuple[Term, ...]]:
        """The first of the `step` of `count` rows that a program holds, and its place in the batch."""
        blocks = (count + (step - 1)) // step
        return b.program(0) % blocks * step, self.batch.split(b, b.program(0) // blocks)

    def launch(self, b: TermBuilder, size: Sizes, count: int, step: int) -> Launch:
        """The launch of a kernel whose programs hold `step` of `count` rows each."""
        kernel = self.arguments.finish(b, warps=size.warps, stages=size.stages)
        return Launch(kernel, (-(-count // step) * self.count,), self.arguments.values)

    def tile(
        self,
        b: TermBuilder,
        x: Array,
        at: tuple[Term, ...],
        of: Rows,
        count: Term,
        width: int,
        turned: bool = False,
        even: bool = False,
    ) -> Term:
        """Rows of an operand, [rows, padded width], or turned; zeros outside."""
        if self.grouped:
            made = self._array_tile(b, x, at, of, count, width)
            return made.permute(1, 0) if turned else made
        rows, columns = of.lines, b.index(padded(width))
        inside = None if even else rows < count
        places = (rows[:, None], columns[None, :])
        if padded(width) != width:
            limit = (columns < width)[None, :]
            inside = limit if inside is None else inside[:, None] & limit
        elif inside is not None:
            inside = inside[:, None]
        if inside is not None:
            inside = inside.spread((rows.shape[0], padded(width)))
        if turned:
            places = (rows[None, :], columns[:, None])
            inside = None if inside is None else inside.permute(1, 0)
        pointers = x.pointer(b, *at, *places)
        return pointers.load(inside, None if inside is None else 0)

    def _array_tile(self, b: TermBuilder, x: Array, at: tuple[Term, ...], of: Rows, count: Term, width: int) -> Term:
        """The same by a bulk copy; dims of the batch that do not move it are left out."""
        shape = self.shapes[x]
        dims = [d for d in range(len(at)) if shape[d] > 1 and x.strides[d] != (0,)]
        sizes = [self.arguments.term(b, self.batch.counts[d]) for d in dims] + [count, b.number(width, INT32)]
        strides = [x.stride(b, d) for d in (*dims, len(at), len(at) + 1)]
        starts = [*(at[d] for d in dims), of.first, b.number(0, INT32)]
        size = (of.lines.shape[0], padded(width))
        whole = b.tile(self.arguments.term(b, x.at), sizes, strides, starts, (*(1,) * len(dims), *size))
        return whole.reshape(*size)

    def scores(
        self, b: TermBuilder, left: Term, right: Term, at: tuple[Term, ...], rows: Term, columns: Term, edge: bool
    ) -> Scores:
        """Scores of queries and keys [R, C] with `rows` [R, 1] and `columns` [1, C], or of keys and queries [C, R] with these
        turned.

        `edge`: some of the pairs may be outside; without it none are.
        """
        form, shape = self.form, (left.shape[0], right.shape[1])
        n_rows, n_keys = self.sizes(b)
        products = b.matrix_product(left, right, b.number(0, self.sums, shape), form.precision)
        narrow = self.dtype.itemsize == 2
        if form.score is None and not self.masks:
            found = Scores.of(products, form.scale * LOG2_E, narrow)
        else:
            scores = products * form.scale
            if form.score is not None:
                scores = form.score(b, scores, at, rows, columns)
            inside = ((rows < n_rows) & (columns < n_keys)).spread(shape) if self.masks else None
            for mask, dtype in self.masks:
                value = mask.pointer(b, *at, rows, columns).load(inside, 0)
                scores = b.where(value, scores, -math.inf) if dtype is BOOL else scores + value
            found = Scores.of(scores, LOG2_E, narrow)
        return found.limited(b, self.takes_part(b, rows, columns)) if edge else found

    def takes_part(self, b: TermBuilder, rows: Term, columns: Term) -> Term:
        """Which pairs are inside, by their indices alone."""
        n_rows, n_keys = self.sizes(b)
        inside = (rows < n_rows) & (columns < n_keys)
        left, right = self.form.bounds()
        if right is not None:
            inside = inside & (columns <= rows + right)
        if left is not None:
            inside = inside & (rows <= columns + left)
        return inside

    def kept(self, b: TermBuilder, at: tuple[Term, ...], rows: Term, first: Term, columns: int) -> Term | None:
        """The factor of each weight of the columns from `first` on, 0 where it is left out; None without dropout.

        It depends on the pair alone, not on tiles.  `first` and `columns` are multiples of 4.
        """
        dropout = self.form.dropout
        if dropout is None or self.state is None:
            return None
        state = self.arguments.term(b, self.state)
        seed, offset = state.load(), (state + 1).load()
        groups = first // 4 + b.index(columns // 4)
        n_rows, n_keys = (n.to(UINT64) for n in self.sizes(b))
        item = b.number(0, UINT64)
        for index, count in zip(at, self.batch.counts, strict=True):
            item = item * self.arguments.term(b, count).to(UINT64) + index.to(UINT64)
        place = (item * n_rows + rows.to(UINT64)) * ((n_keys + 3) // 4) + groups[None, :].to(UINT64)
        drawn = uniform(in_order(b, words(b, seed, place, offset // 4)))
        factor = b.number(1.0 / (1.0 - dropout.p) if dropout.p < 1 else 0.0, self.sums)
        return b.where(drawn > dropout.p, factor, 0.0)


class Ranges(NamedTuple):
    """Runs of tiles of the other dim: from `first` to `whole` and from `after` to `last` some pairs take no part."""

    first: Any
    whole: Any
    after: Any
    last: Any

    def run(
        self, b: TermBuilder, step: int, carried: Sequence[Term], body: Callable[..., Sequence[Term]]
    ) -> list[Term]:
        """`body(start, edge, *values)` for all tiles, in order."""
        values = list(carried)
        for low, high, edge in (
            (self.first, self.whole, True),
            (self.whole, self.after, False),
            (self.after, self.last, True),
        ):
            if low is not high:
                values = b.loop(low, high, step, values, lambda start, *given, edge=edge: body(start, edge, *given))
        return values


def tile_ranges(
    b: TermBuilder, start: Term, size: int, step: int, count: Term, before: int | None, after: int | None, ragged: bool
) -> Ranges:
    """For items from `start` on, `size` of them, the tiles of `step` of `count` others: an item i takes others from
    i - before to i + after.  `ragged`: `step` does not divide `count`.
    """
    zero = b.number(0, INT32)
    first = zero if before is None else (start - before).greatest(0) // step * step
    last = count if after is None else count.least(start + (size + after)).greatest(0)
    if before is None:
        whole = first
    else:
        whole = ((start + (size - 1 + step - 1 - before)).greatest(0) // step * step).greatest(first)
    if after is None and not ragged:
        return Ranges(first, whole, last, last) if before is None else Ranges(first, whole.least(last), last, last)
    bound = count if after is None else count.least(start + (after + 1)).greatest(0)
    behind = bound // step * step
    if before is None:
        return Ranges(first, first, behind, last)
    whole = whole.least(((last + (step - 1)) // step) * step)
    return Ranges(first, whole, behind.greatest(whole), last)


def _product(shape: Sequence[int]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total
