"""Types of Python values."""

from __future__ import annotations

import enum
from typing import Any

import rushlight
from rushlight._awaits import _Await
from rushlight.jit.ir import types as T
from rushlight.jit.ir.types import Type
from rushlight.jit.serialization.packed import packed_type

__all__ = ["NoType", "type_of"]


class NoType(TypeError):
    """A Python value that has no type in scripts."""


def type_of(value: Any, classes: Any = None) -> Type:
    """The type of a Python value; NoType for one that has none.  `classes` knows the types of objects."""
    if value is None:
        return T.NONE
    if isinstance(value, rushlight.Tensor):
        return T.TENSOR
    for python, kind in ((bool, T.BOOL), (int, T.INT), (float, T.FLOAT), (complex, T.COMPLEX), (str, T.STR)):
        if isinstance(value, python) and not isinstance(value, enum.Enum):
            return kind
    if isinstance(value, (rushlight.dtype, rushlight.layout, rushlight.memory_format)):
        return T.INT
    if isinstance(value, rushlight.device):
        return T.DEVICE
    if isinstance(value, rushlight.Generator):
        return T.GENERATOR
    if classes is not None:
        found = classes(value)
        if found is not None:
            return found
    if isinstance(value, tuple):
        return T.tuple_of(*[type_of(v, classes) for v in value])
    if isinstance(value, list):
        if not value:
            raise NoType("List trace inputs must have elements")
        return T.list_of(_joined([type_of(v, classes) for v in value]))
    if isinstance(value, dict):
        if not value:
            raise NoType("Dictionary inputs must have entries")
        keys = _joined([type_of(v, classes) for v in value])
        return T.dict_of(keys, _joined([type_of(v, classes) for v in value.values()]))
    if isinstance(value, rushlight.futures.Future):
        return T.future_of(T.ANY)
    if isinstance(value, _Await):
        return T.await_of(T.ANY)
    packed = packed_type(value)
    if packed is not None:
        return packed
    raise NoType(
        f"Only tensors, numbers, strings, devices and (possibly nested) tuples, lists and dicts of them have types, not {type(value).__name__}"
    )


def _joined(kinds: list[Type]) -> Type:
    found = kinds[0]
    for kind in kinds[1:]:
        joined = T.unify(found, kind)
        if joined is None:
            raise NoType(
                f"elements of one list or dict must have one type: {found.annotation} and {kind.annotation} were found"
            )
        found = joined
    return found
