"""Convolutions whose tiles bulk copies bring and warpgroups multiply (sm_90a): which, and where their tiles lie.

A turn of the loop stays within one tap of the kernel, so a tile of images is a run of positions by neighbouring channels, which one
copy brings (`load_windows`).  In the gradient by weights the run of positions is the inner dim, and rows stay within one tap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rushlight._backends.cuda.arguments import Arguments, Array
from rushlight._backends.cuda.conv.rows import Geometry, Rows, digits, images_are_inner, sizes_of
from rushlight._backends.cuda.gemm.tiles import TileShape
from rushlight._backends.cuda.gemm.warpgroups import ROW_BYTES, choose_group_tile, groups_multiply
from rushlight._backends.cuda.program.steps import Operand
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import DType

__all__ = ["GroupTiles", "group_tiles"]

_LEAST = 64  # rows, columns and channels, below which warpgroups have too little to do
_MOST_STEP = 8
_CORNER_BITS = {1: 16, 2: 8, 3: 5}  # of a tensor map of windows, by dims of an image


class _Run(NamedTuple):
    """Positions that copies go along: their count, the step from one to the next; what taps add; where the first begins."""

    counts: tuple[int, ...]
    steps: tuple[int, ...]
    gaps: tuple[int, ...]  # between taps
    taps: tuple[int, ...]
    lo: tuple[int, ...]

    def fits(self, space: Sequence[int]) -> bool:
        """Whether a tensor map describes it for images of such a size."""
        half = 1 << _CORNER_BITS.get(len(space), 0) - 1 if len(space) in _CORNER_BITS else 0
        for count, step, gap, taps, lo, size in zip(*self, space, strict=True):
            upper = (count - 1) * step - lo + 1 - size
            if not (0 < step <= _MOST_STEP and -half <= -lo < half and -half <= upper < half):
                return False
            if not 0 <= (taps - 1) * gap < 2 * half:
                return False
        return half > 0


def group_tiles(x: Operand, w: Operand, geometry: Geometry, sums: DType, precision: str) -> GroupTiles | None:
    """How warpgroups do a convolution of x [N, G, C, *S] and w [G, O, C, *K]; None where they do not."""
    g = geometry
    if not groups_multiply(x.dtype, w.dtype, sums, precision) or x.shape[1] != 1 or any(s != 1 for s in g.spread):
        return None
    turned = images_are_inner(x)
    by_weights = turned and x.dtype.itemsize == 2 and not g.flip
    if by_weights:
        run = _Run(g.kernel, g.dilation, g.stride, g.size, g.lo)
        channels, fits = x.shape[0], _is_matrix(w)
    else:
        run = _Run(g.size, g.stride, g.dilation, g.kernel, g.lo)
        channels, fits = x.shape[2], not turned and x.strides[2] == 1 and _has_dense_dim(w)
    if not fits or min(channels, w.shape[1]) < _LEAST or not run.fits(x.shape[3:]) or not _aligned(x):
        return None
    return GroupTiles(x, w, geometry, run, by_weights)


def _aligned(x: Operand) -> bool:
    item = x.dtype.itemsize
    strides = [s for n, s in zip(x.shape, x.strides, strict=True) if n > 1 and s != 1]
    return x.offset * item % 16 == 0 and all(s > 0 and s * item % 16 == 0 for s in strides)


def _is_matrix(w: Operand) -> bool:
    """Whether w [1, O, C, *K] is a matrix [C K, O] in memory, dense along its rows."""
    sizes, strides = w.shape[2:], w.strides[2:]
    merged = all(strides[d] == strides[d + 1] * sizes[d + 1] for d in range(len(sizes) - 1))
    return merged and w.strides[1] == 1 and _aligned(w)


def _has_dense_dim(w: Operand) -> bool:
    """Whether channels lie side by side, of the result only for operands of two bytes."""
    dense = w.strides[2] == 1 or (w.strides[1] == 1 and w.dtype.itemsize == 2)
    ones = [s for n, s in zip(w.shape, w.strides, strict=True) if n > 1 and s == 1]
    return dense and len(ones) == 1 and sum(n > 1 for n in w.shape) <= 5 and _aligned(w)


class GroupTiles:
    """The tiles of a convolution, and what its product is."""

    def __init__(self, x: Operand, w: Operand, geometry: Geometry, run: _Run, by_weights: bool) -> None:
        self.x, self.w, self.geometry, self.run, self.by_weights = x, w, geometry, run, by_weights
        self.depth = ROW_BYTES // x.dtype.itemsize
        self.padded = -(-x.shape[2] // self.depth) * self.depth  # channels of a tap along the inner dim

    @property
    def inner(self) -> int:
        """The product's inner dim."""
        return self.x.shape[2] * self.geometry.taps if self.by_weights else self.padded * self.geometry.taps

    def tile(self, rows: int) -> TileShape | None:
        """The tile of a program; None where none fits."""
        whole = self.x.shape[0] if self.by_weights else 0  # rows of a tap, of which a tile has no others
        if whole % _LEAST:
            return None
        return choose_group_tile(self.x, 1, rows, self.w.shape[1], self.inner, whole)

    def takes(self, tile: TileShape) -> bool:
        """Whether a tile is one of ours."""
        return tile.depth == self.depth and not (self.by_weights and self.x.shape[0] % tile.rows)

    def declare(self, arguments: Arguments) -> LoadedTiles:
        return LoadedTiles(arguments, self)


