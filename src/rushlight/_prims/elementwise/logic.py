"""Comparisons, bit operations, selection, and conversion of dtypes."""

from __future__ import annotations

from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import lift, pointwise, require_equal
from rushlight._prims.numbers import holder, round_to_bfloat16, stored
from rushlight._prims.record import Aval, Primitive, Rule, not_differentiable, prim
from rushlight._prims.samples import Samples, any_dtype, floats, integers, pointwise_samples
from rushlight._types.dtype import BFLOAT16, BOOL, BY_NAME, FLOAT8, DType
from rushlight._types.float8 import values

__all__: list[str] = []

# ***** comparisons *****

ORDERED = ("float64", "float32", "int64", "uint8", "bool")


def _comparison(name: str, doc: str, reference: Rule, kinds: str = "buif", dtypes: tuple[str, ...] = ORDERED) -> None:
    def samples() -> Samples:
        yield from pointwise_samples(dtypes, 2)()
        x = floats((6,))
        yield [x, np.where(integers((6,), dtype="bool"), x, x + 1)], {}

    pointwise(
        name,
        doc,
        kinds=kinds,
        reference=reference,
        samples=samples,
        result=lambda dtype: BOOL,
        rules=not_differentiable("its result is bool"),
        family="comparison",
    )


_comparison("eq", "a == b; False where either is NaN.", lambda a, b: a == b, "buifc", (*ORDERED, "complex128"))
_comparison("ne", "a != b; True where either is NaN.", lambda a, b: a != b, "buifc", (*ORDERED, "complex128"))
_comparison("lt", "a < b.", lambda a, b: a < b)
_comparison("le", "a <= b.", lambda a, b: a <= b)

# ***** bits *****

BITS = not_differentiable("it is for integers and bool")

for _name, _doc, _reference in (
    ("bitwise_and", "Bits set in both; `and` for bool.", lambda a, b: np.bitwise_and(a, b)),
    ("bitwise_or", "Bits set in either; `or` for bool.", lambda a, b: np.bitwise_or(a, b)),
    (
        "bitwise_xor",
        "Bits set in one of the two; `!=` for bool.  With a constant of all bits it is `not`.",
        lambda a, b: np.bitwise_xor(a, b),
    ),
):
    pointwise(
        _name,
        _doc,
        kinds="bui",
        reference=_reference,
        rules=BITS,
        samples=pointwise_samples(("bool", "int64", "uint8"), 2),
    )


def _shift_samples() -> Samples:
    for dtype, bits in (("int64", 64), ("int32", 32), ("uint8", 8)):
        yield [integers((17,), 1, dtype=dtype), integers((17,), 2, 0, bits + 3, dtype=dtype)], {}


def _shift_left(a: Any, b: Any) -> Any:
    bits = a.dtype.itemsize * 8
    outside = (b < 0) | (b >= bits)
    return np.where(outside, 0, np.left_shift(a, np.where(outside, 0, b))).astype(a.dtype)


def _shift_right(a: Any, b: Any) -> Any:
    bits = a.dtype.itemsize * 8
    outside = (b < 0) | (b >= bits)
    return np.right_shift(a, np.where(outside, bits - 1 if a.dtype.kind == "i" else 0, b)).astype(a.dtype) * ~(
        outside & (a.dtype.kind == "u")
    )


pointwise(
    "shift_left", "a << b; 0 where b is negative or not less than the number of bits.", kinds="ui", reference=_shift_left,
    rules=BITS, samples=_shift_samples,
)  # fmt: skip
pointwise(
    "shift_right", "a >> b, keeping the sign; every bit is the sign where b is out of range.", kinds="ui",
    reference=_shift_right, rules=BITS, samples=_shift_samples,
)  # fmt: skip

# ***** choosing *****


def _select_spec(condition: Any, a: Any, b: Any) -> Aval:
    if condition.dtype is not BOOL:
        raise TypeError(f"prim.select takes a bool condition, got {condition.dtype.name}")
    if condition.shape != a.shape:
        raise ValueError(f"prim.select takes operands of one shape, got {list(condition.shape)} and {list(a.shape)}")
    require_equal("select", a, b)
    return a.shape, a.dtype


def _select_vjp(ct: Any, out: Any, condition: Any, a: Any, b: Any) -> tuple[Any, ...]:
    zero = build.zeros_like(ct)
    return None, prim.select(condition, ct, zero), prim.select(condition, zero, ct)


