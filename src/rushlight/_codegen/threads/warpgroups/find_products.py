"""Which loops warpgroups can multiply (`wgmma`, sm_90a), and how their operands lie in shared memory.

A `for` qualifies if it does nothing but one product of two tiles of arrays (`load_tile`) that are parameters of the
kernel; also within one other `for`, by which a program walks from tile to tile.

In a slot of shared memory a tile is a row of boxes, each with 128 bytes of the dim that is dense in memory; within a
box the hardware's swizzle of 128 bytes tells where they lie.  `Side` says how the instruction finds a part of it:
NVIDIA's "Parallel Thread Execution", section "Asynchronous Warpgroup Level Matrix Instructions", has the canonical
layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rushlight._codegen.blocks import Kernel, Op, Region
from rushlight._codegen.blocks import Value as TileValue
from rushlight._codegen.blocks.tiles import TILE_LOADS, TileAccess, WindowAccess, constant_of
from rushlight._types.dtype import BFLOAT16, BY_NAME, FLOAT16, FLOAT32, INT8, INT32, DType

from ..choose import PURE
from ..layout import Layout, bits_of
from ..tile_maps import TileMap, Windows

__all__ = [
    "GROUP",
    "GROUP_FORMS",
    "MOST_BOX_ROWS",
    "MOST_COLUMNS",
    "ROWS",
    "ROW_BYTES",
    "GroupForm",
    "GroupProduct",
    "Side",
    "TileSource",
    "accumulators",
    "find_products",
    "form_for",
    "goes_before",
    "is_zero",
    "shares_of",
    "source_of",
    "tile_map",
]

GROUP = 4  # warps
ROWS, MOST_COLUMNS = 64, 256  # of one instruction
ROW_BYTES = 128  # of a box, that the swizzle moves
MOST_BOX_ROWS = 256
_ALIGNMENT = 16  # bytes, of addresses and strides
_BEFORE = PURE | {"load", "assume"}  # what further warps may do, too, before they copy


class GroupForm(NamedTuple):
    """The kinds of a `wgmma`: its name in PTX is `m64n{n}k{k}.{kinds}`; k is 32 bytes of operands."""

    kinds: str
    a: DType
    b: DType
    result: DType

    @property
    def k(self) -> int:
        return 32 // self.a.itemsize


_E4M3, _E5M2 = BY_NAME["float8_e4m3fn"], BY_NAME["float8_e5m2"]
GROUP_FORMS = {
    form.kinds: form
    for form in (
        GroupForm("f32.f16.f16", FLOAT16, FLOAT16, FLOAT32),
        GroupForm("f32.bf16.bf16", BFLOAT16, BFLOAT16, FLOAT32),
        GroupForm("f32.tf32.tf32", FLOAT32, FLOAT32, FLOAT32),
        GroupForm("f32.e4m3.e4m3", _E4M3, _E4M3, FLOAT32),
        GroupForm("f32.e4m3.e5m2", _E4M3, _E5M2, FLOAT32),
        GroupForm("f32.e5m2.e4m3", _E5M2, _E4M3, FLOAT32),
        GroupForm("f32.e5m2.e5m2", _E5M2, _E5M2, FLOAT32),
        GroupForm("s32.s8.s8", INT8, INT8, INT32),
    )
}
_BY_DTYPES = {(form.a, form.b): form for form in GROUP_FORMS.values()}


def form_for(dot: Op) -> GroupForm | None:
    """The form that multiplies operands of a product's dtypes, if one does."""
    a, b, c = (x.dtype for x in dot.operands)
    form = _BY_DTYPES.get((a, b))
    if form is None or c is not form.result:
        return None
    return None if form.a is FLOAT32 and dot.attributes.get("precision") != "tf32" else form


class Side(NamedTuple):
    """Where an instruction finds an operand: bytes behind the slot, what each bit of the warpgroup's number adds to
    them, and the fields of the descriptor; `dense_k`: neighbours along k lie side by side.
    """

    start: int
    groups: tuple[int, ...]
    leading: int
    stride: int
    dense_k: bool

    def descriptor(self) -> int:
        """The descriptor without the address, which is its lowest 14 bits, in units of 16 bytes."""
        return self.leading >> 4 << 16 | self.stride >> 4 << 32 | 1 << 62


