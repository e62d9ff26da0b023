"""Reading images at arbitrary coordinates: `grid_sample`, and the grids of affine maps.

Spatial axes are in the order of grids: x, the last dim of the image, first.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from rushlight._base.errors import warn_user
from rushlight._ops.bodies import CPP_NAME, refuse
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import INT64
from rushlight._types.layout import numel
from rushlight._types.symbols import as_double

__all__: list[str] = []

NN = ("nn.functional",)
MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")
CHANGED = (
    "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify align_corners=True if the old "
    "behavior is desired. See the documentation of grid_sample for details."
)


class _Reader:
    """One call: the grid's coordinates in the image, counted in elements (0 is the centre of the first one)."""

    def __init__(self, x: Any, grid: Any, padding: str, align: bool) -> None:
        self.padding, self.align = padding, align
        self.sizes = tuple(reversed(x.shape[2:]))
        self.flat = build.reshape(x, (*x.shape[:2], numel(x.shape[2:])))
        self.out = (*x.shape[:2], *grid.shape[1:-1])
        count = numel(grid.shape[1:-1])
        self.coordinates = []
        for axis, size in enumerate(self.sizes):
            last = len(grid.shape) - 1
            part = prim.slice(
                grid, starts=(0,) * last + (axis,), stops=(*grid.shape[:-1], axis + 1), steps=(1,) * (last + 1)
            )
            at = build.reshape(part, (grid.shape[0], count))
            self.coordinates.append(
                (at + 1.0) / 2.0 * as_double(size - 1) if align else ((at + 1.0) * as_double(size) - 1.0) / 2.0
            )

    def padded(self, coordinate: Any, size: int) -> Any:
        """Move coordinates outside of the image inside, by the padding mode; on the border and beyond their derivative
        is zero."""
        if self.padding == "zeros":
            return coordinate
        if self.padding == "reflection":
            low, span = (0.0, size - 1.0) if self.align else (-0.5, as_double(size))
            if span == 0:
                return self.still([coordinate], [size])
            away = prim.abs(coordinate - low)
            turns = prim.floor(away / span)
            rest = prim.rem_trunc(away, build.full_like(away, span))
            odd = build.ne(prim.rem_trunc(turns, build.full_like(away, 2.0)), 0.0)
            coordinate = build.select(odd, span - rest, rest) + low
        top = as_double(size - 1)
        return build.select(coordinate > 0.0, build.select(coordinate < top, coordinate, top), 0.0)

    def index(self, coordinates: Sequence[Any]) -> tuple[Any, Any]:
        """A mask of the integer coordinates [N, points] inside of the image (NaN is not), and clamped indices."""
        inside = index = None
        for coordinate, size in zip(reversed(coordinates), reversed(self.sizes), strict=True):
            good = (coordinate >= 0.0) & (coordinate <= as_double(size - 1))
            at = build.convert(build.select(good, coordinate, 0.0), INT64)
            inside = good if inside is None else inside & good
            index = at if index is None else index * size + at
        return inside, index

    def read(self, coordinates: Sequence[Any], outside: Any) -> Any:
        """The values [N, C, points] at integer coordinates, `outside` outside of the image."""
        inside, index = self.index(coordinates)
        shape = (*self.flat.shape[:2], index.shape[1])
        index = prim.broadcast(build.select(inside, index, 0), shape=shape, dims=(0, 2))
        other = prim.broadcast(outside, shape=shape, dims=(0, 2))
        return build.select(
            prim.broadcast(inside, shape=shape, dims=(0, 2)), prim.gather(self.flat, index, dim=2), other
        )

    def weighted(self, taps: Sequence[tuple[Sequence[Any], Any]]) -> Any:
        """The sum of the values [N, C, points] at indices times their weights; zeros outside of the image."""
        inside_indices = [self.index(coordinates) for coordinates, _ in taps]
        return prim.weighted_gather(
            self.flat,
            *(build.select(inside, index, -1) for inside, index in inside_indices),
            *(weight for _, weight in taps),
        )

    def nearest(self) -> Any:
        """The value of the nearest element."""
        coordinates = [prim.round(self.padded(p, n)) for p, n in zip(self.coordinates, self.sizes, strict=True)]
        return self.read(coordinates, outside=self.still(coordinates, self.sizes))

    @staticmethod
    def still(coordinates: Sequence[Any], sizes: Sequence[int]) -> Any:
        """Zeros that depend on the grid: the result is locally constant in it, so its gradient is zero, and not
        missing."""
        total = None
        for coordinate, size in zip(coordinates, sizes, strict=True):
            part = prim.floor(
                build.select((coordinate >= 0.0) & (coordinate <= as_double(size - 1)), coordinate, 0.0) * 0.0
            )
            total = part if total is None else total + part
        return total

    def linear(self) -> Any:
        """The mean of the neighbours, weighted by nearness."""
        coordinates = [self.padded(p, n) for p, n in zip(self.coordinates, self.sizes, strict=True)]
        lows = [prim.floor(p) for p in coordinates]
        taps = []
        for corner in itertools.product((0, 1), repeat=len(coordinates)):
            weight = None
            for step, coordinate, low in zip(corner, coordinates, lows, strict=True):
                part = coordinate - low if step else low + 1.0 - coordinate
                weight = part if weight is None else weight * part
            taps.append(([low + float(step) for low, step in zip(lows, corner, strict=True)], weight))
        return self.weighted(taps)

    def cubic(self) -> Any:
        """Cubic convolution over the sixteen nearest elements; padding applies to each of them."""
        lows = [prim.floor(p) for p in self.coordinates]
        weights = [cubic_weights(p - low) for p, low in zip(self.coordinates, lows, strict=True)]
        taps = []
        for i, j in itertools.product(range(4), repeat=2):
            coordinates = [
                self.padded(low + float(k - 1), n) for low, k, n in zip(lows, (i, j), self.sizes, strict=True)
            ]
            taps.append((coordinates, weights[0][i] * weights[1][j]))
        return self.weighted(taps)


