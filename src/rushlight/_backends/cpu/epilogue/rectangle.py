"""Pointwise work before and after a product of matrices, as a kernel over one rectangle of an operand or of the result.

A product that is read element by element by one pointwise group is not stored. The group becomes an *epilogue*: its
expressions in terms of a row and a column of the product, as an ordinary kernel with two loops whose sizes and strides
are arguments. The routine calls it for each rectangle of sums once that is complete and in a cache, whether a tile in
registers, matrix tiles or a library computed it. Bias, residual, scale, activation and rounding are this one
mechanism, and no primitive is known by name here.

    y = gelu(x @ w + bias) in bfloat16        ->  y[i, j] = convert(gelu(sums[i, j] + convert(bias[j])))

A group fits if it reads the product element by element, and if all arrays that it touches are stepped through evenly
by rows, columns and dims of the batch. Values are rounded as if the product had been stored.

A group that computes only an operand of a large product becomes a *prologue* in the same way: packing calls it for
rectangles of the operand and packs them while they are in a cache. Casts, scales of quantised weights, masks and
centring are this one mechanism.

    x.to(bfloat16) @ (w8 * scale).T           ->  A[i, p] = convert(x[i, p]);  B[p, j] = w8[j, p] * scale[j]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rushlight._codegen.loops import Kernel, Loop, Section
from rushlight._codegen.nest import Nest
from rushlight._schedule.costs import facts_of
from rushlight._schedule.expressions import Buffer, Builder, Expr, Store
from rushlight._schedule.groups import Group, Stage, mixed_radix
from rushlight._schedule.indexing import Ix, Var
from rushlight._schedule.library import Attachment
from rushlight._schedule.policy import Target
from rushlight._types.layout import contiguous_strides, numel

if TYPE_CHECKING:
    from rushlight._schedule.inline import Location
    from rushlight._types.dtype import DType

__all__ = ["Array", "Epilogue", "Prologue", "epilogue_of", "prologue_of"]

# Placeholders for sizes and strides, so large that no array has them and each gets a slot of its own.
_ROWS, _COLUMNS, _PITCH, _STEPS = (1 << 40) + 1, (1 << 40) + 2, (1 << 40) + 3, (1 << 40) + 16
MAX_ARRAYS = 16  # arrays that a kernel over a rectangle touches
MAX_NUMBERS = 16  # numbers that a kernel takes


class Array:
    """The steps of a kernel through an array: elements from one row, one column, and one matrix of each dim of the
    batch to the next.
    """

    __slots__ = ("batch", "buffer", "column", "row", "start")

    def __init__(self, buffer: Buffer, row: int, column: int, batch: tuple[int, ...], start: int) -> None:
        self.buffer, self.row, self.column, self.batch, self.start = buffer, row, column, batch, start


class _OnRectangle(Attachment):
    """A kernel over a rectangle of `rows` x `columns`, whose rows are `pitch` apart (all three are slots), and the
    arrays that it touches beside it.

    `batch`: sizes of the batch dims through which the arrays step. `apart`: the distance of the rectangle's rows and
    columns in the arrays.
    """

    __slots__ = ("apart", "arrays", "batch", "kernel", "transposed")

    def __init__(
        self,
        kernel: Kernel,
        arrays: list[Array],
        batch: tuple[int, ...],
        transposed: bool,
        apart: tuple[int, int] = (1, 1),
    ) -> None:
        super().__init__([a.buffer for a in arrays])
        self.kernel, self.arrays, self.batch, self.transposed, self.apart = kernel, arrays, batch, transposed, apart

    @property
    def slots(self) -> tuple[int, int, int]:
        """The kernel's slots for rows, columns and pitch."""
        rows, columns, pitch = (self.kernel.slot_of(n) for n in (_ROWS, _COLUMNS, _PITCH))
        return rows, columns, pitch

    def slot_values(self) -> list[int]:
        """The values of the slots.  The caller fills in rows, columns and pitch."""
        strides: dict[int, int] = {}
        for k, array in enumerate(self.arrays):
            strides |= {_STEPS + 2 * k: array.row * self.apart[0], _STEPS + 2 * k + 1: array.column * self.apart[1]}
        return [strides.get(word, word) for word in self.kernel.slot_values()]


class Epilogue(_OnRectangle):
    """Pointwise work on rectangles of sums of dtype `sums`; `stored` are the buffers that it writes.

    `transposed`: the product is computed as its transpose, B transposed @ A transposed, and rows and columns are those
    of the transpose.
    """

    __slots__ = ("sums",)

    def __init__(
        self,
        kernel: Kernel,
        arrays: list[Array],
        batch: tuple[int, ...],
        stored: list[Buffer],
        sums: DType,
        transposed: bool,
        apart: tuple[int, int],
    ) -> None:
        super().__init__(kernel, arrays, batch, transposed, apart)
        self.stored, self.sums = stored, sums


class Prologue(_OnRectangle):
    """Pointwise work that computes rectangles of an operand.  `transposed`: rows of the rectangle are columns of the
    operand.
    """

    __slots__ = ()