@dataclass(frozen=True, slots=True)
class TileSource:
    """An operand [outer, k] (or [k, outer]) of a product: the array, and how its tile lies in a slot."""

    access: TileAccess | WindowAccess
    order: tuple[int, ...]  # the dims of the array, that with neighbours in memory first
    outer: int  # rows of a, columns of b
    depth: int
    dense_k: bool

    @property
    def dtype(self) -> DType:
        return self.access.op.result.dtype

    @property
    def nbytes(self) -> int:
        return self.outer * self.depth * self.dtype.itemsize

    @property
    def box_rows(self) -> int:
        return self.outer if self.dense_k else self.depth

    @property
    def boxes(self) -> int:
        return self.nbytes // (ROW_BYTES * self.box_rows)

    def place(self, outer: int, k: int) -> int:
        """Where a part of the tile begins in the slot, before the swizzle."""
        dense, row = (k, outer) if self.dense_k else (outer, k)
        box, within = divmod(dense * self.dtype.itemsize, ROW_BYTES)
        return (box * self.box_rows + row) * ROW_BYTES + within

    def side(self, start: int, outer: int, k: int, groups: Sequence[int]) -> Side:
        adds = tuple(self.place(g, 0) for g in groups)
        leading = 16 if self.dense_k else ROW_BYTES * self.box_rows
        return Side(start + self.place(outer, k), adds, leading, 8 * ROW_BYTES, self.dense_k)


class GroupProduct(NamedTuple):
    """A loop that multiplies by warpgroups."""

    loop: Op
    dot: Op
    form: GroupForm
    a: TileSource
    b: TileSource
    group_rows: tuple[int, ...]  # by bit of the warpgroup's number: the row that it adds
    group_columns: tuple[int, ...]
    walk: Op | None = None  # the loop over tiles around it

    @property
    def columns(self) -> int:
        """Columns of one instruction."""
        return min(MOST_COLUMNS, self.b.outer >> len([c for c in self.group_columns if c]))

    def layout(self) -> Layout:
        """The layout of the accumulators."""
        return accumulators(self.dot.result.shape, self.group_rows, self.group_columns)


def accumulators(shape: tuple[int, ...], group_rows: Sequence[int], group_columns: Sequence[int]) -> Layout:
    """The layout of the accumulators of a product; its first three registers' bits and all lanes' are also those of a left
    operand of 16 bits, 16 columns of which an instruction takes from registers.
    """
    m, n = shape
    width = bits_of(n)
    groups = [bits_of(c) if c else width + bits_of(r) for r, c in zip(group_rows, group_columns, strict=True)]
    fixed = [0, width + 3]
    lanes, warp = (1, 2, width, width + 1, width + 2), (width + 4, width + 5, *groups)
    rest = [b for b in range(width + bits_of(m)) if b not in (*fixed, *lanes, *warp)]
    return Layout((*fixed, *rest), lanes, warp)


# ***** which loops *****


def find_products(kernel: Kernel) -> dict[Op, GroupProduct]:
    """The loop of a kernel that warpgroups can do, by the operation that is lowered in its place; at most one."""
    for op in kernel.body.ops:
        found = (_product(kernel, op) or _walk(kernel, op)) if op.kind == "for" else None
        if found is not None:
            return {op: found}
        if not goes_before(op):
            break
    return {}


def _walk(kernel: Kernel, outer: Op) -> GroupProduct | None:
    """The product in a loop over tiles, which carries nothing from tile to tile."""
    (body,) = outer.regions
    if len(body.params) != 1:
        return None
    for op in body.ops:
        if op.kind == "for":
            found = _product(kernel, op)
            return None if found is None else found._replace(walk=outer)
        if op.kind not in PURE:
            return None
    return None


def goes_before(op: Op) -> bool:
    """Whether further warps may do it, too: also loops of such operations."""
    if op.kind != "for":
        return op.kind in _BEFORE
    return all(goes_before(inner) for region in op.regions for inner in region.ops if inner.kind != "yield")


def _product(kernel: Kernel, loop: Op) -> GroupProduct | None:
    (body,) = loop.regions
    dots = [op for op in body.ops if op.kind == "dot"]
    loads = [op for op in body.ops if op.kind in TILE_LOADS]
    others = [op for op in body.ops[:-1] if op not in (*dots, *loads)]
    if len(dots) != 1 or len(loads) != 2 or any(op.kind not in PURE for op in others) or len(body.params) != 2:
        return None
    (dot,) = dots
    a, b, c = dot.operands
    if c is not body.params[1] or body.yielded != [dot.result] or len(dot.result.shape) != 2:
        return None
    sources = [source_of(kernel, x, outer, body) for x, outer in ((a, 0), (b, 1))]
    form = form_for(dot)
    if form is None or None in sources:
        return None
    left, right = sources
    assert left is not None
    assert right is not None
    groups = shares_of(kernel.warps, *dot.result.shape)
    if groups is None or not (form.a.itemsize == 2 or (left.dense_k and right.dense_k)):
        return None
    if any(s.depth % form.k or s.box_rows > MOST_BOX_ROWS for s in (left, right)):
        return None
    return GroupProduct(loop, dot, form, left, right, *groups)


