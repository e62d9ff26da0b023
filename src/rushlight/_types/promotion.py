"""PyTorch's type promotion.

Categories are ordered bool < integer < float < complex.  Tensors with dimensions decide first, then 0-dim tensors, then
Python numbers; a lower-ranked group changes the result only where its category is higher
(https://pytorch.org/docs/stable/tensor_attributes.html, "torch.dtype").
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from rushlight._types.dtype import (
    BFLOAT16,
    BOOL,
    COMPLEX32,
    COMPLEX64,
    COMPLEX128,
    FLOAT8,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    UINT16,
    UINT32,
    UINT64,
    DType,
)

__all__ = [
    "can_cast",
    "category",
    "default_dtype",
    "join",
    "number_dtype",
    "promote",
    "result_type",
    "set_default_dtype",
]

_CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3, "x": 1, "q": 1}
_SIGNED_FOR = {1: INT16, 2: INT32, 4: INT64}
_WIDE = frozenset((UINT16, UINT32, UINT64))
FLOATS = frozenset((FLOAT16, BFLOAT16, FLOAT32, FLOAT64))
_DEFAULT = [FLOAT32]


def default_dtype() -> DType:
    """The floating point dtype that Python floats get."""
    return _DEFAULT[0]


def set_default_dtype(dtype: DType) -> None:
    """Set the floating point dtype that Python floats get."""
    if not isinstance(dtype, DType):
        raise TypeError(f"invalid dtype object: expected a dtype, got {type(dtype).__name__}")
    if not dtype.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {dtype!r}")
    if dtype not in FLOATS:
        raise TypeError(f"{dtype!r} is only stored: it cannot be the dtype in which numbers are computed")
    _DEFAULT[0] = dtype


def category(dtype: DType) -> int:
    """0 bool, 1 integer, 2 float, 3 complex."""
    return _CATEGORY[dtype.kind]


@cache
def promote(type1: DType, type2: DType) -> DType:
    """The smallest dtype that both convert to, by PyTorch's table (`torch.promote_types`).

    uint16, uint32 and uint64 promote with floats only; any other mix raises RuntimeError, as in PyTorch.
    """
    a, b = type1, type2
    if a is b:
        return a
    for each in (a, b):
        if each in FLOAT8 or each.kind in "xq":
            return _promote_stored(a, b)
    if (a in _WIDE or b in _WIDE) and FLOATS.isdisjoint((a, b)):
        raise RuntimeError(
            f"Promotion for uint16, uint32, uint64 types is not supported, attempted to promote {a.scalar} and {b.scalar}"
        )
    if a is BOOL:
        return b
    if b is BOOL:
        return a
    ca, cb = category(a), category(b)
    if ca == cb == 1:
        return _promote_integers(a, b)
    if ca < cb:
        a, b, ca, cb = b, a, cb, ca
    if ca == 3:
        if cb == 3 or b is FLOAT64:
            return COMPLEX128 if COMPLEX128 in (a, b) or b is FLOAT64 else COMPLEX64
        return COMPLEX64 if a is COMPLEX32 and b in (FLOAT32, BFLOAT16) else a
    if cb == 1:
        return a
    if FLOAT64 in (a, b):
        return FLOAT64
    return FLOAT32


def _promote_stored(a: DType, b: DType) -> DType:
    """Storage-only dtypes promote with nothing, except that unsigned bits give way to floats."""
    names = f"{a.scalar} and {b.scalar}"
    if a in FLOAT8 or b in FLOAT8:
        raise RuntimeError(f"Promotion for Float8 Types is not supported, attempted to promote {names}")
    if "q" in (a.kind, b.kind):
        raise RuntimeError(
            f"quantized numbers are not promoted: their scales belong to the tensors; attempted to promote {names}"
        )
    if all(d.name.startswith("uint") or d in FLOATS for d in (a, b)) and not FLOATS.isdisjoint((a, b)):
        return a if a in FLOATS else b
    raise RuntimeError(f"Promotion is not supported between {names}")


def _promote_integers(a: DType, b: DType) -> DType:
    if a.kind == b.kind:
        return a if a.itemsize >= b.itemsize else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    return signed if signed.itemsize > unsigned.itemsize else _SIGNED_FOR[unsigned.itemsize]


def join(a: DType, b: DType) -> DType:
    """`promote`, and the array API standard's rule for uint16, uint32 and uint64 with other integers.

    PyTorch refuses these pairs, and nearly all arithmetic on these dtypes.  Operators here compute in the smallest
    dtype that holds both operands' values.
    """
    if a is b or _WIDE.isdisjoint((a, b)) or not (a.kind in "bui" and b.kind in "bui"):
        return promote(a, b)
    if BOOL in (a, b):
        return b if a is BOOL else a
    if UINT64 in (a, b) and a.is_signed != b.is_signed:
        return promote(a, b)  # raises: no integer dtype holds the values of both
    return _promote_integers(a, b)


def number_dtype(value: object) -> DType:
    """The dtype of a Python number on its own: bool, int64, the default float, the default complex."""
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return INT64
    if isinstance(value, float):
        return default_dtype()
    if isinstance(value, complex):
        return default_dtype().to_complex()
    raise TypeError(f"expected a number, got {type(value).__name__}")


def result_type(
    tensors: list[tuple[DType, int]], numbers: list[DType], together: Callable[[DType, DType], DType] = promote
) -> DType:
    """The dtype of an operation over tensors (dtype, number of dims) and Python numbers (`number_dtype` of each).

    `together` combines two dtypes of one rank: `promote` by PyTorch's table, `join` in operators.
    """
    groups: list[DType | None] = [None, None, None]
    for dtype, ndim in tensors:
        slot = 0 if ndim else 1
        known = groups[slot]
        groups[slot] = dtype if known is None else together(known, dtype)
    for dtype in numbers:
        known = groups[2]
        groups[2] = dtype if known is None else together(known, dtype)
    result: DType | None = None
    for group in groups:
        if group is None:
            continue
        if result is None:
            result = group
        elif category(group) > category(result):
            result = _lift(result, group, together)
    if result is None:
        raise TypeError("result_type needs at least one tensor or number")
    return result


def _lift(strong: DType, weak: DType, together: Callable[[DType, DType], DType]) -> DType:
    """`weak` has the higher category; a complex result keeps the strong float's precision."""
    if strong is BOOL:
        return together(strong, weak)
    return strong.to_complex() if weak.is_complex and strong.is_floating_point else weak


def can_cast(from_: DType, to: DType) -> bool:
    """Whether an in-place or `out=` result of dtype `from_` may be written to `to` (`torch.can_cast`)."""
    source, target = from_, to
    if source.is_complex and not target.is_complex:
        return False
    if source.is_floating_point and target.kind in "bui":
        return False
    return not (source is not BOOL and target is BOOL)
