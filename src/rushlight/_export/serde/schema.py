"""The numbers and words of the JSON schema of exported programs, and the error for what does not fit it."""

from __future__ import annotations

from typing import Any

import rushlight

__all__ = [
    "DTYPES", "LAYOUTS", "MEMORY_FORMATS", "SCHEMA_VERSION", "TREESPEC_VERSION", "SchemaError", "number_of",
]  # fmt: skip

SCHEMA_VERSION = (8, 20)
TREESPEC_VERSION = 1

_DTYPE_WORDS = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64", 9: "complex32", 10: "complex64",
    11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16", 29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz", 33: "float8_e8m0fnu", 34: "uint32", 35: "uint64",
}  # fmt: skip
DTYPES: dict[int, Any] = {k: getattr(rushlight, w) for k, w in _DTYPE_WORDS.items() if hasattr(rushlight, w)}
_LAYOUT_WORDS = {1: "sparse_coo", 2: "sparse_csr", 3: "sparse_csc", 4: "sparse_bsr", 5: "sparse_bsc", 7: "strided"}
LAYOUTS: dict[int, Any] = {k: getattr(rushlight, w) for k, w in _LAYOUT_WORDS.items() if hasattr(rushlight, w)}
_FORMAT_WORDS = {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}
MEMORY_FORMATS: dict[int, Any] = {k: getattr(rushlight, w) for k, w in _FORMAT_WORDS.items()}


class SchemaError(RuntimeError):
    """A file is no exported program, or one that says what cannot be."""


def number_of(table: dict[int, Any], value: Any) -> int:
    """The number of a dtype, layout or memory format; SchemaError for one that has none."""
    for number, each in table.items():
        if each is value or each == value:
            return number
    raise SchemaError(f"{value} has no number in the schema of exported programs")
