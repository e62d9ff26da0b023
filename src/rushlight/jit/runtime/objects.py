"""Objects of classes that only an archive defines, and the types of values while a graph runs."""

from __future__ import annotations

import collections
import enum
from typing import Any

import rushlight
from rushlight.jit.ir import types as T
from rushlight.jit.ir.types import Type

__all__ = ["PythonMethod", "ScriptObject", "enum_class", "is_instance", "new_object", "tuple_class", "type_of_object"]


class ScriptObject:
    """An object of a class that was compiled: its attributes, and its methods as functions of Python."""

    def __init__(self, kind: T.ClassType) -> None:
        self.__dict__["_type"] = kind

    def __getattr__(self, name: str) -> Any:
        kind = self.__dict__.get("_type")
        if kind is not None and not name.startswith("__"):
            method = kind.find_method(name)
            if method is not None:
                return lambda *args: method.run(self, *args)
            if name in kind.constants:
                return kind.constants[name][1]
        raise AttributeError(f"'{kind.name if kind else '?'}' object has no attribute '{name}'")

    def __repr__(self) -> str:
        return f"<{self.__dict__['_type'].name} object>"


def new_object(kind: T.ClassType) -> Any:
    """An object without attributes."""
    if kind.python is not None and not kind.is_module:
        return object.__new__(kind.python)
    return ScriptObject(kind)


def tuple_class(kind: Any) -> Any:
    """The class of a named tuple's values."""
    if kind.python is None:
        make: Any = collections.namedtuple
        kind.python = make(kind.name.rpartition(".")[2] or "Results", kind.fields, rename=True)
    return kind.python


def enum_class(kind: T.EnumType) -> Any:
    """The class of an enumeration's members."""
    if kind.python is None:
        kind.python = enum.Enum(kind.name.rpartition(".")[2], kind.values)  # type: ignore[misc]
    return kind.python


def type_of_object(value: Any) -> Any:
    """The class type of an object that a graph made or took."""
    held = getattr(value, "__dict__", {}).get("_type")
    return held if held is not None else getattr(type(value), "_script_type", None)


def is_instance(value: Any, kinds: list[Type]) -> bool:
    """Whether a value has one of the types."""
    return any(_has_type(value, kind) for kind in kinds)


_PYTHON = {T.INT: int, T.FLOAT: float, T.BOOL: bool, T.STR: str, T.COMPLEX: complex}


def _has_type(value: Any, kind: Type) -> bool:
    name = kind.name
    if name == "Any":
        return True
    if kind == T.NONE:
        return value is None
    if kind == T.TENSOR:
        return isinstance(value, rushlight.Tensor)
    if kind in _PYTHON:
        return type(value) is _PYTHON[kind]
    if kind == T.NUMBER:
        return type(value) in (int, float, complex)
    if name in ("Optional", "Union"):
        return any(_has_type(value, m) for m in T.members_of(kind))
    if name in ("List", "AnyListType"):
        return isinstance(value, list) and (name != "List" or all(_has_type(v, kind.inner[0]) for v in value))
    if name == "Dict":
        return isinstance(value, dict) and (
            not kind.inner or all(_has_type(k, kind.inner[0]) and _has_type(v, kind.inner[1]) for k, v in value.items())
        )
    if isinstance(kind, T.NamedTupleType):
        return isinstance(value, tuple_class(kind))
    if name in ("Tuple", "AnyTupleType"):
        return isinstance(value, tuple) and (
            name != "Tuple"
            or len(value) == len(kind.inner)
            and all(_has_type(v, k) for v, k in zip(value, kind.inner, strict=True))
        )
    if kind == T.DEVICE:
        return isinstance(value, rushlight.device)
    if isinstance(kind, T.EnumType):
        return isinstance(value, enum_class(kind))
    if isinstance(kind, T.ClassType):
        return type_of_object(value) is kind
    return False


class PythonMethod:
    """A method of the module that a compiled one was made of; of the compiled one where that is not kept."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, owner: Any, *args: Any, **kwargs: Any) -> Any:
        kept = owner.__dict__.get("_python")
        if kept is None:
            return owner._type.raw[self.name](owner, *args, **kwargs)
        return getattr(kept, self.name)(*args, **kwargs)
