"""Kernels whose result size depends on the data: counting, listing and gathering what a mask selects."""

from __future__ import annotations

from typing import Any

from rushlight._backends.native import i64, load, native, store, u8, u16, u32, u64

__all__ = ["compactors", "count_true", "list_true", "unravel"]


@native("i64(ptr, i64)")
def count_true(mask, n):  # type: ignore[no-untyped-def]
    """How many of n bytes are not zero."""
    total = 0
    for i in range(n):
        total += i64(mask.u8[i] != 0)
    return total


@native("void(ptr, i64, ptr)")
def list_true(mask, n, out):  # type: ignore[no-untyped-def]
    """Places of the bytes that are not zero; `out` has room for one more than there are, so that the store needs no branch."""
    k = 0
    for i in range(n):
        out.i64[k] = i
        k += i64(mask.u8[i] != 0)


@native("void(ptr, i64, ptr, i64, ptr)")
def unravel(flat, n, sizes, ndim, out):  # type: ignore[no-untyped-def]
    """Flat places as ndim coordinates each, dim after dim: all of dim 0 come first."""
    for k in range(n):
        rest = flat.i64[k]
        for j in range(ndim):
            d = ndim - 1 - j
            size = sizes.i64[d]
            q = rest // size
            out.i64[d * n + k] = rest - q * size
            rest = q


def _compact(element: Any, name: str) -> Any:
    @native("void(ptr, ptr, i64, ptr)", name=f"compact_{name}")
    def compact(source, mask, n, out):  # type: ignore[no-untyped-def]
        """The elements where the mask is set, one after another; `out` has room for one more."""
        k = 0
        for i in range(n):
            store(element, out, k, load(element, source, i))
            k += i64(mask.u8[i] != 0)

    return compact


compactors = {size: _compact(kind, f"{8 * size}") for size, kind in ((1, u8), (2, u16), (4, u32), (8, u64))}

