"""Tensor maps of the emulated driver: what the real one refuses is refused, the rest becomes a record that twins read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rushlight._backends.cuda.driver.errors import fail
from rushlight._codegen.threads.tile_maps import MOST_DIMS, Corners, record, window_record

__all__ = ["Modes", "encoded", "encoded_windows"]

_CALL = "cuTensorMapEncodeTiled"
_SWIZZLE_128, _L2_256, _FIRST_FLOAT = 3, 3, 6
_ITEM_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 10: 4, 11: 4, 12: 4}  # by kind of element


class Modes(NamedTuple):
    """Of the driver's enumerations: interleaving, swizzle, lines in L2, what is read outside (zeros, or NaN for floats)."""

    interleave: int
    swizzle: int
    promotion: int
    fill: int

    def checks(self, kind: int) -> list[tuple[bool, str]]:
        return [
            (kind in _ITEM_BYTES, f"no kind of element {kind}"),
            (self.interleave == 0, f"the interleaving {self.interleave}, which is not emulated"),
            (self.swizzle == _SWIZZLE_128, f"the swizzle {self.swizzle}, which is not emulated"),
            (0 <= self.promotion <= _L2_256, f"no promotion {self.promotion}"),
            (self.fill == 0 or (self.fill == 1 and kind >= _FIRST_FLOAT), f"the fill {self.fill} for elements {kind}"),
        ]


def encoded(
    kind: int, address: int, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int], steps: Sequence[int], modes: Modes
) -> bytes:  # fmt: skip
    """The record of a tensor map; CUDA_ERROR_INVALID_VALUE for what no map can describe."""
    item = _ITEM_BYTES.get(kind, 0)
    checks = [
        *modes.checks(kind),
        (
            1 <= len(sizes) <= MOST_DIMS and len(sizes) == len(box) == len(steps) == len(strides) + 1,
            f"{len(sizes)} dims",
        ),
        (address % 16 == 0, f"the address {address:#x} is no multiple of 16"),
        (all(0 < n <= 1 << 32 for n in sizes), f"sizes {list(sizes)}"),
        (all(s % 16 == 0 and 0 < s < 1 << 40 for s in strides), f"strides of {list(strides)} bytes"),
        (all(0 < n <= 256 for n in box), f"a box of {list(box)}"),
        (all(n == 1 for n in steps), f"steps {list(steps)}"),
        (
            bool(box) and 0 < box[0] * item <= 128 and box[0] * item % 16 == 0,
            f"a box of {list(box)} for a swizzle of 128 bytes",
        ),
    ]
    _refuse(_CALL, checks)
    return record(address, sizes, strides, box, item)


# What corners and steps of windows may be, by count of dims; a step is at most 8.
_CORNER_BITS = {3: 16, 4: 8, 5: 5}


def encoded_windows(
    kind: int, address: int, sizes: Sequence[int], strides: Sequence[int], corners: Corners, box: tuple[int, int], modes: Modes
) -> bytes:  # fmt: skip
    """The record of a tensor map of windows; the steps are those of all dims."""
    item, dims, (channels, pixels) = _ITEM_BYTES.get(kind, 0), len(sizes), box
    call = "cuTensorMapEncodeIm2col"
    bits, steps = _CORNER_BITS.get(dims, 0), corners.steps
    described = bits > 0 and len(strides) == dims - 1 and len(steps) == dims
    described = described and len(corners.lower) == len(corners.upper) == dims - 2
    _refuse(call, [(described, f"{dims} dims with corners {corners}")])
    inner = Corners(corners.lower, corners.upper, steps[1:-1])
    half = 1 << max(bits - 1, 0)
    checks = [
        *modes.checks(kind),
        (address % 16 == 0, f"the address {address:#x} is no multiple of 16"),
        (all(0 < n <= 1 << 32 for n in sizes), f"sizes {list(sizes)}"),
        (all(s % 16 == 0 and 0 < s < 1 << 40 for s in strides), f"strides of {list(strides)} bytes"),
        (all(-half <= n < half for n in (*corners.lower, *corners.upper)), f"corners {corners}"),
        (all(0 < n <= 8 for n in steps) and steps[:1] == steps[-1:] == [1], f"steps {steps}"),
        (all(n > 0 for n in inner.counts(sizes[1:-1])), f"corners {corners} around nothing"),
        (0 < channels <= 256 and 0 < pixels <= 1024, f"a box of {box}"),
        (channels * item <= 128 and channels * item % 16 == 0, f"a box of {box} for a swizzle of 128 bytes"),
    ]
    _refuse(call, checks)
    return window_record(address, sizes, strides, box, inner, item)


def _refuse(call: str, checks: Sequence[tuple[bool, str]]) -> None:
    for good, what in checks:
        if not good:
            fail("CUDA_ERROR_INVALID_VALUE", call, what)
