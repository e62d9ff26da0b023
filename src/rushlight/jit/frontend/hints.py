"""Types from annotations: objects of `typing`, classes, texts."""

from __future__ import annotations

import ast
import builtins
import enum
import types
import typing
from dataclasses import InitVar
from typing import Any

import rushlight
from rushlight._awaits import _Await
from rushlight.jit.frontend.errors import CompileError
from rushlight.jit.ir import types as T
from rushlight.jit.ir.graph import Location
from rushlight.jit.ir.types import Type

__all__ = ["evaluate", "is_final", "type_of_annotation"]


def evaluate(node: ast.expr, find: Any, at: Location | None) -> Any:
    """The Python object that an annotation's syntax stands for: names, attributes, subscripts and `|`; nothing is called."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            try:
                return evaluate(ast.parse(node.value, mode="eval").body, find, at)
            except SyntaxError:
                raise CompileError(f"{node.value!r} is no type", at) from None
        return node.value
    if isinstance(node, ast.Name):
        found, value = find(node.id)
        if not found:
            if hasattr(builtins, node.id):
                return getattr(builtins, node.id)
            raise CompileError(f"Unknown type name '{node.id}'", at)
        return value
    if isinstance(node, ast.Attribute):
        base = evaluate(node.value, find, at)
        if not hasattr(base, node.attr):
            raise CompileError(f"Unknown type name '{ast.unparse(node)}'", at)
        return getattr(base, node.attr)
    if isinstance(node, ast.Subscript):
        base = evaluate(node.value, find, at)
        return _Alias(base, _parts(node.slice, find, at))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _Alias(typing.Union, [evaluate(node.left, find, at), evaluate(node.right, find, at)])
    if isinstance(node, (ast.Tuple, ast.List)):
        return [evaluate(n, find, at) for n in node.elts]
    raise CompileError(f"{ast.unparse(node)} is no type", at)


def _parts(node: ast.expr, find: Any, at: Location | None) -> list[Any]:
    parts = list(node.elts) if isinstance(node, ast.Tuple) else [node]
    return [() if isinstance(p, ast.Tuple) and not p.elts else evaluate(p, find, at) for p in parts]


class _Alias:
    """A generic type with its arguments."""

    def __init__(self, origin: Any, args: list[Any]) -> None:
        self.origin, self.args = origin, args


def _split(held: Any) -> tuple[Any, list[Any]]:
    if isinstance(held, _Alias):
        inner = typing.get_origin(held.origin)
        return (inner if inner is not None and not typing.get_args(held.origin) else held.origin), held.args
    return typing.get_origin(held), list(typing.get_args(held))


def is_final(held: Any) -> bool:
    """Whether an annotation is `Final`."""
    origin, _ = _split(held)
    return (
        held is typing.Final
        or origin is typing.Final
        or isinstance(held, str)
        and held.replace("torch.jit.", "").startswith("Final")
    )


_SIMPLE: dict[Any, Type] = {
    int: T.INT, float: T.FLOAT, bool: T.BOOL, str: T.STR, complex: T.COMPLEX, None: T.NONE, type(None): T.NONE, typing.Any: T.ANY,
}  # fmt: skip


def type_of_annotation(held: Any, classes: Any, at: Location | None = None) -> Type:
    """The type that an annotation means; CompileError for none.  `classes` compiles classes."""
    try:
        if held in _SIMPLE:
            return _SIMPLE[held]
    except TypeError:
        pass
    if isinstance(held, Type):
        return held
    if isinstance(held, InitVar):
        return type_of_annotation(held.type, classes, at)
    if isinstance(held, typing.ForwardRef):
        return type_of_annotation(evaluate(ast.parse(held.__forward_arg__, mode="eval").body, _known, at), classes, at)
    if isinstance(held, type) and not typing.get_args(held):
        found = _class(held, classes)
        if found is not None:
            return found
    origin, args = _split(held)
    if origin is None:
        origin, args = held, []
    made = _generic(origin, args, classes, at)
    if made is None:
        raise CompileError(f"Unknown type annotation: '{getattr(held, '__name__', held)}'", at)
    return made


def _known(name: str) -> tuple[bool, Any]:
    """The names that an annotation in quotes inside another may use: those of `typing`, and `torch`."""
    if name == "torch":
        return True, rushlight
    held = rushlight.Tensor if name == "Tensor" else getattr(typing, name, None)
    return held is not None, held


def _class(held: type, classes: Any) -> Type | None:
    if issubclass(held, rushlight.Tensor):
        return T.TENSOR
    for python, kind in ((rushlight.device, T.DEVICE), (rushlight.dtype, T.INT), (rushlight.layout, T.INT), (rushlight.memory_format, T.INT),
                         (rushlight.Generator, T.GENERATOR), (rushlight.Size, T.list_of(T.INT))):  # fmt: skip
        if held is python:
            return kind
    if held in (list, tuple, dict):
        return None
    if issubclass(held, (rushlight.futures.Future, _Await)):
        return None
    return classes.of_class(held)


def _generic(origin: Any, args: list[Any], classes: Any, at: Location | None) -> Type | None:
    def inner(place: int) -> Type:
        return type_of_annotation(args[place], classes, at)

    if origin in (list, typing.List):  # noqa: UP006
        if not args:
            raise CompileError(
                "Attempted to use List without a contained type. Please add a contained type, e.g. List[int]", at
            )
        return T.list_of(inner(0))
    if origin in (dict, typing.Dict):  # noqa: UP006
        if len(args) != 2:
            raise CompileError(
                "Attempted to use Dict without contained types. Please add contained type, e.g. Dict[int, int]", at
            )
        return T.dict_of(inner(0), inner(1))
    if origin in (tuple, typing.Tuple):  # noqa: UP006
        if not args:
            raise CompileError(
                "Attempted to use Tuple without a contained type. Please add a contained type, e.g. Tuple[int]", at
            )
        if args == [()]:
            return T.tuple_of()
        return T.tuple_of(*[inner(i) for i in range(len(args))])
    if origin is typing.Optional:
        return T.optional(inner(0))
    if origin in (typing.Union, types.UnionType):
        return T.union([inner(i) for i in range(len(args))])
    if origin is typing.Final:
        return inner(0) if args else None
    if isinstance(origin, type) and issubclass(origin, rushlight.futures.Future):
        return T.future_of(inner(0) if args else T.ANY)
    if isinstance(origin, type) and issubclass(origin, _Await):
        return T.await_of(inner(0) if args else T.ANY)
    if type(origin).__name__ == "_BroadcastingList":
        return T.list_of(inner(0))
    return None


def is_enum(held: Any) -> bool:
    """Whether a class is an enumeration."""
    return isinstance(held, type) and issubclass(held, enum.Enum)
