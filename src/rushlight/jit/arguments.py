"""From the arguments of a call in Python to the values that a graph takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight.jit.frontend.inference import NoType, type_of
from rushlight.jit.ir import types as T
from rushlight.jit.ir.schemas import NO_DEFAULT, Schema
from rushlight.jit.ir.types import Type
from rushlight.jit.runtime.constants import number_of
from rushlight.jit.runtime.containers import ScriptDict, ScriptList
from rushlight.jit.runtime.objects import enum_class, is_instance, tuple_class, type_of_object

__all__ = ["Binder", "ArgumentMismatch", "converter"]


class ArgumentMismatch(TypeError):
    """A Python value that is not of a type."""


def _number(kind: type, accepted: tuple[type, ...]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if type(value) is kind:
            return value
        if isinstance(value, bool) and kind is not bool and bool not in accepted:
            raise ArgumentMismatch
        if isinstance(value, accepted):
            return kind(value)
        if kind is int and hasattr(value, "__index__") and not isinstance(value, (bool, rushlight.Tensor)):
            return int(value)
        if kind is float and hasattr(value, "__float__") and not isinstance(value, (str, rushlight.Tensor)):
            return float(value)
        raise ArgumentMismatch

    return convert


def _int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, (rushlight.dtype, rushlight.layout, rushlight.memory_format)):
        return number_of(value)
    if isinstance(value, bool) or not hasattr(value, "__index__") or isinstance(value, rushlight.Tensor):
        raise ArgumentMismatch
    return int(value)


def _tensor(value: Any) -> Any:
    if isinstance(value, rushlight.Tensor):
        return value
    raise ArgumentMismatch


def _instance(*classes: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, classes):
            return value
        raise ArgumentMismatch

    return convert


def _device(value: Any) -> Any:
    if isinstance(value, (str, rushlight.device)):
        return rushlight.device(value)
    raise ArgumentMismatch


def _none(value: Any) -> None:
    if value is not None:
        raise ArgumentMismatch


def _scalar(value: Any) -> Any:
    if isinstance(value, (int, float, complex)):
        return value
    raise ArgumentMismatch


def converter(kind: Type) -> Callable[[Any], Any]:
    """Converter of Python values to a type; it raises ArgumentMismatch for others."""
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return simple
    if kind.name == "Any":
        return lambda value: value
    if kind.name == "Optional":
        inner = converter(kind.inner[0])
        return lambda value: None if value is None else inner(value)
    if kind.name == "Union":
        return _member(kind)
    if kind.name == "List":
        return _list_converter(converter(kind.inner[0]), kind)
    if kind.name == "Dict":
        return _dict_converter(converter(kind.inner[0]), converter(kind.inner[1]), kind)
    if isinstance(kind, T.NamedTupleType):
        return _named_converter(kind)
    if kind.name == "Tuple":
        return _tuple_converter([converter(t) for t in kind.inner])
    if isinstance(kind, T.EnumType):
        return _instance(enum_class(kind))
    if isinstance(kind, T.ClassType):
        return _class_converter(kind)
    return lambda value: value


_SIMPLE: dict[Type, Callable[[Any], Any]] = {
    T.TENSOR: _tensor, T.INT: _int, T.FLOAT: _number(float, (int,)), T.BOOL: _instance(bool),
    T.STR: _instance(str), T.COMPLEX: _number(complex, (int, float)),
    T.NONE: _none, T.NUMBER: _scalar, T.DEVICE: _device, T.GENERATOR: _instance(rushlight.Generator),
}  # fmt: skip


def _member(kind: Type) -> Callable[[Any], Any]:
    """A value that has one of the types: nothing is converted."""

    def convert(value: Any) -> Any:
        if is_instance(value, [kind]):
            return value
        raise ArgumentMismatch

    return convert


def _list_converter(inner: Callable[[Any], Any], kind: Type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, ScriptList) and value.element_type == kind:
            return value  # the function changes the caller's list
        if isinstance(value, (str, dict, rushlight.Tensor)) or not hasattr(value, "__iter__"):
            raise ArgumentMismatch
        return [inner(v) for v in value]

    return convert


def _dict_converter(key: Callable[[Any], Any], held: Callable[[Any], Any], kind: Type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, ScriptDict) and value.item_type == kind:
            return value  # the function changes the caller's dict
        if not isinstance(value, dict):
            raise ArgumentMismatch
        return {key(k): held(v) for k, v in value.items()}

    return convert


def _tuple_converter(inner: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, (tuple, list)) or len(value) != len(inner):
            raise ArgumentMismatch
        return tuple([f(v) for f, v in zip(inner, value, strict=True)])

    return convert


def _named_converter(kind: T.NamedTupleType) -> Callable[[Any], Any]:
    inner, make = [converter(t) for t in kind.inner], tuple_class(kind)

    def convert(value: Any) -> Any:
        if not isinstance(value, tuple) or len(value) != len(inner):
            raise ArgumentMismatch
        return make(*[f(v) for f, v in zip(inner, value, strict=True)])

    return convert


def _class_converter(kind: T.ClassType) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if type_of_object(value) is kind or kind.python is not None and isinstance(value, kind.python):
            return value
        raise ArgumentMismatch

    return convert


class Binder:
    """Binds the arguments of calls to a schema."""

    def __init__(self, schema: Schema, name: str, skip: int = 0) -> None:
        self.schema, self.name, self.skip = schema, name, skip
        self.arguments = schema.arguments[skip:]
        self.converters = [converter(a.type) for a in self.arguments]

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The values of all arguments; RuntimeError where they do not fit."""
        if len(args) == len(self.converters) and not kwargs:
            try:
                return [f(v) for f, v in zip(self.converters, args, strict=True)]
            except ArgumentMismatch:
                pass
        if len(args) > len(self.arguments):
            raise RuntimeError(
                f"{self.name}() expected at most {len(self.arguments) + self.skip} argument(s) but received {len(args) + self.skip} argument(s). Declaration: {self.declaration()}"
            )
        values, left = [], dict(kwargs)
        for place, argument in enumerate(self.arguments):
            if place < len(args):
                if argument.name in left:
                    raise RuntimeError(
                        f"{self.name}() got multiple values for argument '{argument.name}'. Declaration: {self.declaration()}"
                    )
                value = args[place]
            elif argument.name in left:
                value = left.pop(argument.name)
            elif argument.default is not NO_DEFAULT:
                held = argument.default
                values.append(held.copy() if isinstance(held, (list, dict)) else held)
                continue
            else:
                raise RuntimeError(
                    f"{self.name}() is missing value for argument '{argument.name}'. Declaration: {self.declaration()}"
                )
            try:
                values.append(self.converters[place](value))
            except ArgumentMismatch:
                raise RuntimeError(self._wrong(argument, value, place)) from None
        if left:
            raise RuntimeError(
                f"{self.name}() Unknown keyword argument '{next(iter(left))}' for operator '{self.name}'. Schema: {self.declaration()}"
            )
        return values

    def declaration(self) -> str:
        """The schema as errors show it."""
        return str(self.schema)

    def _wrong(self, argument: Any, value: Any, place: int) -> str:
        spoken = "Tensor" if argument.type == T.TENSOR else argument.type.annotation
        error = f"Unable to cast Python instance of type {type(value)} to {spoken}"
        if argument.type.name == "Union":
            error = f"Expected a member of {spoken} but instead found type {_type_name(value)}"
        return (
            f"{self.name}() Expected a value of type '{spoken}' for argument '{argument.name}' but instead found type '{type(value).__name__}'.\n"
            f"Position: {place + self.skip}\nValue: {str(value)[:200]}\nDeclaration: {self.declaration()}\nCast error details: {error}"
        )


def _type_name(value: Any) -> str:
    try:
        return type_of(value).annotation
    except NoType:
        return type(value).__name__
