"""Products on tiles that bulk copies bring and warpgroups multiply (sm_90a): which products, with which tiles.

Nothing of this has been measured on a card, so `RUSHLIGHT_CUDA_PRODUCTS` asks for it.  On other architectures the same kernels
load by pointers and multiply by `mma.sync`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._backends.cuda.arguments import Arguments, Array
from rushlight._backends.cuda.gemm.tiles import TileShape
from rushlight._backends.cuda.program.steps import Operand
from rushlight._base.knobs import Knob, one_of
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._codegen.threads.warpgroups.find_products import GROUP_FORMS
from rushlight._types.dtype import FLOAT32, INT32, DType

__all__ = ["ROW_BYTES", "TileLoads", "choose_group_tile", "groups_multiply", "wants_groups"]

Size = int | tuple[int]


PRODUCTS: Knob[str] = Knob(
    "cuda_products", env="RUSHLIGHT_CUDA_PRODUCTS", kind=one_of("mma", "wgmma"), default="mma", planned=True,
    doc="How our products and attention multiply on sm_90a: `mma` (mma.sync), or `wgmma` (warpgroups and bulk copies) where operands allow it.",
)  # fmt: skip

ROW_BYTES = 128  # of a tile along k
_KINDS = {(form.a, form.b) for form in GROUP_FORMS.values()}
_LEAST = 64  # rows, columns and k, below which warpgroups have too little to do

# What one multiprocessor of an H200 does, by NVIDIA's data sheet: products in a nanosecond for operands of 2 bytes, bytes that it
# gets from L2 in a nanosecond, bytes of shared memory, registers.  They only weigh tiles against each other.
_MULTIPROCESSORS, _PRODUCTS, _L2_BYTES, _SHARED, _REGISTERS = 132, 3750.0, 40.0, 227 << 10, 65536
# Elements of a tile that is stored here or there: registers of larger ones spill (ptxas 13.0)
_MOST_STORED_TWICE = 128 * 128
_START = 2000.0  # nanoseconds to fill the ring, and to store

# rows, columns, warps that multiply, registers of a thread (by ptxas, on average over a block)
_TILES = (
    (128, 256, 8, 168),
    (256, 128, 8, 168),
    (128, 128, 8, 168),
    (128, 64, 8, 168),
    (64, 128, 4, 128),
    (64, 64, 4, 90),
)
_PART = {256: 1.0, 128: 0.85, 64: 0.6}  # of the rate, that an instruction with so many columns reaches


def groups_multiply(a: DType, b: DType, sums: DType, precision: str) -> bool:
    """Whether warpgroups are asked for, and multiply operands of these dtypes."""
    if PRODUCTS.get() != "wgmma" or (a, b) not in _KINDS or (a is FLOAT32 and precision != "tf32"):
        return False
    return sums is INT32 if a.kind == "i" else sums is FLOAT32


def wants_groups(a: Operand, b: Operand, sums: DType, precision: str) -> bool:
    """Whether a product of strided operands goes to warpgroups."""
    if not groups_multiply(a.dtype, b.dtype, sums, precision) or min(*a.shape[-2:], b.shape[-1]) < _LEAST:
        return False
    return _laid(a, -1) and _laid(b, -2)


def _laid(x: Operand, inner: int) -> bool:
    """Whether tensor maps describe the operand; narrow ones must be dense along k."""
    along, across = x.strides[inner], x.strides[-3 - inner]
    dense = 1 in (along, across) if x.dtype.itemsize == 2 else along == 1
    others = [s for s in x.strides if s != 1]
    return (
        dense and len(x.shape) <= 5 and x.strides.count(1) == 1 and x.offset * x.dtype.itemsize % 16 == 0
        and all(s > 0 and s * x.dtype.itemsize % 16 == 0 for s in others)
    )  # fmt: skip


def choose_group_tile(
    a: Operand, batch: int, rows: int, columns: int, depth: int, whole: int = 0, shared_out: bool = False
) -> TileShape:
    """The tile with the least time by a model of waves of blocks, each as long as its products or its bytes take; its rows
    divide `whole`.  `shared_out`: turns of all tiles are shared out evenly among blocks that run at once.
    """
    item = a.dtype.itemsize
    best: tuple[float, TileShape] | None = None
    for height, width, warps, registers in _TILES:
        if (height >= 2 * rows and height > _LEAST) or (width >= 2 * columns and width > _LEAST):
            continue
        if whole % height or (shared_out and height * width > _MOST_STORED_TWICE):
            continue
        slot = (height + width) * ROW_BYTES
        stages = min(4, _SHARED // slot)
        blocks = max(1, min(_SHARED // (stages * slot + 1024), _REGISTERS // (registers * 32 * (warps + 4))))
        programs = batch * -(-rows // height) * -(-columns // width)
        blocks = 1 if shared_out else blocks
        waves = programs / _MULTIPROCESSORS if shared_out else -(-programs // (_MULTIPROCESSORS * blocks))
        products = height * width * depth / (_PRODUCTS * 2 / item * _PART[width])
        moved = (height + width) * depth * item / _L2_BYTES
        time = waves * (blocks * max(products, moved) + _START)
        found = TileShape(height, width, ROW_BYTES // item, warps, stages)
        if best is None or time < best[0]:
            best = (time, found)
    assert best is not None
    return best[1]


class TileLoads:
    """Tiles of one operand by `load_tile`; `sizes` are those of its array, as parameters or numbers."""

    parts = 1

    def __init__(self, arguments: Arguments, x: Operand, name: str, inner: int, sizes: Sequence[Size]) -> None:
        self.arguments, self.inner, self.sizes = arguments, inner, sizes
        self.array = Array(arguments, x, name)

    def load(self, b: TermBuilder, starts: Sequence[Term], shape: tuple[int, int]) -> Term:
        sizes = [self.arguments.term(b, n) for n in self.sizes]
        strides = [self.array.stride(b, d) for d in range(len(self.array.strides))]
        whole = (*(1,) * (len(starts) - 2), *shape)
        return b.tile(self.arguments.term(b, self.array.at), sizes, strides, starts, whole).reshape(*shape)
