"""The forms of `mma`, and the layouts of their accumulators and operands.

A form multiplies m x k by k x n within a warp.  For each of a, b, c (row-major k within a row, n within a row of b) it
says which bit of row and column the bits of register and lane are; NVIDIA's "Parallel Thread Execution" has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rushlight._codegen.blocks import Kernel, Op, Value
from rushlight._types.dtype import BFLOAT16, BY_NAME, FLOAT16, FLOAT32, INT8, INT32, DType

from ..layout import LANE_BITS, NONE, Layout, bits_of, filled

__all__ = [
    "FORMS", "Fragment", "MatrixForm", "chained_products", "form_of", "operand_layouts", "result_layout", "square_layout",
]  # fmt: skip

R, C = "row", "column"
Bit = tuple[str, int]


class Fragment(NamedTuple):
    """Bits of row and column, for each bit of register and of lane."""

    registers: tuple[Bit, ...]
    lanes: tuple[Bit, ...]


class MatrixForm(NamedTuple):
    """One `mma` instruction: its name in PTX, sizes, dtypes of operands and accumulators, and its fragments."""

    name: str
    m: int
    n: int
    k: int
    operands: DType
    result: DType
    a: Fragment
    b: Fragment
    c: Fragment
    least: int = 80  # the compute capability that has it
    ptx: int = 70  # the version of PTX that has it, times ten
    second: DType | None = None  # the dtype of b where it is not that of a

    @property
    def dtypes(self) -> tuple[DType, DType]:
        """Of a and b."""
        return self.operands, self.second or self.operands


_C = Fragment(((C, 0), (R, 3)), ((C, 1), (C, 2), (R, 0), (R, 1), (R, 2)))
_A16 = Fragment(((C, 0), (R, 3), (C, 3)), ((C, 1), (C, 2), (R, 0), (R, 1), (R, 2)))
_B16 = Fragment(((R, 0), (R, 3)), ((R, 1), (R, 2), (C, 0), (C, 1), (C, 2)))
_A32 = Fragment(((R, 3), (C, 2)), ((C, 0), (C, 1), (R, 0), (R, 1), (R, 2)))
_B32 = Fragment(((R, 2),), ((R, 0), (R, 1), (C, 0), (C, 1), (C, 2)))
_A8 = Fragment(((C, 0), (C, 1), (R, 3), (C, 4)), ((C, 2), (C, 3), (R, 0), (R, 1), (R, 2)))
_B8 = Fragment(((R, 0), (R, 1), (R, 4)), ((R, 2), (R, 3), (C, 0), (C, 1), (C, 2)))

_E4M3, _E5M2 = BY_NAME["float8_e4m3fn"], BY_NAME["float8_e5m2"]

FORMS: dict[str, MatrixForm] = {
    form.name: form
    for form in (
        MatrixForm("m16n8k16.f16", 16, 8, 16, FLOAT16, FLOAT32, _A16, _B16, _C),
        MatrixForm("m16n8k16.bf16", 16, 8, 16, BFLOAT16, FLOAT32, _A16, _B16, _C),
        MatrixForm("m16n8k8.tf32", 16, 8, 8, FLOAT32, FLOAT32, _A32, _B32, _C),
        MatrixForm("m16n8k32.s8", 16, 8, 32, INT8, INT32, _A8, _B8, _C),
        MatrixForm("m16n8k32.e4m3", 16, 8, 32, _E4M3, FLOAT32, _A8, _B8, _C, 89, 84),
        MatrixForm("m16n8k32.e5m2", 16, 8, 32, _E5M2, FLOAT32, _A8, _B8, _C, 89, 84),
        MatrixForm("m16n8k32.e4m3.e5m2", 16, 8, 32, _E4M3, FLOAT32, _A8, _B8, _C, 89, 84, _E5M2),
        MatrixForm("m16n8k32.e5m2.e4m3", 16, 8, 32, _E5M2, FLOAT32, _A8, _B8, _C, 89, 84, _E4M3),
    )
}
_BY_DTYPES = {form.dtypes: form.name for form in FORMS.values() if form.operands is not FLOAT32}


def form_of(op: Op, capability: int) -> MatrixForm | None:
    """The instruction that multiplies for a `dot`; None where products and sums are done one by one."""
    a, b, c = (v.type for v in op.operands)
    if a.ndim != 2:
        return None
    name = _BY_DTYPES.get((a.dtype, b.dtype))
    if a.dtype is FLOAT32 and b.dtype is FLOAT32 and op.attributes.get("precision", "ieee") != "ieee":
        name = "m16n8k8.tf32"
    form = FORMS.get(name or "")
    if (
        form is None
        or form.least > capability
        or (c.dtype is INT32) != (form.result is INT32)
        or (form.result is FLOAT32 and c.dtype.itemsize > 4)
    ):
        return None
    (m, k), n = a.shape, b.shape[1]
    return form if m >= form.m and n >= form.n and k >= form.k else None


def chained_products(kernel: Kernel) -> frozenset[Op]:
    """Products whose result becomes, by pointwise operations, the left operand of another, and those others.

    With all warps along rows the accumulators of the one are the operand of the other: each warp keeps its rows.
    """
    found: set[Op] = set()
    for op in kernel.body.walk():
        if op.kind != "dot":
            continue
        open_values, seen = [op.operands[0]], set[Value]()
        while open_values:
            value = open_values.pop()
            maker = value.op
            if value in seen or maker is None:
                continue
            seen.add(value)
            if maker.kind == "dot":
                found |= {op, maker}
            elif maker.kind == "pointwise":
                open_values += maker.operands
    return frozenset(found)


def _warp_bits(m: int, n: int, form: MatrixForm, warps: int, by_rows: bool) -> tuple[list[int], list[int]]:
    """How the bits of a warp's number are shared out among the bits of row and column above those of the form."""
    rows, columns = list(range(bits_of(form.m), bits_of(m))), list(range(bits_of(form.n), bits_of(n)))
    left, taken_rows, taken_columns = bits_of(warps), [], []
    while left and (rows or columns):
        # the dim that leaves the warp's share nearer to a square: fewer operands for a product
        height, width = len(rows) + bits_of(form.m), len(columns) + bits_of(form.n)
        if rows and (by_rows or height >= width or not columns):
            taken_rows.append(rows.pop(0))
        else:
            taken_columns.append(columns.pop(0))
        left -= 1
    return taken_rows, taken_columns


