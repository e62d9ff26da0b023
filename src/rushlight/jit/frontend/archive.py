"""Names in the code of archives: `torch.add`, `ops.ns.name`, `__torch__....`, `CONSTANTS.c0`, types."""

from __future__ import annotations

import ast
from typing import Any

from rushlight.jit.frontend.builtins import BUILTIN_NAMES
from rushlight.jit.frontend.errors import CompileError
from rushlight.jit.frontend.inference import type_of
from rushlight.jit.frontend.sugared import (
    Builtin,
    Callee,
    ClassValue,
    EnumClass,
    NoneValue,
    Simple,
    Special,
    Sugared,
    TupleClass,
)
from rushlight.jit.ir import types as T
from rushlight.jit.ir.graph import Location
from rushlight.jit.ir.schemas import variants
from rushlight.jit.ir.types import Type

__all__ = ["ArchiveNames", "read_type"]

_TYPES = {
    "Tensor": T.TENSOR, "int": T.INT, "float": T.FLOAT, "bool": T.BOOL, "str": T.STR, "complex": T.COMPLEX, "number": T.NUMBER, "NoneType": T.NONE,
    "None": T.NONE, "Any": T.ANY, "Device": T.DEVICE, "Generator": T.GENERATOR, "Stream": T.STREAM, "AnyList": Type("AnyListType"), "Layout": T.INT,
    "ScalarType": T.INT, "MemoryFormat": T.INT, "Capsule": Type("Capsule"), "Storage": T.STORAGE, "AnyEnumType": Type("AnyEnumType"),
    "AnyClassType": Type("AnyClassType"), "AnyTuple": Type("AnyTupleType"), "AnyListType": Type("AnyListType"), "Scalar": T.NUMBER,
}  # fmt: skip


def dotted_name(node: ast.expr) -> str | None:
    """`a.b.c` of a syntax; None for another."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def read_type(node: ast.expr, find: Any, at: Location | None) -> Type:
    """The type that code of an archive writes; `find` knows classes by qualified names."""
    if isinstance(node, ast.Constant) and node.value is None:
        return T.NONE
    if isinstance(node, ast.Subscript):
        head = dotted_name(node.value) or ""
        inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        kinds = [read_type(n, find, at) for n in inner]
        return _generic(head, kinds, at)
    name = dotted_name(node)
    if name is None:
        raise CompileError("this is no type", at)
    if name in _TYPES:
        return _TYPES[name]
    if name == "t":
        return T.ANY
    found = find(name)
    if found is None:
        raise CompileError(f"Unknown type name '{name}'", at)
    return found


_COUNTS = {"Optional": 1, "List": 1, "Dict": 2, "Future": 1, "RRef": 1, "Await": 1, "Final": 1}


def _generic(head: str, kinds: list[Type], at: Location | None) -> Type:
    if head in _COUNTS and len(kinds) != _COUNTS[head]:
        raise CompileError(f"{head} takes {_COUNTS[head]} types, not {len(kinds)}", at)
    if head == "Optional":
        return T.optional(kinds[0])
    if head == "Final":
        return kinds[0]
    if head == "Tuple":
        return T.tuple_of(*kinds)
    if head == "Union":
        return T.union(kinds)
    if head in _COUNTS:
        return Type(head, kinds)
    raise CompileError(f"Unknown type constructor {head}", at)


class _Path(Sugared):
    """A beginning of a qualified name."""

    kind = "name"

    def __init__(self, names: ArchiveNames, path: str) -> None:
        self.names, self.path = names, path

    def attr(self, e: Any, at: Location, name: str) -> Sugared:
        return self.names.qualified(f"{self.path}.{name}", at)


class _Operators(Sugared):
    """`torch`, `ops.aten`: operators by name."""

    kind = "namespace"

    def __init__(self, space: str, names: ArchiveNames) -> None:
        self.space, self.names = space, names

    def attr(self, e: Any, at: Location, name: str) -> Sugared:
        if not self.space:
            return _Operators(name, self.names)
        if self.space in ("torch", "aten"):
            earlier = self.names.unit.upgraders(name)
            if earlier:
                return _Earlier(name, earlier)
        if self.space == "torch":
            if name in ("jit", "autograd", "nn", "ops"):
                return _Operators("" if name == "ops" else name, self.names)
            if name == "device":
                return Builtin("aten::device")
            return Builtin(f"aten::{name}")
        if self.space in ("jit", "autograd", "nn"):
            return Special(name) if name in ("fork", "wait", "annotate") else Builtin(f"aten::{name}")
        return _Operator(f"{self.space}::{name}")


class _Earlier(Builtin):
    """An operator on tensors that meant something else when the archive was written; that on numbers is today's."""

    def __init__(self, name: str, forms: list[Any]) -> None:
        super().__init__(f"aten::{name}")
        self.forms = forms

    def call(self, e: Any, at: Location, args: Any, kwargs: Any) -> Sugared:
        tensors = self.forms[0].schema.arguments[0].type == T.TENSOR
        if tensors and args and args[0].type in (T.INT, T.FLOAT, T.COMPLEX, T.BOOL, T.NUMBER):
            return super().call(e, at, args, kwargs)
        return Callee(*self.forms).call(e, at, args, kwargs)