class _Unfit(Exception):
    """The group cannot be computed by rectangles."""


def epilogue_of(
    shape: Sequence[int],
    made: Buffer,
    group: Group,
    sums: DType,
    args: list[DType],
    kept: bool,
    target: Target,
    *,
    apart: int = 1,
    may_transpose: bool = True,
) -> Epilogue | None:
    """A pointwise `group` as the epilogue of a product of `shape`, which would lie row-major in `made`; None where it
    does not fit.

    `sums` is the dtype in which the product is computed, `args` are the dtypes of the graph's numbers. `kept`: the
    product has other readers and is stored too. `apart`: a rectangle holds every first, second, ... column.
    `may_transpose`: the operands may change places.
    """
    if group.row is not None or group.reductions or len(group.stages) != 1 or len(args) > MAX_NUMBERS:
        return None
    stage = group.stages[0]
    if not stage.stores or any(s.combine or s.guard is not None for s in stage.stores):
        return None
    places = {ix for buffer, ix, _ in facts_of([stage]).accesses if buffer is made}
    if len(places) != 1:
        return None
    weights = mixed_radix(next(iter(places)), numel(shape))
    if weights is None:
        return None
    try:
        frame = _Frame(shape, weights)
        arrays = _arrays(stage, made, frame)
        # The result's rows run along memory.
        first = next(a for a in arrays if a.buffer is stage.stores[0].buffer)
        columns_first = shape[-1] == 1 or (first.column != 1 and first.row == 1 and shape[-2] != 1)
        transposed = may_transpose and columns_first
        return _Maker(made, sums, arrays, transposed, apart).epilogue(
            stage, args, places.pop() if kept else None, frame, target
        )
    except _Unfit:
        return None


def prologue_of(
    source: Location, shape: Sequence[int], group: Group, args: list[DType], target: Target
) -> Prologue | None:
    """A pointwise `group` that computes only an operand of `shape`, which would lie in `source`, as its prologue; None
    where it does not fit.
    """
    if (
        group.row is not None
        or group.reductions
        or len(group.stages) != 1
        or len(args) > MAX_NUMBERS
        or len(shape) != 2
    ):
        return None
    stage = group.stages[0]
    if len(stage.stores) != 1 or stage.stores[0].combine or stage.stores[0].guard is not None:
        return None
    upright = list(source.strides) == list(contiguous_strides(shape))
    if not upright and list(source.strides[::-1]) != list(contiguous_strides(shape[::-1])):
        return None
    lies = shape if upright else shape[::-1]
    weights = mixed_radix(stage.stores[0].ix, numel(lies))
    if weights is None:
        return None
    try:
        frame = _Frame(lies, weights)
        arrays = _arrays(stage, source.buffer, frame)
        # Neighbours in the rectangle are neighbours in the memory of most arrays.
        along, across = (sum(getattr(a, step) == 1 for a in arrays) for step in ("column", "row"))
        made = _Maker(source.buffer, source.buffer.dtype, arrays, across > along).prologue(stage, args, frame, target)
    except _Unfit:
        return None
    made.transposed = made.transposed == upright
    return made if made.arrays else None


