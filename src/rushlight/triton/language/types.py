"""The element types of the language, by their names there."""

from __future__ import annotations

from .._semantics.dtypes import BY_TRITON_NAME, block_type, dtype, pointer_type

__all__ = [
    "bfloat16",
    "block_type",
    "const",
    "dtype",
    "float16",
    "float32",
    "float64",
    "float8e4b15",
    "float8e4b8",
    "float8e4nv",
    "float8e5",
    "float8e5b16",
    "int1",
    "int16",
    "int32",
    "int64",
    "int8",
    "pi32_t",
    "pointer_type",
    "tuple_type",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "void",
]

int1 = BY_TRITON_NAME["int1"]
int8 = BY_TRITON_NAME["int8"]
int16 = BY_TRITON_NAME["int16"]
int32 = BY_TRITON_NAME["int32"]
int64 = BY_TRITON_NAME["int64"]
uint8 = BY_TRITON_NAME["uint8"]
uint16 = BY_TRITON_NAME["uint16"]
uint32 = BY_TRITON_NAME["uint32"]
uint64 = BY_TRITON_NAME["uint64"]
float16 = BY_TRITON_NAME["fp16"]
bfloat16 = BY_TRITON_NAME["bf16"]
float32 = BY_TRITON_NAME["fp32"]
float64 = BY_TRITON_NAME["fp64"]
float8e4nv = BY_TRITON_NAME["fp8e4nv"]
float8e4b8 = BY_TRITON_NAME["fp8e4b8"]
float8e4b15 = BY_TRITON_NAME["fp8e4b15"]
float8e5 = BY_TRITON_NAME["fp8e5"]
float8e5b16 = BY_TRITON_NAME["fp8e5b16"]
void = BY_TRITON_NAME["void"]
pi32_t = pointer_type(int32)
tuple_type = tuple  # tuples of values are Python's


class const:
    """The annotation of a parameter that points to what a kernel only reads."""
