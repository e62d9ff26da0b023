"""Products of matrices: by the `mma` instructions where one fits, else by products and sums one by one."""

from __future__ import annotations

from rushlight._codegen.blocks import Op
from rushlight._codegen.blocks import Value as TileValue
from rushlight._types.dtype import FLOAT32, INT32, DType

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


def _one_by_one(lo: Lowering, op: Op) -> None:
    """Every thread makes its elements of c: operands in shared memory, a loop over k, products and sums rounded each."""
    a, b, c = op.operands
    layout, dtype = lo.layouts.memory(c.shape), c.dtype
    wide = FLOAT32 if dtype.itemsize < 4 and dtype.kind == "f" else dtype
    held = lo.b.spread(_convert(lo, lo.value(c, layout), wide), layout.size)
    buffers = [_staged(lo, v) for v in (a, b)]
    k = a.shape[-1]
    offsets = [_offsets(lo, layout, c.shape, v.shape, side, v.dtype.itemsize) for v, side in ((a, 0), (b, 1))]
    steps = [a.dtype.itemsize, b.shape[-1] * b.dtype.itemsize]
    low, high, one = (lo.b.number(n, INT32) for n in (0, k, 1))
    with lo.b.body([Registers(INT32, 1, True), held.type]) as body:
        index, total = body.params
        factors = []
        for offset, step, buffer, v in zip(offsets, steps, buffers, (a, b), strict=True):
            place = lo.b.pointwise("add", offset, lo.b.pointwise("mul", index, lo.b.number(step, INT32)))
            got = lo.b.emit(
                "shared_load", [place], [Registers(v.dtype, layout.size)], buffer=buffer, dtype=v.dtype, vector=1
            ).result
            factors.append(_convert(lo, got, wide))
        body.yielded = [lo.b.pointwise("add", total, lo.b.pointwise("mul", *factors))]
    made = lo.b.emit("for", [low, high, one, held], [held.type], [body]).result
    lo.give(op.results[0], _convert(lo, made, dtype), layout)


def _staged(lo: Lowering, value: TileValue) -> Buffer:
    """A tile in shared memory, row-major."""
    layout = lo.layouts.anchor([value])
    made = lo.b.spread(lo.value(value, layout), layout.size)
    buffer = Buffer(value.type.numel * made.dtype.itemsize)
    write_shared(lo.b, made, layout, buffer, Swizzle(), access_width(layout, made.dtype.itemsize))
    return buffer


def _offsets(
    lo: Lowering, layout: Layout, shape: tuple[int, ...], operand: tuple[int, ...], side: int, itemsize: int
) -> Value:
    """Byte offsets of the rows of a (side 0) or the columns of b (side 1) that go with each element of c."""
    n = bits_of(shape[-1])
    m = bits_of(shape[-2])
    rows_of_operand, width = bits_of(operand[-2]), bits_of(operand[-1])

    def place(element: int) -> int:
        column, row, batch = element & (1 << n) - 1, element >> n & (1 << m) - 1, element >> n + m
        inner = row << width if side == 0 else column
        return (inner + (batch << rows_of_operand + width)) * itemsize

    lanes, warps = ([place(base) for base in bases] for bases in layout.bases())
    return lo.b.index([place(e) for e in layout.table()], lanes, warps)


HANDLERS["dot"] = _dot
