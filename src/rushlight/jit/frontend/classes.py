"""Classes in scripts: named tuples, enumerations, interfaces, and classes with methods."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import types
import typing
from typing import Any

import rushlight
from rushlight.jit.frontend import hints as written
from rushlight.jit.frontend.dataclass_methods import is_generated, written_methods
from rushlight.jit.frontend.errors import CompileError, FrontendError, Source, own_place
from rushlight.jit.frontend.inference import NoType, type_of
from rushlight.jit.frontend.python import PythonNames, Unit, compile_syntax, qualified_name, signature
from rushlight.jit.frontend.syntax import syntax_of, syntax_of_text
from rushlight.jit.ir import types as T
from rushlight.jit.ir.function import Function
from rushlight.jit.ir.schemas import Argument, Schema
from rushlight.jit.ir.types import Type

__all__ = ["compile_class", "compile_interface", "compile_whole"]


def compile_class(held: type, unit: Unit) -> Type | None:
    """The type of a class; None for a class that scripts cannot have."""
    if held in unit.classes:
        return unit.classes[held]
    if issubclass(held, tuple) and hasattr(held, "_fields"):
        return _named_tuple(held, unit)
    if issubclass(held, enum.Enum):
        return _enumeration(held, unit)
    if getattr(held, "_is_script_interface", False):
        return compile_interface(held, unit)
    if issubclass(held, (rushlight.nn.Module, BaseException)) or held.__module__ in (
        "builtins",
        "typing",
        "collections",
    ):
        return None
    if own_place(held):
        return None
    return _plain(held, unit)


def compile_whole(held: type, unit: Unit) -> Type | None:
    """The type of a class that only a value names, all of whose methods can be compiled; None for another."""
    try:
        return compile_class(held, unit)
    except (CompileError, FrontendError, NoType, TypeError):
        return None


def _find_in(held: type) -> Any:
    import sys

    space = vars(sys.modules.get(held.__module__, types.ModuleType("")))
    return lambda name: (name in space, space.get(name))


def _kind(annotation: Any, held: type, unit: Unit) -> Type:
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        node = ast.parse(annotation, mode="eval").body
        annotation = written.evaluate(node, _find_in(held), None)
    return written.type_of_annotation(annotation, unit)


def _named_tuple(held: Any, unit: Unit) -> Type:
    hints = inspect.get_annotations(held)
    kinds = [_kind(hints[f], held, unit) if f in hints else T.TENSOR for f in held._fields]
    defaults = [held._field_defaults[f] for f in held._fields if f in held._field_defaults]
    made = T.named_tuple(qualified_name(held, unit), held._fields, kinds, defaults)
    made.python = held
    unit.classes[held] = made
    return made


def _enumeration(held: Any, unit: Unit) -> Type:
    kinds = {type_of(m.value) for m in held}
    if len(kinds) != 1:
        raise CompileError(f"Enum class {held} must have values of one type")
    made = T.EnumType(qualified_name(held, unit), kinds.pop(), {m.name: m for m in held}, held)
    unit.classes[held] = made
    return made


def compile_interface(held: Any, unit: Unit) -> Type:
    """The type of a class that was marked as an interface."""
    made = T.InterfaceType(qualified_name(held, unit), issubclass(held, rushlight.nn.Module))
    made.python = held
    unit.classes[held] = made
    for name, function in vars(held).items():
        if not isinstance(function, types.FunctionType) or name.startswith("__") and name != "__call__":
            continue
        node, source = syntax_of(function)
        arguments, returns = signature(node, source, PythonNames(function, unit), made)
        schema = Schema(name, "", [Argument("self", made), *arguments], [Argument("", returns or T.TENSOR)])
        made.methods[name] = Function(f"{made.name}.{name}", schema=schema)
    return made


def _methods(held: type) -> dict[str, tuple[ast.FunctionDef, Source, Any]]:
    """The syntax of a class's methods."""
    found: dict[str, tuple[ast.FunctionDef, Source, Any]] = {}
    for cls in reversed(held.__mro__[:-1]):
        if cls.__module__ in ("builtins", "typing", "abc", "contextlib"):
            continue
        for name, function in vars(cls).items():
            if isinstance(function, staticmethod):
                continue  # compiled as a function where it is called
            if isinstance(function, classmethod):
                function = function.__func__  # an object of the class stands for `cls`
            function = inspect.unwrap(function) if callable(function) else function
            if dataclasses.is_dataclass(cls) and is_generated(function):
                if name in (texts := written_methods(cls)):
                    found[name] = (*syntax_of_text(texts[name], function), function)
            elif isinstance(function, types.FunctionType):
                node, source = syntax_of(function)
                found[name] = (node, source, function)
    return found


def _annotations(held: Any) -> dict[str, Any]:
    """The annotated attributes of objects of a class."""
    if dataclasses.is_dataclass(held):
        return {field.name: field.type for field in dataclasses.fields(held)}
    return inspect.get_annotations(held)


def _plain(held: type, unit: Unit) -> Type:
    try:
        methods = _methods(held)
    except OSError as error:
        raise CompileError(f"Can't get source of {held}: {error}") from None
    made = T.ClassType(qualified_name(held, unit))
    made.python = held
    unit.classes[held] = made
    held._script_type = made  # type: ignore[attr-defined]
    for name, annotation in _annotations(held).items():
        if written.is_final(annotation):
            continue
        made.attributes[name] = _kind(annotation, held, unit)
    for name, value in vars(held).items():
        if isinstance(value, property) and value.fget is not None:
            getter = f"__{name}_getter"
            made.methods[getter] = _method(value.fget, made, unit, getter)
            setter = None
            if value.fset is not None:
                setter = f"__{name}_setter"
                made.methods[setter] = _method(value.fset, made, unit, setter)
            made.properties[name] = (getter, setter)

    def define(name: str) -> Function | None:
        if name not in methods:
            return None
        node, source, function = methods[name]
        if "_torchscript_modifier" in vars(function) and not function._torchscript_modifier.startswith("export"):
            return None
        function_ = _method(function, made, unit, name, (node, source))
        made.methods[name] = function_
        return function_

    made.define = define
    made.context = (unit, list(methods))
    try:
        for name in sorted(methods, key=lambda n: n != "__init__"):  # the constructor tells the attributes
            found = made.find_method(name)
            if found is not None:
                found.ensure_defined()
        for getter, _ in made.properties.values():
            made.methods[getter].ensure_defined()
    except Exception:
        del unit.classes[held], held._script_type  # type: ignore[attr-defined]
        raise
    return made


def _method(
    function: Any, owner: T.ClassType, unit: Unit, name: str, syntax: tuple[ast.FunctionDef, Source] | None = None
) -> Function:
    def define(made: Function) -> None:
        node, source = syntax or syntax_of(function)
        compile_syntax(made, node, source, PythonNames(inspect.unwrap(function), unit, owner), owner)

    made = Function(f"{owner.name}.{name}", define)
    made.python, made.owner = function, owner
    return made