class _Frame:
    """The variables of a group among the rows, the columns and the batch of a product, each as (variable, its weight),
    outermost first.
    """

    def __init__(self, shape: Sequence[int], weights: dict[Var, int]) -> None:
        self.rows: list[tuple[Var, int]] = []
        self.columns: list[tuple[Var, int]] = []
        self.batch: list[tuple[Var, int]] = []
        self.known = set(weights)
        m, n = shape[-2:]
        for var, weight in sorted(weights.items(), key=lambda item: -item[1]):
            reach = weight * var.size
            if reach <= n:
                self.columns.append((var, weight))
            elif weight % n == 0 and reach <= m * n:
                self.rows.append((var, weight // n))
            elif weight % (m * n) == 0:
                self.batch.append((var, weight // (m * n)))
            else:
                raise _Unfit

    def steps(self, ix: Ix) -> tuple[int, int, tuple[int, ...], int]:
        """An offset as steps of a row, of a column and of the dims of the batch, and a start."""
        if any(a not in self.known for a, _ in ix.terms):  # such as a dim along which the product is broadcast
            raise _Unfit
        return (
            _even(ix, self.rows),
            _even(ix, self.columns),
            tuple(ix.coefficient(v) or 0 for v, _ in self.batch),
            ix.const,
        )


def _even(ix: Ix, parts: list[tuple[Var, int]]) -> int:
    """The step of an offset for a number that consists of these variables."""
    steps = {(ix.coefficient(var) or 0, weight) for var, weight in parts}
    if not steps:
        return 0
    whole = {c // w for c, w in steps if c % w == 0}
    if len(whole) != 1 or any(c % w for c, w in steps):
        raise _Unfit
    return whole.pop()


def _arrays(stage: Stage, made: Buffer, frame: _Frame) -> list[Array]:
    """The arrays that a stage touches beside the product: one for each buffer and way through it."""
    found: dict[tuple[Any, ...], Array] = {}
    for buffer, ix, _ in facts_of([stage]).accesses:
        if buffer is not made:
            row, column, batch, start = frame.steps(ix)
            found.setdefault((buffer, row, column, batch, start), Array(buffer, row, column, batch, start))
    if len(found) > MAX_ARRAYS:
        raise _Unfit
    return list(found.values())


class _Maker:
    """Rewrites a stage in terms of a row and a column."""

    def __init__(self, made: Buffer, sums: DType, arrays: list[Array], transposed: bool, apart: int = 1) -> None:
        self.made, self.transposed = made, transposed
        self.apart = (apart, 1) if transposed else (1, apart)
        self.builder = Builder()
        self.row, self.column = Var(_ROWS, "i"), Var(_COLUMNS, "j")
        self.sums = Buffer("sums", sums, "input")
        self.arrays = [Array(a.buffer, a.column, a.row, a.batch, a.start) for a in arrays] if transposed else arrays
        # A buffer with several ways through it is several arrays of the kernel.
        self.names = [Buffer(f"array{k}", a.buffer.dtype, "input") for k, a in enumerate(self.arrays)]
        self.done: dict[Expr, Expr] = {}

    def epilogue(self, stage: Stage, args: list[DType], kept: Ix | None, frame: _Frame, target: Target) -> Epilogue:
        self.frame = frame
        stores = [Store(*self.place(s.buffer, s.ix), self.value(s.value)) for s in stage.stores]
        if kept is not None:
            stores.append(Store(*self.keep(kept), self.product()))
        kernel = self.kernel(stores, args, target)
        stored = list(dict.fromkeys(s.buffer for s in stage.stores))
        if kept is not None:
            stored.append(self.made)
        batch = tuple(v.size for v, _ in frame.batch)
        return Epilogue(kernel, self.arrays, batch, stored, self.sums.dtype, self.transposed, self.apart)

    def prologue(self, stage: Stage, args: list[DType], frame: _Frame, target: Target) -> Prologue:
        self.frame = frame
        store = Store(self.sums, self.row.ix * _PITCH + self.column.ix, self.value(stage.stores[0].value))
        return Prologue(self.kernel([store], args, target), self.arrays, (), self.transposed)

    def kernel(self, stores: list[Store], args: list[DType], target: Target) -> Kernel:
        """The kernel: a loop over rows and one over columns."""
        group = Group(lambda value: None, target.policy)
        only = Stage([self.row, self.column])
        only.stores = stores
        group.stages = [only]
        width, unroll = Nest(group, target).shape_of_lanes(facts_of([only]))
        body: list[Any] = [Loop(self.row, [Loop(self.column, list(stores), lanes=True)])]
        return Kernel([], [self.sums, *self.names], args, [Section(body, None, width, unroll)])

    def keep(self, place: Ix) -> tuple[Buffer, Ix]:
        """Location of the stored product."""
        row, column, batch, start = self.frame.steps(place)
        self.arrays = [
            *self.arrays,
            Array(self.made, *((column, row) if self.transposed else (row, column)), batch, start),
        ]
        self.names.append(Buffer(f"array{len(self.names)}", self.made.dtype, "input"))
        return self.at(len(self.arrays) - 1)

    def place(self, buffer: Buffer, ix: Ix) -> tuple[Buffer, Ix]:
        row, column, batch, start = self.frame.steps(ix)
        if self.transposed:
            row, column = column, row
        for k, a in enumerate(self.arrays):
            if a.buffer is buffer and (a.row, a.column, a.batch, a.start) == (row, column, batch, start):
                return self.at(k)
        raise AssertionError("an access that was not counted")

    def at(self, k: int) -> tuple[Buffer, Ix]:
        """An element of an array.  Steps of 0 and 1 are literals, others are slots."""
        array = self.arrays[k]
        whole = (array.row * self.apart[0], array.column * self.apart[1])
        steps = (step if step in (0, 1) else _STEPS + 2 * k + i for i, step in enumerate(whole))
        row, column = steps
        return self.names[k], self.row.ix * row + self.column.ix * column

    def product(self) -> Expr:
        """An element of the product, rounded as if it had been stored."""
        x = self.builder.load(self.sums, self.row.ix * _PITCH + self.column.ix)
        return x if self.made.dtype is self.sums.dtype else self.builder.op("convert", (x,), self.made.dtype)

    def value(self, x: Expr) -> Expr:
        found = self.done.get(x)
        if found is None:
            found = self.done[x] = self._value(x)
        return found

    def _value(self, x: Expr) -> Expr:
        if x.kind == "const":
            return self.builder.const(x.value, x.dtype)
        if x.kind == "arg":
            return self.builder.arg(x.value, x.dtype)
        if x.kind == "op":
            prim, params = x.value
            return self.builder.op(prim, [self.value(a) for a in x.args], x.dtype, params)
        if x.kind == "load" and not x.args:
            buffer, ix = x.value
            return self.product() if buffer is self.made else self.builder.load(*self.place(buffer, ix))
        raise _Unfit
