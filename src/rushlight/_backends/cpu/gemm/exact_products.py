"""Products of whole numbers, which are exact in any order of summation: tests for kernels and libraries."""

from __future__ import annotations

from array import array
from functools import cache
from struct import pack, unpack
from typing import Any

__all__ = ["LAYOUTS", "PERIOD", "exact_product"]

PERIOD = 13  # period of the matrices' rows and columns: no tile has such a side
LAYOUTS = ("nn", "nt", "tn", "tt")  # A, then B; t: column-major

# type codes of operands and results, as in `array`; bfloat16 is stored in 16 bits
_CODES = {
    "f32": ("f", "f"),
    "f64": ("d", "d"),
    "c64": ("f", "f"),
    "c128": ("d", "d"),
    "amx_bf16": ("H", "f"),
    "amx_i8": ("b", "i"),
}


def exact_product(kind: str, layout: str, periods: tuple[int, int, int]) -> tuple[array[Any], array[Any], array[Any]]:
    """A, B and A @ B, the result row-major; `periods`: rows of A, columns of B and steps, in periods."""
    m, n, k = (PERIOD * s for s in periods)
    code, result = _CODES[kind]
    x, y, product = _blocks(kind[0] == "c")
    want = [[k // PERIOD * v for v in row] for row in product]
    return _lying(x, m, k, layout[0], code), _lying(y, k, n, layout[1], code), _lying(want, m, n, "n", result)


@cache
def _blocks(in_complex: bool) -> tuple[list[list[Any]], list[list[Any]], list[list[Any]]]:
    """One period of both matrices, and of their product."""
    x, y = (
        [[(i * i * a + i * k * b + k * k * c) % 17 - 8 for k in range(PERIOD)] for i in range(PERIOD)]
        for a, b, c in ((1, 3, 5), (2, 7, 4))
    )
    if in_complex:
        x, y = ([[complex(v, 3 * v % 5 - 2) for v in row] for row in block] for block in (x, y))
    columns = list(zip(*y, strict=True))
    return x, y, [[sum(p * q for p, q in zip(row, column, strict=True)) for column in columns] for row in x]


def _lying(block: list[list[Any]], rows: int, columns: int, way: str, code: str) -> array[Any]:
    """A matrix that repeats one block, row-major or ("t") column-major."""
    if way == "t":
        block, rows, columns = [list(row) for row in zip(*block, strict=True)], columns, rows
    numbers = [v for row in block for v in row * (columns // PERIOD)]
    if isinstance(numbers[0], complex):
        numbers = [part for v in numbers for part in (v.real, v.imag)]
    if code == "H":
        numbers = [unpack("<I", pack("<f", v))[0] >> 16 for v in numbers]
    return array(code, numbers) * (rows // PERIOD)
