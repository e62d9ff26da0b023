"""Types of the Triton language: numbers, pointers, blocks.

>>> from rushlight.triton.language import block_type, float32, int1, pointer_type
>>> float32, int1, pointer_type(float32), block_type(float32, [16, 64])
(fp32, int1, pointer<fp32>, <[16, 64], fp32>)
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from rushlight._interface.blocks import BY_NAME, DType, Pointer, Tile

__all__ = [
    "BY_TRITON_NAME",
    "block_type",
    "dtype",
    "dtype_of",
    "number_of",
    "pointed_to",
    "pointer_type",
    "scalar_of",
    "tile_of",
]

# name in Triton, bits, bits of the mantissa, name of our dtype
_FLOATS = (
    ("fp8e4nv", 8, 3, "float8_e4m3fn"),
    ("fp8e4b8", 8, 3, "float8_e4m3fnuz"),
    ("fp8e4b15", 8, 3, None),
    ("fp8e5", 8, 2, "float8_e5m2"),
    ("fp8e5b16", 8, 2, "float8_e5m2fnuz"),
    ("fp16", 16, 10, "float16"),
    ("bf16", 16, 7, "bfloat16"),
    ("fp32", 32, 23, "float32"),
    ("fp64", 64, 52, "float64"),
)
_MANTISSA = {name: bits for name, _, bits, _ in _FLOATS}
_INTEGERS = {"int1": "bool"} | {f"{sign}int{n}": f"{sign}int{n}" for sign in ("", "u") for n in (8, 16, 32, 64)}
_OURS = {name: ours for name, _, _, ours in _FLOATS} | _INTEGERS
_BITS = {name: bits for name, bits, _, _ in _FLOATS} | {name: int(name.lstrip("uint")) for name in _INTEGERS}


class dtype:
    """An element type, compared by name: `fp32`, `int64`, `int1` (a mask), `void`."""

    element_ty: dtype  # of pointers and blocks

    class SIGNEDNESS(enum.Enum):
        SIGNED = 0
        UNSIGNED = 1

    class KIND(enum.Enum):
        BOOLEAN = 0
        INTEGRAL = 1
        FLOATING = 2

    def __init__(self, name: Any) -> None:
        name = getattr(name, "value", name)
        if name not in _BITS and name != "void":
            raise ValueError(f"there is no dtype {name!r} in the Triton language; there are {', '.join(_BITS)}")
        self.name: str = name
        self.primitive_bitwidth = self.itemsize_bits = _BITS.get(name, 0)
        self.itemsize = self.primitive_bitwidth // 8
        self.int_signedness = None
        if name in _INTEGERS:
            signed = name.startswith("int") and name != "int1"
            self.int_signedness = self.SIGNEDNESS.SIGNED if signed else self.SIGNEDNESS.UNSIGNED
        self.int_bitwidth = self.primitive_bitwidth
        if name in _MANTISSA:
            self.fp_mantissa_width = _MANTISSA[name]

    # ***** questions that kernels ask of a type *****

    def is_fp8(self) -> bool:
        return "fp8" in self.name

    def is_fp8e4nv(self) -> bool:
        return self.name == "fp8e4nv"

    def is_fp8e4b8(self) -> bool:
        return self.name == "fp8e4b8"

    def is_fp8e4b15(self) -> bool:
        return self.name == "fp8e4b15"

    def is_fp8e5(self) -> bool:
        return self.name == "fp8e5"

    def is_fp8e5b16(self) -> bool:
        return self.name == "fp8e5b16"

    def is_fp16(self) -> bool:
        return self.name == "fp16"

    def is_bf16(self) -> bool:
        return self.name == "bf16"

    def is_fp32(self) -> bool:
        return self.name == "fp32"

    def is_fp64(self) -> bool:
        return self.name == "fp64"

    def is_int1(self) -> bool:
        return self.name == "int1"

    def is_int8(self) -> bool:
        return self.name == "int8"

    def is_int16(self) -> bool:
        return self.name == "int16"

    def is_int32(self) -> bool:
        return self.name == "int32"

    def is_int64(self) -> bool:
        return self.name == "int64"

    def is_uint8(self) -> bool:
        return self.name == "uint8"

    def is_uint16(self) -> bool:
        return self.name == "uint16"

    def is_uint32(self) -> bool:
        return self.name == "uint32"

    def is_uint64(self) -> bool:
        return self.name == "uint64"

    def is_floating(self) -> bool:
        return self.name in _MANTISSA

    def is_standard_floating(self) -> bool:
        return self.name in ("fp16", "bf16", "fp32", "fp64")

    def is_int_signed(self) -> bool:
        return self.int_signedness is self.SIGNEDNESS.SIGNED

    def is_int_unsigned(self) -> bool:
        return self.int_signedness is self.SIGNEDNESS.UNSIGNED

    def is_int(self) -> bool:
        return self.int_signedness is not None

    def is_bool(self) -> bool:
        return self.is_int1()

    def kind(self) -> dtype.KIND:
        if self.is_int1():
            return self.KIND.BOOLEAN
        return self.KIND.INTEGRAL if self.is_int() else self.KIND.FLOATING

    def get_int_max_value(self) -> int:
        return 2 ** (self.int_bitwidth - self.is_int_signed()) - 1

    def get_int_min_value(self) -> int:
        return -(2 ** (self.int_bitwidth - 1)) if self.is_int_signed() else 0

    @staticmethod
    def is_dtype(name: str) -> bool:
        return name in _BITS or name == "void"

    def is_void(self) -> bool:
        return False

    def is_block(self) -> bool:
        return False

    def is_ptr(self) -> bool:
        return False

    def is_const(self) -> bool:
        return False

    @property
    def scalar(self) -> dtype:
        return self

    def get_block_shapes(self) -> tuple[int, ...]:
        return ()

    def with_element_ty(self, element: dtype) -> dtype:
        return element

    @property
    def cache_key_part(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        other = getattr(other, "value", other)
        return type(other) is dtype and other.name == self.name

    def __hash__(self) -> int:
        return hash((self.name,))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def codegen_name(self) -> str:
        """The name in a signature: `fp32`, `i64`, `u8`."""
        return self.name.replace("uint", "u").replace("int", "i")


class pointer_type(dtype):
    """The address of numbers of a type; `const` pointers are not written through."""

    def __init__(self, element_ty: Any, address_space: int = 1, const: bool = False) -> None:
        element_ty = getattr(element_ty, "value", element_ty)
        if not isinstance(element_ty, dtype):
            raise TypeError(f"element_ty has type `{type(element_ty).__name__}`; expected `dtype`.")
        self.element_ty, self.address_space, self.const = element_ty, address_space, bool(const)
        self.name = f"pointer<{element_ty}>" if not const else f"const_pointer<{element_ty}>"
        self.primitive_bitwidth, self.itemsize, self.int_bitwidth, self.int_signedness = 64, 8, 64, None

    def is_ptr(self) -> bool:
        return True

    def is_const(self) -> bool:
        return self.const

    def __eq__(self, other: object) -> bool:
        other = getattr(other, "value", other)
        return isinstance(other, pointer_type) and (other.element_ty, other.const) == (self.element_ty, self.const)

    def __hash__(self) -> int:
        return hash((self.name,))


class block_type(dtype):
    """An array of numbers or pointers with a static shape."""

    def __init__(self, element_ty: dtype, shape: Sequence[int]) -> None:
        sizes = [getattr(size, "value", size) for size in getattr(shape, "value", shape)]
        if not sizes:
            raise TypeError("0d block_type is forbidden")
        self.element_ty, self.shape = element_ty, tuple(sizes)
        self.numel = 1
        for size in sizes:
            if not isinstance(size, int) or isinstance(size, bool):
                raise TypeError(f"Shape element must have type `constexpr[int]`, got `{type(size).__name__}`")
            if size < 1 or size & (size - 1):
                raise ValueError(
                    f"Shape element {len(self.shape) and sizes.index(size)} must be a power of 2, found {size}"
                )
            self.numel *= size
        if self.numel > 2**20:
            raise ValueError(f"numel ({self.numel}) exceeds triton maximum tensor numel ({2**20})")
        self.name = f"<{list(sizes)}, {element_ty}>"
        self.primitive_bitwidth, self.itemsize = element_ty.primitive_bitwidth, element_ty.itemsize
        self.int_bitwidth, self.int_signedness = element_ty.int_bitwidth, element_ty.int_signedness

    def is_block(self) -> bool:
        return True

    def get_block_shapes(self) -> tuple[int, ...]:
        return self.shape

    @property
    def scalar(self) -> dtype:
        return self.element_ty

    def with_element_ty(self, element: dtype) -> dtype:
        return block_type(element, self.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, block_type) and (other.element_ty, other.shape) == (self.element_ty, self.shape)

    def __hash__(self) -> int:
        return hash((self.name,))


BY_TRITON_NAME: dict[str, dtype] = {name: dtype(name) for name in (*_BITS, "void")}
_BY_OURS = {ours: BY_TRITON_NAME[name] for name, ours in _OURS.items() if ours is not None}


def scalar_of(type: dtype) -> DType | Pointer:
    """The element type of the block IR; pointers to masks are pointers to bytes that hold 0 or 1."""
    if isinstance(type, pointer_type):
        element = scalar_of(type.element_ty)
        if isinstance(element, Pointer):
            element = BY_NAME["int64"]  # an array of addresses
        return Pointer(element)
    ours = _OURS.get(type.name)
    if ours is None:
        raise NotImplementedError(f"rushlight has no dtype for {type}")
    return BY_NAME[ours]


def pointed_to(type: dtype) -> DType:
    """The dtype of the block IR that pointers of a type point to."""
    element = scalar_of(type)
    assert isinstance(element, Pointer)
    return element.to


def number_of(type: dtype) -> DType:
    """The dtype of the block IR of numbers; TypeError for pointers."""
    element = scalar_of(type)
    if isinstance(element, Pointer):
        raise TypeError(f"{type} is no type of numbers")
    return element


def tile_of(type: dtype) -> Tile:
    """The type of the block IR."""
    return Tile(scalar_of(type.scalar), type.get_block_shapes())


def dtype_of(ours: Any) -> dtype:
    """Triton's type for a dtype of rushlight (or of PyTorch), by its name."""
    name = getattr(ours, "name", None) or str(ours).rpartition(".")[2]
    if name not in _BY_OURS:
        raise TypeError(f"kernels take no tensors of {ours}: the Triton language has no such type")
    return _BY_OURS[name]