def cubic_weights(t: Any, a: float = -0.75) -> tuple[Any, Any, Any, Any]:
    """The weights of four neighbours at a distance of 1 + t, t, 1 - t, 2 - t: Keys' cubic convolution (1981) with this
    slope."""

    def near(x: Any) -> Any:
        return (x * (a + 2.0) - (a + 3.0)) * x * x + 1.0

    def far(x: Any) -> Any:
        return ((x * a - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a

    return far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)


def _check(x: Any, grid: Any, mode: str) -> None:
    n = len(x.shape) - 2
    sizes = f"but got input with sizes {list(x.shape)} and grid with sizes {list(grid.shape)}"
    if x.dtype is not grid.dtype:
        raise RuntimeError(
            f"grid_sampler(): expected scalar type {CPP_NAME[x.dtype.name]} but found {CPP_NAME[grid.dtype.name]}"
        )
    if x.shape[:1] != grid.shape[:1]:
        raise RuntimeError(f"grid_sampler(): expected grid and input to have same batch size, {sizes}")
    if n < 1 or grid.shape[-1] != n:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {n} in last dimension, but got grid with sizes {list(grid.shape)}"
        )
    if n not in (2, 3) or len(grid.shape) != n + 2:
        raise RuntimeError(f"grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, {sizes}")
    for dim, size in enumerate(x.shape[2:], 2):
        if size == 0:
            raise RuntimeError(
                f"grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes {list(x.shape)} with dimension {dim} "
                "being empty"
            )
    if mode == "bicubic" and n == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")


def _sampled(x: Any, grid: Any, mode: str, padding: str, align: bool) -> Any:
    refuse(x, "grid_sampler_2d_cpu_kernel_impl", "buic")
    _check(x, grid, mode)
    reader = _Reader(x, grid, padding, align)
    values = {"bilinear": reader.linear, "nearest": reader.nearest, "bicubic": reader.cubic}[mode]()
    return build.reshape(values, reader.out)


def _node(input: Any, **_: Any) -> str:
    return f"GridSampler{len(input.shape) - 2}DBackward0"


SAMPLER: dict[str, Any] = {"promote": "opmath", "like": "contiguous", "method": False, "node": _node}


@operator(
    "grid_sample(Tensor input, Tensor grid, str mode='bilinear', str padding_mode='zeros', bool? align_corners=None) -> Tensor",
    spaces=NN,
    **SAMPLER,
)
def grid_sample(x: Any, grid: Any, mode: str, padding_mode: str, align_corners: bool | None) -> Any:
    """Read `input` (N, C, H, W) or (N, C, D, H, W) at the points of `grid` (N, *, 2 or 3), coordinates x, y(, z) in
    [-1, 1].

    `mode` is "bilinear", "nearest" or (4-D) "bicubic"; `padding_mode` defines points outside: "zeros", "border" or
    "reflection".  With `align_corners` -1 and 1 are the centres of the first and the last element, else their outer
    edges.

    >>> image, grid = torch.ones(1, 1, 4, 4), torch.zeros(1, 2, 3, 2)
    >>> torch.nn.functional.grid_sample(image, grid, align_corners=False).shape
    torch.Size([1, 1, 2, 3])
    """
    for name, value, known in (("mode", mode, MODES), ("padding_mode", padding_mode, PADDINGS)):
        if value not in known:
            raise ValueError(
                f"nn.functional.grid_sample(): expected {name} to be '{known[0]}', '{known[1]}' or '{known[2]}', but got: '{value}'"
            )
    if align_corners is None:
        warn_user(CHANGED)
    return _sampled(x, grid, mode, padding_mode, bool(align_corners))


