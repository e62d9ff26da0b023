"""Conversions between element types: Cast, CastLike, BitCast."""

from __future__ import annotations

import math
from typing import Any

import rushlight as torch
from rushlight.onnx.importing.table import Value, operator
from rushlight.onnx.importing.values import NARROW, STRING, Narrow, dtype_of, element_type, numpy, onnx, tensor

__all__ = ["converted", "narrowed"]

_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)
_E4M3_OVERFLOW = 464.0  # half way from the largest number of float8_e4m3fn, 448, to the next
_NAMES = {torch.float16: "float16", torch.float64: "float64"}


def converted(x: Any, to: int, saturate: bool = True, round_mode: str = "up") -> Any:
    """A value with elements of another type, by its number in TensorProto.DataType."""
    if to == STRING:
        return _as_texts(x)
    if isinstance(x, numpy.ndarray):
        x = _from_texts(x, to)
    if isinstance(x, Narrow):
        x = x.data
    if to in NARROW:
        return narrowed(x, to)
    dtype = dtype_of(to)
    if x.dtype == dtype:
        return x
    if dtype in _FLOAT8:
        return _as_float8(x, dtype, saturate)
    if dtype == torch.float8_e8m0fnu:
        return _as_exponents(x, saturate, round_mode)
    return x.to(dtype)


def narrowed(x: Any, number: int) -> Narrow:
    """Elements of 2 or 4 bits: the lowest bits of integers, the nearest number of float4."""
    name, holder = NARROW[number]
    if name == "float4_e2m1fn":
        return Narrow(_as_float4(x.to(torch.float32)), number)
    bits = 4 if name.endswith("4") else 2
    x = x if not x.is_floating_point() else torch.trunc(x.to(torch.float32))
    low = x.to(torch.int32) & (2**bits - 1)
    if not name.startswith("u"):
        low = torch.where(low >= 2 ** (bits - 1), low - 2**bits, low)
    return Narrow(low.to(holder), number)


def _as_float4(x: Any) -> Any:
    """Round to the nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6, ties to the even mantissa; larger ones become 6."""
    size = torch.clamp(torch.abs(x), max=6.0)
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    rounded = torch.copysign(torch.round(size / step) * step, x)
    return torch.where(torch.isnan(x), torch.full_like(x, -0.0), rounded)


def _as_float8(x: Any, dtype: Any, saturate: bool) -> Any:
    wide = x if x.dtype in (torch.float16, torch.bfloat16, torch.float32) else x.to(torch.float32)
    if saturate:
        limit = torch.finfo(dtype).max
        return torch.clamp(wide.to(torch.float32), -limit, limit).to(dtype)
    wide = wide.to(torch.float32)
    if dtype == torch.float8_e4m3fn:
        wide = torch.where(torch.abs(wide) > _E4M3_OVERFLOW, math.nan, wide)
    return wide.to(dtype)


def _as_exponents(x: Any, saturate: bool, round_mode: str) -> Any:
    """The exponent of float32 alone, rounded by the mantissa."""
    bits = x.to(torch.float32).view(torch.int32)
    exponent, mantissa = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    if round_mode == "nearest":
        half = (mantissa & 0x400000) != 0
        up = half & (((mantissa & 0x3FFFFF) != 0) | (exponent > 0))
    elif round_mode == "up":
        up = mantissa != 0
    elif round_mode == "down":
        up = torch.zeros_like(mantissa, dtype=torch.bool)
    else:
        raise ValueError(f"round_mode is 'up', 'down' or 'nearest', not {round_mode!r}")
    if saturate:
        up = up & (exponent != 0xFE)
    rounded = torch.where(exponent == 0xFF, exponent, exponent + up.to(torch.int32))
    return rounded.to(torch.uint8).view(torch.float8_e8m0fnu)


# ***** strings *****


def _as_texts(x: Any) -> Any:
    if isinstance(x, numpy.ndarray):
        return x
    x = tensor(x.data if isinstance(x, Narrow) else x)
    name = _NAMES.get(x.dtype, "float32")
    plain = x.to(torch.float32).numpy() if x.is_floating_point() and x.dtype not in _NAMES else x.numpy()
    texts = plain.astype(name).astype(str) if x.is_floating_point() else plain.astype(str)
    return texts.astype(object)


def _from_texts(x: Any, to: int) -> Any:
    if to in NARROW or dtype_of(to).is_floating_point:
        return torch.tensor([float(text) for text in x.ravel()], dtype=torch.float64).reshape(x.shape)
    return torch.tensor([int(float(text)) for text in x.ravel()], dtype=torch.int64).reshape(x.shape)


# ***** operators *****


@operator("Cast")
def cast_by_name(x: Value, *, to: str) -> Value:
    """Operator sets below 6 name the type."""
    return converted(tensor(x), onnx.TensorProto.DataType.Value(to))


@operator("Cast", since=6)
def cast(x: Value, *, to: int, saturate: int = 1, round_mode: str = "up") -> Value:
    return converted(tensor(x), to, bool(saturate), round_mode)


@operator("CastLike", since=15)
def cast_like(x: Value, like: Value, *, saturate: int = 1, round_mode: str = "up") -> Value:
    return converted(tensor(x), element_type(like), bool(saturate), round_mode)


@operator("BitCast", since=26)
def bit_cast(x: Value, *, to: int) -> Value:
    """The same bits as another type of the same width."""
    if isinstance(x, numpy.ndarray) or to == STRING:
        raise TypeError("strings have no bits to cast")
    if isinstance(x, Narrow) or to in NARROW:
        return _bit_cast_narrow(x, to)
    x, dtype = tensor(x), dtype_of(to)
    if x.dtype.itemsize != dtype.itemsize:
        raise TypeError(f"{x.dtype} and {dtype} differ in width")
    return x.view(dtype)


_FLOAT4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _bit_cast_narrow(x: Any, to: int) -> Narrow:
    names = NARROW[x.number][0] if isinstance(x, Narrow) else "", NARROW[to][0] if to in NARROW else ""
    if not all(names) or ("2" in names[0].split("_")[0]) != ("2" in names[1].split("_")[0]):
        raise TypeError(f"{x.dtype if not names[0] else names[0]} and type {to} differ in width")
    data = x.data
    if names[0].startswith("float4"):
        steps = torch.tensor(_FLOAT4)
        code = (torch.abs(data)[..., None] == steps).to(torch.int32).argmax(-1)
        data = (code + 8 * torch.signbit(data).to(code.dtype)).to(torch.int32)
    if names[1].startswith("float4"):
        code = data.to(torch.int64) & 15
        return Narrow(torch.tensor((*_FLOAT4, *[-one for one in _FLOAT4]))[code], to)
    return narrowed(data, to)
