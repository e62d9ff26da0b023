"""Reading images at arbitrary places: `grid_sample`, and the grids of affine maps."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import rushlight
from rushlight.nn.composites.resizing import _cubic_weights

__all__ = ["affine_grid", "grid_sample"]

_DEFAULT = (
    "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. "
    "Please specify align_corners=True if the old behavior is desired."
)


def affine_grid(theta: Any, size: Any, align_corners: bool | None = None) -> Any:
    """The grid for `grid_sample` that belongs to affine maps `theta` (N, 2, 3) or (N, 3, 4); `size` is the result's.

    Example: `F.affine_grid(torch.eye(2, 3).unsqueeze(0), (1, 1, 4, 4), align_corners=False).shape  # (1, 4, 4, 2)`
    """
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    spatial = len(size) - 2
    if spatial not in (2, 3):
        raise NotImplementedError(f"affine_grid only supports 4D and 5D sizes, got size {list(size)}")
    if theta.dim() != 3 or tuple(theta.shape[-2:]) != (spatial, spatial + 1):
        raise ValueError(
            f"Expected a batch of {spatial}D affine matrices of shape Nx{spatial}x{spatial + 1} for size {list(size)}. "
            f"Got {theta.shape}."
        )
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {list(size)}")
    if align_corners is None:
        warnings.warn(_DEFAULT, stacklevel=2)
    lines = []
    for axis, n in enumerate(reversed(list(size)[2:])):
        line = rushlight.linspace(-1, 1, n, dtype=theta.dtype) if n > 1 else theta.new_zeros((1,))
        if not align_corners:
            line = line * ((n - 1) / n)
        shape = [1] * spatial
        shape[spatial - 1 - axis] = n
        lines.append(line.reshape(shape).expand(*list(size)[2:]))
    lines.append(rushlight.ones_like(lines[0]))
    places = rushlight.stack(lines, -1).reshape(1, -1, spatial + 1).expand(theta.size(0), -1, -1)
    return rushlight.bmm(places, theta.transpose(1, 2)).reshape(theta.size(0), *list(size)[2:], spatial)


def grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    """Read `input` (N, C, H, W) or (N, C, D, H, W) at the places of `grid` (N, *, 2 or 3), coordinates x, y(, z) in [-1, 1].

    `mode` is "bilinear", "nearest" or (4-D) "bicubic"; places outside give what `padding_mode` says: "zeros", "border" or
    "reflection". With `align_corners` -1 and 1 are the centres of the first and the last element, else their outer edges.
    """
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', "
            f"but got: '{padding_mode}'"
        )
    spatial = input.dim() - 2
    if spatial not in (2, 3) or grid.dim() != input.dim() or grid.size(-1) != spatial or grid.size(0) != input.size(0):
        raise RuntimeError(
            f"grid_sampler(): expected 4D or 5D input and a grid of as many dimensions whose last is {spatial}, "
            f"but got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if mode == "bicubic" and spatial == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    if align_corners is None:
        warnings.warn(_DEFAULT, stacklevel=2)
    reader = _Reader(input, grid, padding_mode, bool(align_corners))
    return {"bilinear": reader.linear, "nearest": reader.nearest, "bicubic": reader.cubic}[mode]()


class _Reader:
    """One call of `grid_sample`. Axes are counted as the grid does: x (the last dimension) first."""

    def __init__(self, input: Any, grid: Any, padding_mode: str, align_corners: bool) -> None:
        self.sizes = list(reversed(input.shape[2:]))
        self.flat = input.reshape(input.size(0), input.size(1), -1)
        self.out = (input.size(0), input.size(1), *grid.shape[1:-1])
        self.padding_mode = padding_mode
        self.align = align_corners
        # In elements: 0 is the centre of the first one.
        self.places = []
        for axis, size in enumerate(self.sizes):
            x = grid[..., axis].reshape(grid.size(0), -1)
            self.places.append((x + 1) / 2 * (size - 1) if align_corners else ((x + 1) * size - 1) / 2)

    def padded(self, place: Any, size: int) -> Any:
        """Bring places outside of the input inside, as the padding mode says."""
        if self.padding_mode == "zeros":
            return place
        if self.padding_mode == "reflection":
            low, span = (0.0, size - 1.0) if self.align else (-0.5, float(size))
            if span == 0:
                return rushlight.zeros_like(place)
            away = (place - low).abs()
            rest = away.fmod(span)
            turned = (away / span).floor().fmod(2) != 0
            place = rushlight.where(turned, span - rest, rest) + low
        return place.clamp(0, size - 1)

    def read(self, places: list[Any]) -> Any:
        """The values (N, C, points) at whole-numbered places, zero outside of the input."""
        inside: Any = None
        index: Any = 0
        for place, size in zip(reversed(places), reversed(self.sizes), strict=True):
            good = (place >= 0) & (place <= size - 1)
            inside = good if inside is None else inside & good
            index = index * size + place.clamp(0, size - 1).to(rushlight.int64)
        # Places that are NaN count as outside; their index must be a number all the same.
        index = index.masked_fill(~inside, 0).unsqueeze(1).expand(-1, self.flat.size(1), -1)
        found = self.flat.gather(2, index)
        return found.masked_fill(~inside.unsqueeze(1), 0.0)

    def shaped(self, values: Any) -> Any:
        """The result in the shape of the grid."""
        return values.reshape(self.out)

    def nearest(self) -> Any:
        """The value of the nearest element."""
        return self.shaped(
            self.read([self.padded(p, n).round() for p, n in zip(self.places, self.sizes, strict=True)])
        )

    def linear(self) -> Any:
        """The mean of the neighbours, weighted by nearness."""
        places = [self.padded(p, n) for p, n in zip(self.places, self.sizes, strict=True)]
        lows = [p.detach().floor() for p in places]
        total = None
        for corner in itertools.product((0, 1), repeat=len(places)):
            weight = None
            for step, place, low in zip(corner, places, lows, strict=True):
                part = place - low if step else low + 1 - place
                weight = part if weight is None else weight * part
            value = self.read([low + step for low, step in zip(lows, corner, strict=True)])
            value = value * weight.unsqueeze(1)  # type: ignore[union-attr]
            total = value if total is None else total + value
        return self.shaped(total)

    def cubic(self) -> Any:
        """Cubic convolution over the sixteen nearest elements; padding applies to each of them."""
        lows = [p.detach().floor() for p in self.places]
        weights = [_cubic_weights(p - low) for p, low in zip(self.places, lows, strict=True)]
        total = None
        for i, j in itertools.product(range(4), repeat=2):
            taps = [
                self.padded(low + (k - 1), n) for low, k, n in zip(lows, (i, j), self.sizes, strict=True)
            ]
            value = self.read(taps) * (weights[0][i] * weights[1][j]).unsqueeze(1)
            total = value if total is None else total + value
        return self.shaped(total)
