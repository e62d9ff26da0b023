"""One call of a function while a kernel is compiled: its names, and where in the source it is."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, Protocol

from rushlight._interface.blocks import BlockBuilder, Value

from .._semantics.constants import constexpr, is_runtime, unwrap
from .._semantics.dtypes import dtype
from .._semantics.values import tensor, to_tensor
from ..compiler.errors import Place

__all__ = ["Frame", "Source", "flatten", "rebuild", "sanitized", "structure", "wrapped"]


class Source(Protocol):
    """A function of a kernel: its tree and where it stands."""

    name: str
    file: str
    first_line: int
    indent: int
    lines: Sequence[str]
    tree: ast.FunctionDef
    namespace: dict[str, Any]  # globals and variables of enclosing functions


class Inliner(Protocol):
    """The kernel under construction, as frames see it."""

    builder: BlockBuilder
    allow_globals: bool
    used_globals: dict[tuple[str, str], tuple[dict[str, Any], Any]]

    def call(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any: ...


class Frame:
    """A call of `source`: `scope` holds its variables; `result` what it returned."""

    def __init__(self, inliner: Inliner, source: Source, scope: dict[str, Any]) -> None:
        self.inliner, self.source, self.scope = inliner, source, scope
        self.result: Any = constexpr(None)
        self.loops = 0  # loops of the running kernel around the statement
        self.node: ast.AST = source.tree
        self.annotated: set[str] = set()  # names declared constexpr before they are assigned

    @property
    def builder(self) -> BlockBuilder:
        return self.inliner.builder

    def at(self, node: ast.AST) -> None:
        """Operations from here on belong to a node's line."""
        self.node = node
        line: int = getattr(node, "lineno", 1)
        self.builder.line = (self.source.file, line + self.source.first_line - 1)

    def place(self, node: ast.AST | None = None) -> Place:
        """Where a node (the current one) stands in the user's file."""
        node = node if hasattr(node, "lineno") else self.node
        line: int = getattr(node, "lineno", 1)
        text = self.source.lines[line - 1].rstrip("\n") if line <= len(self.source.lines) else ""
        column = getattr(node, "col_offset", 0)
        return Place(
            self.source.file,
            line + self.source.first_line - 1,
            column + self.source.indent,
            " " * self.source.indent + text,
        )

    # ***** names *****

    def lookup(self, name: str) -> Any:
        """A variable, a global that kernels may use, or a builtin; NameError otherwise."""
        if name in self.scope:
            return self.scope[name]
        if name in self.source.namespace:
            return self._global(name)
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise NameError(f"{name} is not defined")

    def _global(self, name: str) -> Any:
        value = self.source.namespace[name]
        if isinstance(value, constexpr):
            self.inliner.used_globals[self.source.file, name] = (self.source.namespace, value)
            return value
        if self.inliner.allow_globals or _is_code(value):
            return wrapped(value)
        raise NameError(
            f"Cannot access global variable {name} from within @jit'ed function. Triton kernels can only access global "
            "variables that are instanstiated as constexpr (`x = triton.language.constexpr(42)`). Note that this is different "
            "from annotating a variable as constexpr (`x: triton.language.constexpr = 42`), which is not supported. "
            "Alternatively, set the envvar TRITON_ALLOW_NON_CONSTEXPR_GLOBALS=1."
        )


def _is_code(value: Any) -> bool:
    """Modules, functions, types and named tuples: globals that are no data."""
    return isinstance(value, (ModuleType, dtype, type)) or callable(value) or hasattr(value, "_fields")


# ***** values *****


def wrapped(value: Any) -> Any:
    """A value of Python as one of the compiler: numbers, texts and None become constexpr, lists tuples."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return constexpr(value)
    if isinstance(value, list):
        return tuple(wrapped(item) for item in value)
    if isinstance(value, tuple):
        return type(value)(*map(wrapped, value)) if hasattr(value, "_fields") else tuple(map(wrapped, value))
    return value


def sanitized(value: Any) -> Any:
    """A value as a variable holds it: numbers are scalars of the kernel, unless the variable is declared constexpr."""
    if isinstance(value, tuple):
        items = map(sanitized, value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    plain = unwrap(value)
    return to_tensor(plain) if isinstance(plain, (bool, int, float)) else value


def flatten(value: Any) -> list[Value]:
    """The values of the block IR within a variable."""
    if isinstance(value, tuple):
        return [handle for item in value for handle in flatten(item)]
    return value.flatten() if is_runtime(value) else []


def rebuild(value: Any, handles: Iterator[Value]) -> Any:
    """A variable like `value` over other values of the block IR."""
    if isinstance(value, tuple):
        items = [rebuild(item, handles) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if not is_runtime(value):
        return value
    return value.rebuild([next(handles) for _ in value.flatten()])


def structure(value: Any) -> str:
    """The type of a variable, as errors show it; equal for values that may be merged."""
    if isinstance(value, tuple):
        return f"({', '.join(map(structure, value))})"
    return value.signature() if is_runtime(value) else f"{unwrap(value)!r}"


def is_block(value: Any) -> bool:
    return isinstance(value, tensor) and bool(value.shape)
