"""Operands of `mma` from shared memory by `ldmatrix`: eight rows of 16 bytes at a time, straight or transposed, no conflict of banks.

Each lane gives the address of a row: eight lanes those of one matrix of 8 x 8 numbers of 16 bits (or as many bytes of others), and
of up to four matrices at once.  A lane gets the word `lane % 4` of the row `lane / 4` of each; transposed, which numbers of 16 bits
can be, the numbers at `lane / 4` of rows `2 (lane % 4)` and the next.
"""

from __future__ import annotations

from typing import NamedTuple

from ..exchange import Swizzle
from ..form import Buffer, Registers, ThreadBuilder, Value
from ..layout import LANE_BITS, Layout, bits_of
from ..lower import Lowering

__all__ = ["MatrixLoad", "matrix_load_of"]

LEAST_CAPABILITY = 75
ROW_BYTES = 16


class MatrixLoad(NamedTuple):
    """How a layout is read: `rows` are the elements' bits that count a matrix's rows, `matrices` those that tell matrices apart."""

    layout: Layout
    itemsize: int
    transposed: bool
    rows: tuple[int, ...]
    matrices: tuple[int, ...]
    word_bits: int  # of the register's number, within a word of 32 bits

    @property
    def access(self) -> tuple[Layout, int]:
        """Rows as lanes read them, and their elements: for the choice of a swizzle."""
        inner = tuple(range(self.row_bits))
        return Layout(inner, (*self.rows, *self.matrices)[:LANE_BITS], self.layout.warps), 1 << self.row_bits

    @property
    def row_bits(self) -> int:
        return bits_of(ROW_BYTES // self.itemsize)

    def fits(self, swizzle: Swizzle) -> bool:
        """Whether rows stay together."""
        return swizzle.bits == 0 or swizzle.keep >= self.row_bits

    def read(self, b: ThreadBuilder, place: Value, buffer: Buffer, like: Registers, ring: bool) -> Value:
        """The tile; `place` are the byte offsets of rows, `ring` says that barriers stand where they are needed."""
        return b.emit(
            "matrix_load", [place], [like], buffer=buffer, dtype=like.dtype, matrices=1 << len(self.matrices),
            transposed=self.transposed, ring=ring,
        ).result  # fmt: skip

    def offsets(self, b: ThreadBuilder, swizzle: Swizzle) -> Value:
        """Byte offsets of the rows that a lane names, one for each load."""

        def at(bit: int) -> int:
            return 0 if bit < 0 else swizzle(1 << bit) * self.itemsize

        lanes = [at(bit) for bit in (*self.rows, *self.matrices)]
        lanes += [0] * (LANE_BITS - len(lanes))
        outer = Layout(self.layout.registers[self.word_bits + len(self.matrices) :], (), ())
        return b.index(
            [swizzle(e) * self.itemsize for e in outer.table()], lanes, [at(bit) for bit in self.layout.warps]
        )


def matrix_load_of(lo: Lowering, layout: Layout, itemsize: int) -> MatrixLoad | None:
    """How `ldmatrix` reads a tile in a layout; None where it cannot."""
    if lo.layouts.capability < LEAST_CAPABILITY or itemsize > 4 or -1 in layout.lanes:
        return None
    word = bits_of(4 // itemsize)
    more = layout.registers[word : word + 2]
    if layout.registers[:word] == tuple(range(word)) and layout.lanes[:2] == (word, word + 1):
        return MatrixLoad(layout, itemsize, False, layout.lanes[2:], more, word)
    if itemsize == 2 and layout.registers and layout.lanes[2:] == (0, 1, 2):
        return MatrixLoad(layout, itemsize, True, (layout.registers[0], *layout.lanes[:2]), more, word)
    return None
