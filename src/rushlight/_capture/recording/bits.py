"""The bits of a row of elements, read as another dtype."""

from __future__ import annotations

from typing import Any

from rushlight._prims import build, prim
from rushlight._types.dtype import BY_NAME, DType

__all__ = ["bits_as"]


def bits_as(flat: Any, dtype: DType) -> Any | None:
    """Elements [n] as elements of `dtype`: the same bytes, the lowest first.  None where they do not fill a whole number of
    elements.
    """
    held = flat.dtype
    if held is dtype:
        return flat
    if (flat.shape[0] * held.itemsize) % dtype.itemsize:
        return None
    if held.is_complex:
        return bits_as(_real_parts(flat), dtype)
    if dtype.is_complex:
        return _complex(bits_as(flat, dtype.to_real()))
    found = prim.bitcast(flat, dtype=_integers(held.itemsize))
    if dtype.itemsize < held.itemsize:
        found = _parts(found, dtype.itemsize)
    elif dtype.itemsize > held.itemsize:
        found = _joined(found, dtype.itemsize)
    return prim.bitcast(found, dtype=dtype)


def _integers(itemsize: int) -> DType:
    return BY_NAME[f"int{8 * itemsize}"]


def _parts(ints: Any, itemsize: int) -> Any:
    """Integers cut into smaller ones."""
    count, ratio = ints.shape[0], ints.dtype.itemsize // itemsize
    parts = []
    for k in range(ratio):
        shifted = prim.shift_right(ints, build.full_like(ints, 8 * itemsize * k)) if k else ints
        parts.append(build.reshape(build.convert(shifted, _integers(itemsize)), (count, 1)))  # the rest is cut off
    return build.reshape(prim.cat(*parts, dim=1), (count * ratio,))


def _joined(ints: Any, itemsize: int) -> Any:
    """Neighbouring integers joined to greater ones."""
    ratio, bits = itemsize // ints.dtype.itemsize, 8 * ints.dtype.itemsize
    count, wide = ints.shape[0] // ratio, _integers(itemsize)
    rows, found = build.reshape(ints, (count, ratio)), None
    for k in range(ratio):
        part = prim.slice(rows, starts=(0, k), stops=(count, k + 1), steps=(1, 1))
        part = build.convert(build.reshape(part, (count,)), wide)
        if k < ratio - 1:  # the sign fills the bits above
            part = prim.bitwise_and(part, build.full_like(part, (1 << bits) - 1))
        part = prim.shift_left(part, build.full_like(part, bits * k)) if k else part
        found = part if found is None else prim.bitwise_or(found, part)
    return found


def _real_parts(flat: Any) -> Any:
    """Complex numbers [n] as their parts [2 n]."""
    pairs = [build.reshape(part, (flat.shape[0], 1)) for part in (prim.real(flat), prim.imag(flat))]
    return build.reshape(prim.cat(*pairs, dim=1), (2 * flat.shape[0],))


def _complex(flat: Any) -> Any:
    """Parts [2 n] as complex numbers [n]."""
    count = flat.shape[0] // 2
    pairs = build.reshape(flat, (count, 2))
    halves = [prim.slice(pairs, starts=(0, k), stops=(count, k + 1), steps=(1, 1)) for k in (0, 1)]
    return prim.complex(*(build.reshape(half, (count,)) for half in halves))
