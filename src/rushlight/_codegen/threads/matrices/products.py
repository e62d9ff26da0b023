"""Products of matrices: by the `mma` instructions where one fits, else by products and sums one by one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rushlight._codegen.blocks import Op
from rushlight._codegen.blocks import Value as TileValue
from rushlight._types.dtype import FLOAT32, INT32, DType

from ..choose import ACCESS_BYTES
from ..exchange import Swizzle, access_width, write_shared
from ..form import Buffer, Registers, Value
from ..layout import Layout, bits_of
from ..lower import HANDLERS, Lowering
from .layouts import MatrixForm, form_of

__all__: list[str] = []


def _convert(lo: Lowering, x: Value, dtype: DType) -> Value:
    return x if x.dtype is dtype else lo.b.pointwise("convert", x, dtype=dtype, params={"dtype": dtype})


def _dot(lo: Lowering, op: Op) -> None:
    form = form_of(op, lo.layouts.capability)
    if form is None:
        _one_by_one(lo, op)
        return
    layout = lo.layouts.product(op, form)
    dtype = op.results[0].dtype
    layouts = lo.layouts.factors(op, form)
    a, b = (lo.b.spread(lo.value(v, l), l.size) for v, l in zip(op.operands, layouts, strict=False))
    c = lo.b.spread(_convert(lo, lo.value(op.operands[2], layout), form.result), layout.size)
    if op.attributes.get("precision") == "tf32x3" and form.name == "m16n8k8.tf32":
        made = _three_products(lo, op, form, layout, layouts, (a, b, c))
    else:
        made = _multiply(lo, op, form, layout, layouts, (a, b, c))
    lo.give(op.results[0], _convert(lo, made, dtype), layout)


def _multiply(
    lo: Lowering,
    op: Op,
    form: MatrixForm,
    layout: Layout,
    layouts: tuple[Layout, Layout],
    values: tuple[Value, Value, Value],
) -> Value:
    """All fragments of the accumulators, step by step over k: neighbours do not wait for each other, and few operands are
    held at once.
    """
    (a_layout, b_layout), (a, b, c) = layouts, values
    k, n = op.operands[1].shape
    size = [1 << len(f.registers) for f in (form.a, form.b, form.c)]
    starts = range(0, layout.size, size[2])
    parts = [lo.b.pick([c], [(0, start + r) for r in range(size[2])]) for start in starts]
    for step in range(0, k, form.k):
        for part, start in enumerate(starts):
            row, column = divmod(layout.element(start), n)
            at_a, at_b = a_layout.register_of(row * k + step), b_layout.register_of(step * n + column)
            left = lo.b.pick([a], [(0, at_a + r) for r in range(size[0])])
            right = lo.b.pick([b], [(0, at_b + r) for r in range(size[1])])
            operands = [left, right, parts[part]]
            parts[part] = lo.b.emit("mma", operands, [Registers(form.result, size[2])], form=form.name).result
    return lo.b.pick(parts, [(i // size[2], i % size[2]) for i in range(layout.size)])


def _three_products(
    lo: Lowering,
    op: Op,
    form: MatrixForm,
    layout: Layout,
    layouts: tuple[Layout, Layout],
    values: tuple[Value, Value, Value],
) -> Value:
    """float32 by TF32: the parts that rounding leaves are multiplied, too, the small products first."""
    a, b, c = values
    (a_high, a_low), (b_high, b_low) = _parts(lo, a), _parts(lo, b)
    for pair in ((a_low, b_high), (a_high, b_low), (a_high, b_high)):
        c = _multiply(lo, op, form, layout, layouts, (*pair, c))
    return c


def _parts(lo: Lowering, x: Value) -> tuple[Value, Value]:
    """The upper 10 bits of a float32's fraction as a float32, and the rest."""
    b = lo.b
    int32 = b.number(-0x2000, dtype=INT32)
    high = b.pointwise("bitwise_and", b.pointwise("bitcast", x, dtype=INT32, params={"dtype": INT32}), int32)
    high = b.pointwise("bitcast", high, dtype=FLOAT32, params={"dtype": FLOAT32})
    return high, b.pointwise("sub", x, high)


# ***** one by one *****

_TURN = 2  # steps along k whose elements of a thread's rows are read at once


