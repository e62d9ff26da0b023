"""Meanings of whole numbers in graphs: dtypes, layouts, memory formats."""

from __future__ import annotations

from functools import cache
from typing import Any

import rushlight

__all__ = ["TENSOR_WORDS", "dtype_of", "format_of", "layout_of", "number_of"]

_DTYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 8: "complex32", 9: "complex64", 10: "complex128",
    11: "bool", 12: "qint8", 13: "quint8", 14: "qint32", 15: "bfloat16", 16: "quint4x2", 17: "quint2x4", 23: "float8_e5m2", 24: "float8_e4m3fn",
    25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz", 27: "uint16", 28: "uint32", 29: "uint64",
}  # fmt: skip
_LAYOUTS = {
    0: "strided",
    1: "sparse_coo",
    2: "sparse_csr",
    4: "sparse_csc",
    5: "sparse_bsr",
    6: "sparse_bsc",
    7: "jagged",
}
_FORMATS = {0: "contiguous_format", 1: "preserve_format", 2: "channels_last", 3: "channels_last_3d"}


# The words of graphs for tensors of a dtype.
TENSOR_WORDS: dict[str, Any] = {
    "Float": rushlight.float32, "Double": rushlight.float64, "Half": rushlight.float16, "BFloat16": rushlight.bfloat16, "Long": rushlight.int64,
    "Int": rushlight.int32, "Short": rushlight.int16, "Char": rushlight.int8, "Byte": rushlight.uint8, "Bool": rushlight.bool,
    "ComplexFloat": rushlight.complex64, "ComplexDouble": rushlight.complex128,
}  # fmt: skip


def _found(table: dict[int, str], number: Any, what: str) -> Any:
    if number is None or not isinstance(number, int):
        return number
    name = table.get(number)
    if name is None:
        raise RuntimeError(f"{number} is no {what}")
    return getattr(rushlight, name)


def dtype_of(number: Any) -> Any:
    """The dtype that a number of a graph means; None for None."""
    return _found(_DTYPES, number, "dtype")


def layout_of(number: Any) -> Any:
    """The layout that a number of a graph means; None for None."""
    return _found(_LAYOUTS, number, "layout")


def format_of(number: Any) -> Any:
    """The memory format that a number of a graph means; None for None."""
    return _found(_FORMATS, number, "memory format")


@cache
def _numbers() -> dict[Any, int]:
    tables = (_DTYPES, _LAYOUTS, _FORMATS)
    return {getattr(rushlight, n): k for t in tables for k, n in t.items() if hasattr(rushlight, n)}


def number_of(value: Any) -> int:
    """The number of a dtype, a layout or a memory format."""
    return _numbers()[value]
