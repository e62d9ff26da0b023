"""Graphs of TorchScript and the types of their values, under the names of PyTorch's native module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.jit.ir.graph import Block, Graph, Node, Value
from rushlight.jit.ir.types import ClassType, EnumType, InterfaceType, Type

__all__ = [
    "AnyType", "Block", "BoolType", "ClassType", "ComplexType", "DeviceObjType", "DictType", "EnumType", "FloatType", "Graph", "IntType", "InterfaceType",
    "ListType", "Node", "NoneType", "NumberType", "OptionalType", "StringType", "TensorType", "TupleType", "Type", "Value",
]  # fmt: skip


class _Named(type):
    """A class of PyTorch's for types that have one name here: for `isinstance`, and to make such a type."""

    word: str

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Type) and (
            value.name == cls.word or cls.word == "Tuple" and value.kind() == "TupleType"
        )

    def get(cls) -> Type:
        """The type."""
        return Type(cls.word)

    def __call__(cls, inner: Type | Sequence[Type], *more: Type) -> Any:
        return Type(cls.word, [inner, *more] if isinstance(inner, Type) else inner)


def _named(name: str, word: str) -> Any:
    return _Named(name, (), {"word": word, "__module__": "torch._C", "__doc__": f"The type `{word}`."})


AnyType, BoolType, ComplexType, DeviceObjType = (
    _named("AnyType", "Any"),
    _named("BoolType", "bool"),
    _named("ComplexType", "complex"),
    _named("DeviceObjType", "Device"),
)
FloatType, IntType, NoneType, NumberType = (
    _named("FloatType", "float"),
    _named("IntType", "int"),
    _named("NoneType", "NoneType"),
    _named("NumberType", "Scalar"),
)
StringType, TensorType = _named("StringType", "str"), _named("TensorType", "Tensor")
DictType, ListType, OptionalType, TupleType = (
    _named("DictType", "Dict"),
    _named("ListType", "List"),
    _named("OptionalType", "Optional"),
    _named("TupleType", "Tuple"),
)