def shares_of(warps: int, m: int, n: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The rows and the columns that the bits of a warpgroup's number add: the rows are cut as far as they go."""
    if warps % GROUP or m < ROWS or n < 8:
        return None
    rows, columns = [], []
    for _ in range(bits_of(warps // GROUP)):
        if m > ROWS:
            m //= 2
            rows.append(m)
            columns.append(0)
        else:
            n //= 2
            rows.append(0)
            columns.append(n)
    # neighbours of a part that is cut are dense in memory in stretches of a box
    return (tuple(rows), tuple(columns)) if n >= 64 or not any(columns) and n >= 8 else None


def source_of(kernel: Kernel, x: TileValue, outer: int, body: Region) -> TileSource | None:
    """Where an operand comes from, if bulk copies can bring it; `outer` is its dim that is not k."""
    shape, swapped = x.shape, False
    while x.op is not None and x.op.kind in ("reshape", "permute"):
        if x.op.kind == "permute":
            swapped = not swapped
        elif [n for n in x.op.operands[0].shape if n > 1] != [n for n in x.shape if n > 1]:
            return None
        x = x.op.operands[0]
    if x.op is None or x.op.kind not in TILE_LOADS or x.op not in body.ops:
        return None
    if x.op.kind == "load_windows":
        return _window_source(kernel, x, shape, 1 - outer if swapped else outer, outer)
    access = TileAccess(x.op)
    dims = [d for d, n in enumerate(x.shape) if n > 1]
    if len(dims) != 2 or len(x.shape) > 5 or not _reachable(kernel, access):
        return None
    ones = [d for d in dims if constant_of(access.strides[d]) == 1]
    if not ones:
        return None
    dense = ones[-1]
    outer_dim = dims[1 - outer if swapped else outer]
    itemsize = x.dtype.itemsize
    if x.shape[dense] * itemsize % ROW_BYTES:
        return None
    order = (dense, *sorted((d for d in range(len(x.shape)) if d != dense), key=lambda d: (d not in dims, -d)))
    return TileSource(access, order, shape[outer], shape[1 - outer], dense_k=dense != outer_dim)


def _window_source(
    kernel: Kernel, x: TileValue, shape: tuple[int, ...], outer_dim: int, outer: int
) -> TileSource | None:
    """The same for windows, whose channels must be dense in memory."""
    assert x.op is not None
    access, itemsize = WindowAccess(x.op), x.dtype.itemsize
    if constant_of(access.strides[-1]) != 1 or x.shape[1] * itemsize % ROW_BYTES or not _reachable(kernel, access):
        return None
    if any(n not in kernel.params and constant_of(n) is None for n in access.positions):
        return None
    dims = len(access.sizes)
    return TileSource(access, tuple(range(dims))[::-1], shape[outer], shape[1 - outer], dense_k=outer_dim == 0)


def is_zero(x: TileValue) -> bool:
    """Whether a tile is known to be 0 everywhere."""
    while x.op is not None and x.op.kind in ("splat", "broadcast", "reshape"):
        x = x.op.operands[0]
    return constant_of(x) == 0


def _reachable(kernel: Kernel, access: TileAccess | WindowAccess) -> bool:
    """Whether a tensor map can be made of the kernel's arguments, whose alignment is known."""
    itemsize = access.op.result.dtype.itemsize
    if access.pointer not in kernel.params or kernel.divisible.get(kernel.params.index(access.pointer), 1) % _ALIGNMENT:
        return False
    for x in (*access.sizes, *access.strides):
        if x not in kernel.params and constant_of(x) is None:
            return False
    for x in access.strides:
        known = constant_of(x)
        by = kernel.divisible.get(kernel.params.index(x), 1) if known is None else known
        if known != 1 and by * itemsize % _ALIGNMENT:
            return False
    return True


def tile_map(kernel: Kernel, source: TileSource) -> TileMap:
    """The description of a source's array for bulk copies of its boxes."""
    access, dtype = source.access, source.dtype
    shape = access.op.result.shape

    def number(x: TileValue) -> int | tuple[int]:
        known = constant_of(x)
        return (kernel.params.index(x),) if known is None else known

    sizes = tuple(number(access.sizes[d]) for d in source.order)
    strides = tuple(number(access.strides[d]) for d in source.order[1:])
    pointer = kernel.params.index(access.pointer)
    if isinstance(access, WindowAccess):
        counts = tuple(number(n) for n in access.positions[::-1])
        windows = Windows(access.stride[::-1], access.lo[::-1], counts)
        return TileMap(
            dtype.name, dtype.itemsize, pointer, sizes, strides, (ROW_BYTES // dtype.itemsize, shape[0]), windows
        )
    box = (ROW_BYTES // dtype.itemsize, *(shape[d] for d in source.order[1:]))
    return TileMap(dtype.name, dtype.itemsize, pointer, sizes, strides, box)