class LoadedTiles:
    """The operands of a kernel, tile by tile."""

    def __init__(self, arguments: Arguments, of: GroupTiles) -> None:
        self.arguments, self.of = arguments, of
        x, w = of.x, of.w
        self.images, self.weights = Array(arguments, x, "x"), Array(arguments, w, "w")
        self.space = [arguments.integer(n, f"space{d}") for d, n in enumerate(x.shape[3:])]
        self.counts = [arguments.integer(n, f"count{d}") for d, n in enumerate(of.run.counts)]
        self.n_images, self.n_channels = (
            arguments.integer(x.shape[0], "images"),
            arguments.integer(x.shape[2], "channels"),
        )
        self.n_outs = arguments.integer(w.shape[1], "outs")
        self.rows = Rows(arguments, x.shape[0], of.geometry.size, of.by_weights)
        self.padded = arguments.integer(of.padded, "padded")
        self.deep = arguments.integer(x.shape[2] * of.geometry.taps, "deep")

    def load(self, b: TermBuilder, corner: tuple[Term, Term], k: Term, tile: TileShape) -> tuple[Term, Term]:
        """The tiles of both operands at a turn."""
        row, column = corner
        if self.of.by_weights:
            channel, place = self.rows.split(b, row)
            start = digits(b, k, [0, *sizes_of(b, self.arguments, self.counts)])
            left = self._windows(b, start, place, channel, (tile.depth, tile.rows), 0).permute(1, 0)
            return left, self._matrix(b, k, column, (tile.depth, tile.columns))
        image, place = self.rows.split(b, row)
        padded = self.arguments.term(b, self.padded)
        tap, channel = digits(b, k // padded, self.of.geometry.kernel), k % padded
        left = self._windows(b, [image, *place], tap, channel, (tile.rows, tile.depth), 2)
        return left, self._weights(b, tap, channel, column, (tile.columns, tile.depth))

    def _windows(
        self, b: TermBuilder, start: Sequence[Term], tap: Sequence[Term], channel: Term, shape: tuple[int, int], dense: int
    ) -> Term:  # fmt: skip
        """Positions from `start` on by channels, which are the dim `dense` of the images."""
        run, strides = self.of.run, [self.images.stride(b, d) for d in range(len(self.images.strides))]
        n_images, n_channels = (self.arguments.term(b, n) for n in (self.n_images, self.n_channels))
        sizes = [n_images, n_channels] if dense == 2 else [n_channels, n_images]
        along = [strides[0], strides[2]] if dense == 2 else [strides[2], strides[0]]
        space, counts = ([self.arguments.term(b, n) for n in ns] for ns in (self.space, self.counts))
        offsets = [t * gap for t, gap in zip(tap, run.gaps, strict=True)]
        numbers = [sizes[0], *space, sizes[1], along[0], *strides[3:], along[1], *counts, *start, *offsets, channel]
        return b.windows(self.arguments.term(b, self.images.at), numbers, run.steps, run.lo, shape)

    def _matrix(self, b: TermBuilder, k: Term, column: Term, shape: tuple[int, int]) -> Term:
        sizes = [self.arguments.term(b, n) for n in (self.deep, self.n_outs)]
        strides = [self.weights.stride(b, d) for d in (len(self.weights.strides) - 1, 1)]
        return b.tile(self.arguments.term(b, self.weights.at), sizes, strides, (k, column), shape)

    def _weights(
        self, b: TermBuilder, tap: Sequence[Term], channel: Term, column: Term, shape: tuple[int, int]
    ) -> Term:
        """[depth, columns] of one tap; dims of one tap are left out."""
        g, arguments = self.of.geometry, self.arguments
        dims = [d for d, n in enumerate(g.kernel) if n > 1]
        taps = [g.kernel[d] - 1 - tap[d] if g.flip else tap[d] for d in dims]
        sizes = [arguments.term(b, n) for n in (self.n_outs, self.n_channels)] + [
            b.number(g.kernel[d], tap[d].dtype) for d in dims
        ]
        strides = [self.weights.stride(b, d) for d in (1, 2, *(3 + d for d in dims))]
        whole = (*shape, *(1,) * len(dims))
        made = b.tile(arguments.term(b, self.weights.at), sizes, strides, [column, channel, *taps], whole)
        return made.reshape(*shape).permute(1, 0)