def _select_jvp(tangents: Any, out: Any, condition: Any, a: Any, b: Any) -> Any:
    _, ta, tb = tangents
    if ta is None and tb is None:
        return None
    return prim.select(condition, *(build.zeros_like(out) if t is None else t for t in (ta, tb)))


def _select_samples() -> Samples:
    for dtype in ("float64", "float32", "complex128", "int64", "bool"):
        for shape in ((3, 5), (), (0, 2)):
            yield [integers(shape, dtype="bool"), any_dtype(shape, dtype, 1), any_dtype(shape, dtype, 2)], {}


Primitive(
    "select", "`a` where the condition holds, else `b`.", family="pointwise", spec=_select_spec, lower=("scalar", "select"),
    reference=lambda condition, a, b: np.where(condition, a, b), vjp=_select_vjp, jvp=_select_jvp, samples=_select_samples,
    batch=lambda batched, *xs: prim.select(*lift(batched, xs)),
)  # fmt: skip

# ***** another dtype *****


def _convert_back(ct: Any, dtype: DType) -> Any:
    """A cotangent, or tangent, as another dtype; nothing flows through integers."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return None
    return build.convert(ct, dtype)


def _convert_spec(x: Any, dtype: DType) -> Aval:
    for each in (x.dtype, dtype):
        if each.kind in "xq" and dtype is not x.dtype:
            raise NotImplementedError(f"\"copy_\" not implemented for '{each.scalar}'")
    return x.shape, dtype


def _convert_samples() -> Samples:
    for source in ("float64", "float32", "int64", "uint8", "bool", "complex128"):
        for target in (
            "float32",
            "float64",
            "float16",
            "bfloat16",
            "int32",
            "int64",
            "bool",
            "complex64",
            "complex128",
        ):
            if source == "complex128" and target in ("int32", "int64"):
                continue
            yield [any_dtype((3, 5), source)], {"dtype": BY_NAME[target]}


def _convert_vjp(ct: Any, out: Any, x: Any, dtype: DType) -> tuple[Any]:
    return (_convert_back(ct, x.dtype),)


Primitive(
    "convert", "The same numbers in another dtype: rounded to nearest, to integers toward zero, to bool as `!= 0`; complex to "
    "real drops the imaginary part.",
    family="pointwise", spec=_convert_spec, lower=("scalar", "convert"), reference=stored,
    vjp=_convert_vjp, jvp=lambda tangents, out, x, dtype: _convert_back(tangents[0], dtype),
    batch=lambda batched, x, dtype: prim.convert(x, dtype=dtype), samples=_convert_samples,
)  # fmt: skip


def _bitcast_spec(x: Any, dtype: DType) -> Aval:
    if x.dtype.itemsize != dtype.itemsize:
        raise TypeError(
            f"prim.bitcast keeps the size: {x.dtype.name} has {x.dtype.itemsize} bytes, {dtype.name} {dtype.itemsize}"
        )
    return x.shape, dtype


def _bitcast(x: Any, dtype: DType) -> Any:
    if str(x.dtype) == "float32" and dtype.itemsize == 1:
        raise NotImplementedError("the reference has no bits of float8, which it holds as float32")
    if dtype in FLOAT8:
        return np.array(values(dtype.name), np.float32)[x.view(np.uint8)]
    if x.dtype.itemsize != dtype.itemsize:  # bfloat16 stored as float32
        x = (round_to_bfloat16(x).view(np.uint32) >> 16).astype(np.uint16)
    if dtype is BFLOAT16:
        return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.ascontiguousarray(x).view(holder(dtype)).reshape(x.shape)


def _bitcast_samples() -> Samples:
    for source, target in (
        ("float32", "int32"),
        ("int32", "float32"),
        ("float64", "int64"),
        ("uint8", "int8"),
        ("int16", "bfloat16"),
    ):
        yield [any_dtype((3, 5), source)], {"dtype": BY_NAME[target]}


Primitive(
    "bitcast", "The same bits read as another dtype of the same size.", family="pointwise", spec=_bitcast_spec,
    lower=("scalar", "bitcast"), reference=_bitcast, vjp=not_differentiable("it reads bits"), jvp=not_differentiable("it reads bits"),
    batch=lambda batched, x, dtype: prim.bitcast(x, dtype=dtype), samples=_bitcast_samples,
)  # fmt: skip