def _one_by_one(lo: Lowering, op: Op) -> None:
    """Every thread makes its elements of c: operands in shared memory, a loop over k, sums rounded at each step."""
    a, _, c = op.operands
    layout, dtype = lo.layouts.product(op, None), c.dtype
    wide = FLOAT32 if dtype.itemsize < 4 and dtype.kind == "f" else dtype
    held = lo.b.spread(_convert(lo, lo.value(c, layout), wide), layout.size)
    k = a.shape[-1]
    turn = min(k, _TURN, max(1, ACCESS_BYTES // a.dtype.itemsize))
    rows, columns = (_Factor(lo, layout, op, side, turn) for side in (0, 1))
    low, high, each = (lo.b.number(n, INT32) for n in (0, k, turn))
    with lo.b.body([Registers(INT32, 1, True), held.type]) as body:
        index, total = body.params
        left, right = (_convert(lo, factor.read(lo, index), wide) for factor in (rows, columns))
        for step in range(turn):
            x, y = (f.of_step(lo, v, step) for f, v in ((rows, left), (columns, right)))
            if wide.kind == "f":
                total = lo.b.pointwise("fma", x, y, total)
            else:
                total = lo.b.pointwise("add", total, lo.b.pointwise("mul", x, y))
        body.yielded = [total]
    made = lo.b.emit("for", [low, high, each, held], [held.type], [body]).result
    lo.give(op.results[0], _convert(lo, made, dtype), layout)


class _Factor:
    """An operand in shared memory, and what a thread reads of it for some steps along k: rows of a (side 0), or columns of b."""

    def __init__(self, lo: Lowering, layout: Layout, op: Op, side: int, turn: int) -> None:
        value = op.operands[side]
        self.dtype, self.side, self.turn = value.dtype, side, turn
        self.buffer = _staged(lo, value)
        self.step = 1 if side == 0 else value.shape[-1]
        place = partial(_place, op.results[0].shape, value.shape, side)
        places = [place(e) for e in layout.table()]
        own = list(dict.fromkeys(places))
        self.count, self.number = len(own), [own.index(p) for p in places]
        run = min(layout.run(), len(own), max(1, ACCESS_BYTES // self.dtype.itemsize))
        self.vector = turn if side == 0 else run
        steps = [s * self.step for s in range(turn)]
        table = [p + s for p in own for s in steps] if side == 0 else [p + s for s in steps for p in own]
        lanes, warps = ([place(base) * self.dtype.itemsize for base in bases] for bases in layout.bases())
        self.offsets = lo.b.index([e * self.dtype.itemsize for e in table], lanes, warps)

    def read(self, lo: Lowering, index: Value) -> Value:
        """The elements of some steps from `index` on."""
        b = lo.b
        place = b.pointwise(
            "add", self.offsets, b.pointwise("mul", index, b.number(self.step * self.dtype.itemsize, INT32))
        )
        registers = Registers(self.dtype, self.count * self.turn)
        return b.emit(
            "shared_load", [place], [registers], buffer=self.buffer, dtype=self.dtype, vector=self.vector
        ).result

    def of_step(self, lo: Lowering, read: Value, step: int) -> Value:
        """The element for each sum at one of the steps."""
        if self.side == 0:
            return lo.b.pick([read], [(0, n * self.turn + step) for n in self.number])
        return lo.b.pick([read], [(0, step * self.count + n) for n in self.number])


def _staged(lo: Lowering, value: TileValue) -> Buffer:
    """A tile in shared memory, row-major."""
    layout = lo.layouts.anchor([value])
    made = lo.b.spread(lo.value(value, layout), layout.size)
    buffer = Buffer(value.type.numel * made.dtype.itemsize)
    write_shared(lo.b, made, layout, buffer, Swizzle(), access_width(layout, made.dtype.itemsize))
    return buffer


def _place(shape: Sequence[int], operand: Sequence[int], side: int, element: int) -> int:
    """The element of a (side 0) or b where the row or the column begins that goes with an element of c."""
    n, m = bits_of(shape[-1]), bits_of(shape[-2])
    width = bits_of(operand[-1])
    column, row, batch = element & (1 << n) - 1, element >> n & (1 << m) - 1, element >> n + m
    return (row << width if side == 0 else column) + (batch << bits_of(operand[-2]) + width)


HANDLERS["dot"] = _dot
