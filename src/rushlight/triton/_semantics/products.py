"""Products of matrices: `dot`, and `dot_scaled` of narrow numbers with scales."""

from __future__ import annotations

from typing import Any

from .ambient import builder, builtin, compilation
from .arithmetic import cast, where
from .dtypes import BY_TRITON_NAME, dtype
from .mathematics import exp2
from .promotion import broadcast_to_shape
from .shapes import expand_dims, interleave, permute, reshape
from .values import constant, make, tensor

__all__ = ["dot", "dot_scaled"]

_FLOAT16, _BFLOAT16, _FLOAT32, _FLOAT64, _INT32 = (BY_TRITON_NAME[n] for n in ("fp16", "bf16", "fp32", "fp64", "int32"))
_PRECISIONS = {"ieee": "ieee", "tf32": "tf32", "tf32x3": "tf32x3", "bf16x3": "tf32x3", "bf16x6": "ieee"}


def _precision(given: str | None, allow_tf32: bool | None) -> str:
    """Format that float32 operands may be rounded to.  Targets without units of TF32 multiply them as they are."""
    if given is not None and allow_tf32 is not None:
        raise ValueError("Only one of input_precision and allow_tf32 can be specified")
    if given is None:
        given = "ieee" if allow_tf32 is False else "tf32"
    if given.lower() not in _PRECISIONS:
        raise ValueError(f"input_precision must be one of {tuple(_PRECISIONS)}. Got {given}")
    return _PRECISIONS[given.lower()] if compilation().rounds_float32 else "ieee"


def _result_type(element: dtype, out: dtype) -> dtype:
    if element.is_int():
        return _INT32
    if element.is_fp64():
        return _FLOAT64
    if out.is_bf16():
        raise ValueError(
            "out_dtype=bfloat16 is unsupported. Please use out_dtype=float32/float16 and cast with `.to(tl.bfloat16)`"
        )
    return _FLOAT16 if out.is_fp16() and not (element.is_fp32() or element.is_bf16()) else _FLOAT32


@builtin
def dot(
    input: tensor,
    other: tensor,
    acc: tensor | None = None,
    input_precision: str | None = None,
    allow_tf32: bool | None = None,
    max_num_imprecise_acc: Any = None,
    out_dtype: Any = _FLOAT32,
) -> tensor:
    """The matrix product of two blocks of two dims (three: a batch), plus `acc`.

    Products of float16, bfloat16, float8 and float32 are added in float32 (float16 by `out_dtype`), of int8 in int32.
    """
    a, b = input, other
    if not (isinstance(a, tensor) and isinstance(b, tensor) and a.shape and b.shape):
        raise ValueError(f"Both inputs must be blocks, and are {a} and {b}")
    if len(a.shape) != len(b.shape) or len(a.shape) not in (2, 3):
        raise ValueError(f"Both inputs must be either 2D or 3D; (lhs: {list(a.shape)} vs rhs: {list(b.shape)})")
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise ValueError(
            f"First input shape ({list(a.shape)}) and second input shape {list(b.shape)} are not compatible for matmul "
            f"(second index of first shape ({a.shape[-1]}) must be equal to first index of second shape ({b.shape[-2]})"
        )
    if a.dtype != b.dtype and not (a.dtype.is_fp8() and b.dtype.is_fp8()):
        raise ValueError(f"Both operands must be same dtype. Got {a.dtype} and {b.dtype}")
    result = _result_type(a.dtype, acc.dtype if acc is not None else out_dtype)
    shape = (*a.shape[:-1], b.shape[-1])
    if acc is None:
        acc = constant(0, result, shape)
    elif acc.dtype != result or acc.shape != shape:
        raise ValueError(f"acc is {acc.type}, and the product {result} {list(shape)}")
    return _product(a, b, acc, _precision(input_precision, allow_tf32))


