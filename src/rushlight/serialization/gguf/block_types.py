"""The types of numbers in GGUF files: their codes, their sizes, and the tables that some of them look into."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from struct import Struct
from typing import Any, NamedTuple

import rushlight
from rushlight._interface.base import LazyModule
from rushlight._interface.operators import BLOCK_TYPES

__all__ = ["ALIGNMENT", "CODES", "LIST", "MAGIC", "NUMBERS", "PLAIN", "TEXT", "BlockType", "block_type_of", "table_of"]

library: Any = LazyModule("gguf", extra="gguf")

MAGIC = b"GGUF"
ALIGNMENT = 32  # of tensors, where the metadata says nothing

# Codes of the types of metadata: numbers as struct names them; texts and lists are apart.
NUMBERS = {
    0: Struct("<B"), 1: Struct("<b"), 2: Struct("<H"), 3: Struct("<h"), 4: Struct("<I"), 5: Struct("<i"), 6: Struct("<f"), 7: Struct("<?"),
    10: Struct("<Q"), 11: Struct("<q"), 12: Struct("<d"),
}  # fmt: skip
TEXT, LIST = 8, 9

# The format's code of each type of tensor.
CODES: Mapping[str, int] = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q8_1": 9, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14,
    "Q8_K": 15, "IQ2_XXS": 16, "IQ2_XS": 17, "IQ3_XXS": 18, "IQ1_S": 19, "IQ4_NL": 20, "IQ3_S": 21, "IQ2_S": 22, "IQ4_XS": 23, "I8": 24, "I16": 25,
    "I32": 26, "I64": 27, "F64": 28, "IQ1_M": 29, "BF16": 30, "TQ1_0": 34, "TQ2_0": 35, "MXFP4": 39, "NVFP4": 40,
}  # fmt: skip

# Types that are dtypes.
PLAIN: Mapping[str, str] = {
    "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
}  # fmt: skip

# Types that only sums in progress have: no file of a model holds them.
_INNER = {"Q8_1": (32, 40), "Q8_K": (256, 292)}

# Sixteen numbers each: of IQ4_NL's uneven steps, and of four bits in floats (sign, two bits of exponent, one of mantissa), doubled.
_UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
_SIXTEEN = {"IQ4_NL": _UNEVEN, "IQ4_XS": _UNEVEN, "MXFP4": _E2M1, "NVFP4": _E2M1}


class BlockType(NamedTuple):
    """A type: `numbers` lie in `nbytes` bytes; `dtype` where they are elements of one, else None."""

    name: str
    numbers: int
    nbytes: int
    dtype: Any


_NAMES = {code: name for name, code in CODES.items()}


def block_type_of(code: int) -> BlockType | None:
    """The type of a code; None where the format has none."""
    name = _NAMES.get(code)
    if name is None:
        return None
    if name in PLAIN:
        dtype = getattr(rushlight, PLAIN[name])
        return BlockType(name, 1, dtype.itemsize, dtype)
    numbers, nbytes = _INNER[name] if name in _INNER else BLOCK_TYPES[name][:2]
    return BlockType(name, numbers, nbytes, None)


@cache
def table_of(name: str) -> Any:
    """The float32 table that a type looks its numbers up in; None where it needs none.

    The tables of vectors (IQ1 to IQ3) are those of the package `gguf`, which must be installed for them.
    """
    shape = BLOCK_TYPES[name].table
    if shape is None:
        return None
    if name in _SIXTEEN:
        return rushlight.tensor(_SIXTEEN[name], dtype=rushlight.float32)
    decoder = getattr(library.quants, name)
    decoder.init_grid()
    return rushlight.from_numpy(decoder.grid.reshape(shape).copy()).float()