class _Operator(Builtin):
    """An operator that has no schema in the tables where the graph says what it gives."""

    def call(self, e: Any, at: Location, args: Any, kwargs: Any) -> Sugared:
        if self.name == "prim::RaiseException":
            message = args[0]
            name = args[1] if len(args) > 1 else e.graph.constant(None, T.NONE)
            e._raise(message, name, at)
            return NoneValue()
        if not variants(self.name):
            raise CompileError(
                f"Unknown builtin op: {self.name}.\nThe archive was made with a library of operators that is not here",
                at,
            )
        return super().call(e, at, args, kwargs)


class _Constants(Sugared):
    kind = "constants"

    def __init__(self, names: ArchiveNames) -> None:
        self.names = names

    def attr(self, e: Any, at: Location, name: str) -> Sugared:
        held = self.names.constants
        if not name.startswith("c") or not name[1:].isdigit() or int(name[1:]) >= len(held):
            raise CompileError(f"there is no constant {name} in the archive", at)
        value = held[int(name[1:])]
        return Simple(e.constant(value, self.names.constant_type(value)))


class ArchiveNames:
    """The names that code of an archive may use."""

    def __init__(self, unit: Any, constants: Any) -> None:
        self.unit, self.constants = unit, constants

    def constant_type(self, value: Any) -> Type:
        """The type of a constant."""
        return type_of(value)

    def value(self, name: str, at: Location | None, e: Any) -> Sugared | None:
        """The meaning of a name."""
        if name == "torch":
            return _Operators("torch", self)
        if name == "ops":
            return _Operators("", self)
        if name == "__torch__":
            return _Path(self, name)
        if name == "CONSTANTS":
            return _Constants(self)
        if name in ("annotate", "unchecked_cast", "uninitialized", "fork"):
            return Special(name)
        if name in ("inf", "nan"):
            return Simple(e.graph.constant(float(name), T.FLOAT))
        if name in ("_", "rangelist", "min", "max", "abs", "id"):
            return Builtin(f"prim::{name}")
        return BUILTIN_NAMES.get(name)

    def qualified(self, name: str, at: Location) -> Sugared:
        """A function or a class by its full name."""
        found = self.unit.find(name)
        if found is None:
            return _Path(self, name)
        if isinstance(found, T.NamedTupleType):
            return TupleClass(found)
        if isinstance(found, T.EnumType):
            return EnumClass(found)
        if isinstance(found, T.ClassType):
            return ClassValue(found)
        if isinstance(found, Type):
            return _Path(self, name)
        return Callee(found)

    def type(self, node: ast.expr, at: Location) -> Type:
        """The type that an expression stands for."""
        return read_type(node, self.unit.find_type, at)

    def container(self, kind: T.ClassType) -> tuple[str, list[str]] | None:
        """Archives pick modules by name."""
        return None

    def static_method(self, kind: T.ClassType, name: str, e: Any) -> Sugared | None:
        """A static method of a class."""
        found = self.unit.find(f"{kind.name}.{name}")
        return Callee(found) if found is not None and not isinstance(found, Type) else None

    def attribute(self, held: Any, name: str, at: Location, e: Any) -> Sugared:
        """Nothing of Python can be reached."""
        raise CompileError(f"unknown name {name}", at)

    def python_value(self, held: Any, at: Location, e: Any) -> Sugared | None:
        """Nothing of Python can be reached."""
        return None

    def parent(self, e: Any, at: Location) -> Sugared | None:
        """There is no super()."""
        return None