def _product(a: tensor, b: tensor, acc: tensor, precision: str) -> tensor:
    """The operation; float16 sums are made in float32 and rounded once."""
    if acc.dtype.is_fp16():
        wide = make(builder().dot(a.handle, b.handle, cast(acc, _FLOAT32).handle, precision), _FLOAT32)
        return cast(wide, _FLOAT16)
    return make(builder().dot(a.handle, b.handle, acc.handle, precision), acc.dtype)


# ***** narrow numbers with scales *****

_FORMATS = ("e2m1", "e4m3", "e5m2", "bf16", "fp16")


def _fp4(code: tensor) -> tensor:
    """Codes 0 ... 15 of a float of four bits as float32."""
    sign, exponent, mantissa = code >> 3, (code >> 1) & 3, code & 1
    small = cast(mantissa, _FLOAT32) * 0.5
    large = exp2(cast(exponent, _FLOAT32) - 1) * (1 + 0.5 * cast(mantissa, _FLOAT32))
    size = where(exponent == 0, small, large)
    return where(sign == 0, size, -size)


def _unpacked(x: tensor, format: str, axis: int) -> tensor:
    """Elements as float32; two floats of four bits in a byte lie along `axis`."""
    if format == "e2m1":
        swapped = [1, 0] if axis == 0 else [0, 1]
        codes = cast(permute(x, swapped), _INT32) & 0xFF
        return permute(interleave(_fp4(codes & 15), _fp4(codes >> 4)), swapped)
    kinds = {"e4m3": BY_TRITON_NAME["fp8e4nv"], "e5m2": BY_TRITON_NAME["fp8e5"], "bf16": _BFLOAT16, "fp16": _FLOAT16}
    kind = kinds[format]
    return cast(x if x.dtype == kind else cast(x, kind, bitcast=True), _FLOAT32)


def _scaled(x: tensor, scale: tensor | None, axis: int) -> tensor:
    """x times 2^(scale - 127) for each group along `axis`; rows of `scale` belong to the other dim."""
    if scale is None:
        return x
    factor = exp2(cast(cast(scale, _INT32) & 0xFF, _FLOAT32) - 127.0) if scale.dtype.is_int() else cast(scale, _FLOAT32)
    rows, groups = factor.shape
    size = x.shape[axis] // groups
    spread = reshape(broadcast_to_shape(expand_dims(factor, 2), (rows, groups, size)), [rows, groups * size])
    return x * (spread if axis == 1 else permute(spread, [1, 0]))


@builtin
def dot_scaled(
    lhs: tensor,
    lhs_scale: tensor | None,
    lhs_format: str,
    rhs: tensor,
    rhs_scale: tensor | None,
    rhs_format: str,
    acc: tensor | None = None,
    fast_math: bool = False,
    lhs_k_pack: bool = True,
    rhs_k_pack: bool = True,
    out_dtype: Any = _FLOAT32,
) -> tensor:
    """The product of matrices in narrow formats (e2m1 packed by two, e4m3, e5m2, bf16, fp16), with a scale of eight bits
    (e8m0) for each group of elements along the inner dim.  Computed in float32.  Pairs of e2m1 lie along the inner dim, or
    along rows of `lhs` (columns of `rhs`) where `lhs_k_pack` (`rhs_k_pack`) is false.
    """
    for format in (lhs_format, rhs_format):
        if format not in _FORMATS:
            raise ValueError(f"Invalid float format: {format}.")
    for name, packed, format in (("lhs_k_pack", lhs_k_pack, lhs_format), ("rhs_k_pack", rhs_k_pack, rhs_format)):
        if not packed and format != "e2m1":
            raise ValueError(f"{name} says how pairs of e2m1 lie; the format is {format}")
    a = _scaled(_unpacked(lhs, lhs_format, 1 if lhs_k_pack else 0), lhs_scale, 1)
    b = _scaled(_unpacked(rhs, rhs_format, 0 if rhs_k_pack else 1), rhs_scale, 0)
    return dot(a, b, acc, input_precision="ieee", out_dtype=out_dtype)
