"""`conv_windows` as a product of matrices that are never stored: rows are positions of all images, columns are
channels of the result, and the inner dim goes over channels and taps.

Strides, dilations, paddings and the size of the kernel are constants of the kernel, the other sizes are parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.cuda.arguments import Arguments, Array
from rushlight._backends.cuda.conv.rows import Geometry, Rows, digits, images_are_inner, sizes_of
from rushlight._backends.cuda.conv.warpgroups import GroupTiles, LoadedTiles
from rushlight._backends.cuda.gemm.product import Epilogue, Loads, Place, Product, ProductKernel
from rushlight._backends.cuda.program.steps import Operand
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import DType

__all__ = ["WindowsKernel", "as_product", "in_order", "store_positions", "with_bias"]

Ints = tuple[int, ...]


def as_product(
    x: Operand, w: Operand, out: Operand, geometry: Geometry, inner: int, sums: DType, precision: str
) -> Product:
    """The product [G, N P, C K] by [G, C K, O] that a convolution is; strides of the operands mean nothing."""
    batch, groups, outs = *x.shape[:2], w.shape[1]
    rows = Operand(x.memory, x.dtype, (groups, batch * geometry.positions, inner), (0, 0, 0), x.offset)
    columns = Operand(w.memory, w.dtype, (groups, inner, outs), (0, 0, 0), w.offset)
    result = Operand(out.memory, out.dtype, (groups, batch * geometry.positions, outs), (0, 0, 0), out.offset)
    return Product(rows, columns, result, sums, precision)


class _Sizes:
    """The sizes of a convolution among the parameters of a kernel."""

    def __init__(self, arguments: Arguments, depth: int, space: Ints) -> None:
        self.arguments = arguments
        self.depth = arguments.integer(depth, "depth_of_group")
        self.space = [arguments.integer(n, f"space{d}") for d, n in enumerate(space)]

    def tap(self, b: TermBuilder, inner: Term, geometry: Geometry, channels_inner: bool) -> tuple[Term, list[Term]]:
        """The channel and the place in the kernel of numbers along the inner dim."""
        (depth,) = sizes_of(b, self.arguments, [self.depth])
        if channels_inner:
            channel, *taps = digits(b, inner, [0, depth])[::-1]
            return channel, digits(b, taps[0], geometry.kernel)
        channel, *taps = digits(b, inner, [0, *geometry.kernel])
        return channel, taps


class _Images(Loads):
    """Elements of images at positions (rows) and taps."""

    inner, parts = 1, 1

    def __init__(self, sizes: _Sizes, x: Operand, geometry: Geometry, channels_inner: bool) -> None:
        self.sizes, self.geometry, self.channels_inner = sizes, geometry, channels_inner
        self.rows = Rows(sizes.arguments, x.shape[0], geometry.size, images_are_inner(x))
        self.array = Array(sizes.arguments, x, "x")

    def base(self, b: TermBuilder, batch: Sequence[Term], outer: Term) -> Any:
        image, place = self.rows.split(b, outer)
        g = self.geometry
        begins = [p * s - lo for p, s, lo in zip(place, g.stride, g.lo, strict=True)]
        return image, batch[0], begins

    def pointers(self, b: TermBuilder, base: Any, at: Term) -> tuple[Term, Term | None]:
        image, group, begins = base
        g, space = self.geometry, sizes_of(b, self.sizes.arguments, self.sizes.space)
        channel, taps = self.sizes.tap(b, at, g, self.channels_inner)
        inside: Term | None = None
        indices = []
        for begin, tap, gap, apart, extent in zip(begins, taps, g.dilation, g.spread, space, strict=True):
            index = begin + tap * gap
            here = index >= 0
            if apart > 1:
                here = here & (index % apart).equals(0)
                index = index // apart
            here = here & (index < extent)
            inside = here if inside is None else inside & here
            indices.append(index)
        return self.array.pointer(b, image, group, channel, *indices), inside


class _Weights(Loads):
    """Elements of the kernels of channels (columns)."""

    inner, parts = 0, 1

    def __init__(self, sizes: _Sizes, w: Operand, geometry: Geometry, channels_inner: bool) -> None:
        self.sizes, self.geometry, self.channels_inner = sizes, geometry, channels_inner
        self.array = Array(sizes.arguments, w, "w")

    def base(self, b: TermBuilder, batch: Sequence[Term], outer: Term) -> Any:
        return batch[0], outer

    def pointers(self, b: TermBuilder, base: Any, at: Term) -> tuple[Term, Term | None]:
        group, channel = base
        depth, taps = self.sizes.tap(b, at, self.geometry, self.channels_inner)
        if self.geometry.flip:
            taps = [(n - 1) - tap for tap, n in zip(taps, self.geometry.kernel, strict=True)]
        return self.array.pointer(b, group, channel, depth, *taps), None


class WindowsKernel(ProductKernel):
    """The product of a convolution."""

    def __init__(
        self, x: Operand, w: Operand, product: Product, geometry: Geometry, tile: Any, splits: int, epilogue: Epilogue,
        groups: GroupTiles | None = None,
    ) -> None:  # fmt: skip
        self.x, self.w, self.geometry, self.groups = x, w, geometry, groups
        super().__init__(product, tile, splits, epilogue, (None, None))

    def wants_tiles(self, prologues: Any) -> bool:
        return self.groups is not None

    def declare_tiles(self) -> LoadedTiles:
        assert self.groups is not None
        return self.groups.declare(self.arguments)

    def _tiles(self, b: TermBuilder, tiles: LoadedTiles, place: Place, k: Term) -> tuple[list[Term], list[Term]]:
        x, y = tiles.load(b, self.corner, k, self.tile)
        return [x], [y]

    def declare_loads(self) -> tuple[Loads, Loads]:
        x, g = self.x, self.geometry
        channels_inner = x.strides[2] == 1 and x.shape[2] > 1
        sizes = _Sizes(self.arguments, x.shape[2], x.shape[3:])
        return _Images(sizes, x, g, channels_inner), _Weights(sizes, self.w, g, channels_inner)

    def _name(self) -> str:
        shape = "x".join(map(str, self.geometry.kernel))
        kind = "grouped_convolution" if self.groups else "convolution"
        return f"{kind}_{self.product.a.dtype.abbr}_{shape}_{self.tile.rows}x{self.tile.columns}"


def with_bias(store: Epilogue, bias: Operand | None) -> Epilogue:
    """A bias [G, O] is added to the sums before."""
    if bias is None:
        return store

    def declare(arguments: Arguments) -> Callable[[TermBuilder, Term, Place], None]:
        more, emit = Array(arguments, bias, "bias"), store.declare(arguments)

        def added(b: TermBuilder, sums: Term, place: Place) -> None:
            inside = None if place.inside is None else place.columns < place.column_end
            values = more.pointer(b, place.batch[0], place.columns).load(inside, None if inside is None else 0)
            emit(b, sums + values.to(sums.dtype), place)

        return added

    return Epilogue(declare)


def in_order(store: Epilogue, out: Operand, size: Ints, images_inner: bool) -> Epilogue:
    """An epilogue that is given rows image by image."""
    if not images_inner:
        return store

    def declare(arguments: Arguments) -> Callable[[TermBuilder, Term, Place], None]:
        rows, emit = Rows(arguments, out.shape[0], size, images_inner, "out_"), store.declare(arguments)

        def turned(b: TermBuilder, sums: Term, place: Place) -> None:
            number = rows.in_order(b, place.rows)
            if place.inside is not None:  # rows behind the end stay behind
                number = b.where(place.rows < place.row_end, number, place.row_end)
            emit(b, sums, place._replace(rows=number))

        return turned

    return Epilogue(declare)


def store_positions(out: Operand, bias: Operand | None, size: Ints, images_inner: bool) -> Epilogue:
    """Sums plus a bias [G, O], into a result [N, G, O, *size]: rows are the positions of all images."""

    def declare(arguments: Arguments) -> Callable[[TermBuilder, Term, Place], None]:
        array, rows = Array(arguments, out, "out"), Rows(arguments, out.shape[0], size, images_inner, "out_")

        def emit(b: TermBuilder, sums: Term, place: Place) -> None:
            image, position = rows.split(b, place.rows)
            array.pointer(b, image, *place.batch, place.columns, *position).store(sums, place.inside)

        return emit

    return with_bias(Epilogue(declare), bias)