def result_layout(op: Op, form: MatrixForm, warps: int, by_rows: bool = False) -> Layout:
    """The layout of the accumulators of a `dot`; `by_rows`: warps share out rows before columns."""
    m, n = op.results[0].shape
    rows, columns = _warp_bits(m, n, form, warps, by_rows)
    return _layout(form.c, (m, n), (form.m, form.n), [(R, b) for b in rows] + [(C, b) for b in columns], warps, set())


def operand_layouts(op: Op, form: MatrixForm, warps: int, by_rows: bool = False) -> tuple[Layout, Layout]:
    """The layouts in which the operands of a `dot` are multiplied."""
    (m, k), n = op.operands[0].shape, op.operands[1].shape[1]
    rows, columns = _warp_bits(m, n, form, warps, by_rows)
    places = [(R, b) for b in rows] + [(C, b) for b in columns]
    a = _layout(form.a, (m, k), (form.m, form.k), places, warps, {C})
    b = _layout(form.b, (k, n), (form.k, form.n), places, warps, {R})
    return a, b


def square_layout(shape: Sequence[int], warps: int) -> Layout:
    """The layout of sums that threads make one by one: each has a block that is as near to a square as can be, so that it
    reads few operands for a product.

    Four columns lie together.  Lanes share out columns first: those that read from different rows at once are few.
    """
    n, m = bits_of(shape[-1]), bits_of(shape[-2])
    columns, rows = range(n), range(n, n + m)
    batch = range(n + m, n + m + sum(map(bits_of, shape[:-2])))
    count = max(n + m + len(batch) - LANE_BITS - bits_of(warps), 0)  # bits of a thread's registers
    wide = min(max((count + 1) // 2, 2), count, n)  # of them those that count columns
    near, columns = _cut(columns, min(wide, 2))
    columns, far = _cut(columns, n - wide)
    lanes, columns = _cut(columns, LANE_BITS)
    more, rows = _cut(rows, LANE_BITS - len(lanes))
    free = (*rows, *columns, *batch)
    high, free = _cut(free, max(count - wide, 0))
    last, free = _cut(free, LANE_BITS - len(lanes) - len(more))
    return Layout((*near, *high, *far), filled((*lanes, *more, *last), LANE_BITS), filled(tuple(free), bits_of(warps)))


def _cut(bits: Sequence[int], count: int) -> tuple[Sequence[int], Sequence[int]]:
    """The first bits, and the rest."""
    return bits[:count], bits[count:]


def _layout(
    fragment: Fragment, shape: tuple[int, int], inner: tuple[int, int], places: list[Bit], warps: int, shared: set[str]
) -> Layout:
    """A fragment repeated over a tile: `places` are the warps' bits of m and n; those of a dim in `shared` are k here,
    so those warps hold the same.
    """
    width = bits_of(shape[1])

    def flat(bit: Bit) -> int:
        return bit[1] + (width if bit[0] == R else 0)

    warp = [NONE if side in shared else flat((side, b)) for side, b in places]
    warp += [NONE] * (bits_of(warps) - len(warp))
    outer = [(C, b) for b in range(bits_of(inner[1]), width)] + [
        (R, b) for b in range(bits_of(inner[0]), bits_of(shape[0]))
    ]
    repeated = [flat(bit) for bit in outer if flat(bit) not in warp]
    return Layout((*map(flat, fragment.registers), *repeated), tuple(map(flat, fragment.lanes)), tuple(warp))