def _declare_sampler(name: str, dims: tuple[int, ...]) -> None:
    def body(x: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
        if interpolation_mode not in range(3) or padding_mode not in range(3):
            raise RuntimeError(
                f"{name}(): expected interpolation_mode and padding_mode in 0, 1, 2, but got {interpolation_mode} and {padding_mode}"
            )
        if len(x.shape) not in dims:
            raise RuntimeError(
                f"{name}(): expected {' or '.join(f'{d}D' for d in dims)} input, but got sizes {list(x.shape)}"
            )
        return _sampled(x, grid, MODES[interpolation_mode], PADDINGS[padding_mode], align_corners)

    operator(
        f"{name}(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor",
        doc="`nn.functional.grid_sample` with numbers for its modes: 0 bilinear, 1 nearest, 2 bicubic; 0 zeros, 1 border, 2 reflection.",
        **SAMPLER,
    )(body)


_declare_sampler("grid_sampler", (4, 5))
_declare_sampler("grid_sampler_2d", (4,))
_declare_sampler("grid_sampler_3d", (5,))


# ***** grids *****


def _line(n: int, shape: tuple[int, ...], dim: int, align: bool, dtype: Any) -> Any:
    """n coordinates from -1 to 1 along a dim: centres of the outermost elements, or (not `align`) their outer edges."""
    if n <= 1:
        return build.full(shape, 0.0, dtype)
    at = build.convert(prim.iota(shape=shape, dim=dim, dtype=INT64), dtype)
    step = 2.0 / (n - 1)
    line = build.select(at < as_double(n // 2), at * step - 1.0, 1.0 - (as_double(n - 1) - at) * step)
    return line if align else line * ((n - 1) / n)


def _affine(theta: Any, size: Sequence[int], align: bool) -> Any:
    space = tuple(size[2:])
    n = len(space)
    if theta.shape != (size[0], n, n + 1):
        raise RuntimeError(
            f"Expected a batch of {n}D affine matrices of shape {[size[0], n, n + 1]} for size {list(size)}, got {list(theta.shape)}."
        )
    shape = (size[0], *space, n)

    def column(k: int) -> Any:
        part = prim.slice(theta, starts=(0, 0, k), stops=(size[0], n, k + 1), steps=(1, 1, 1))
        return prim.broadcast(build.reshape(part, (size[0], n)), shape=shape, dims=(0, n + 1))

    total = column(n)
    for axis in range(n):
        dim = n - axis  # x is the last spatial dim
        total = total + column(axis) * _line(space[dim - 1], shape, dim, align, theta.dtype)
    return total


@operator("affine_grid_generator(Tensor theta, int[] size, bool align_corners) -> Tensor", promote="opmath", like="contiguous", method=False,
          tags=("sized",))  # fmt: skip
def affine_grid_generator(theta: Any, size: Sequence[int], align_corners: bool) -> Any:
    """The grid for `grid_sampler` of affine maps `theta` (N, 2, 3) or (N, 3, 4); `size` is the result's."""
    if len(size) not in (4, 5):
        raise RuntimeError("AffineGridGenerator needs 4d (spatial) or 5d (volumetric) inputs.")
    return _affine(theta, size, align_corners)


@operator("affine_grid(Tensor theta, int[] size, bool? align_corners=None) -> Tensor", promote="opmath", like="contiguous", method=False,
          spaces=NN, node="AffineGridGeneratorBackward0", tags=("sized",))  # fmt: skip
def affine_grid(theta: Any, size: Sequence[int], align_corners: bool | None) -> Any:
    """The grid for `grid_sample` that belongs to affine maps `theta` (N, 2, 3) or (N, 3, 4); `size` is the result's.

    >>> torch.nn.functional.affine_grid(torch.eye(2, 3).unsqueeze(0), (1, 1, 4, 5), align_corners=False).shape
    torch.Size([1, 4, 5, 2])
    """
    if not theta.dtype.is_floating_point:
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    n = len(size) - 2
    if n not in (2, 3):
        raise NotImplementedError(
            f"affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size {list(size)}."
        )
    if len(theta.shape) != 3 or tuple(theta.shape[-2:]) != (n, n + 1):
        raise ValueError(
            f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size {list(size)}. Got {tuple(theta.shape)}."
        )
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {list(size)}")
    if align_corners is None:
        warn_user(CHANGED)
    if align_corners and min(size[2:]) == 1:
        warn_user(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when align_corners=True. This is not an intended use case of "
            "affine_grid. See the documentation of affine_grid for details."
        )
    return _affine(theta, size, bool(align_corners))
