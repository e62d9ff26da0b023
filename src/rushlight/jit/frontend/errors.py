"""Errors of the compiler, which show the place in the user's source with a caret, as PyTorch's do."""

from __future__ import annotations

import ast
from typing import Any

from rushlight.jit.ir.graph import Location

__all__ = [
    "own_place",
    "stays_python",
    "CompileError",
    "FrontendError",
    "FrontendTypeError",
    "NotSupportedError",
    "Source",
    "UnsupportedNodeError",
    "highlighted",
]

_CONTEXT = 3


class Source:
    """A text that is compiled: its lines, the file and the line at which it begins, the columns that were cut off."""

    __slots__ = ("cut", "filename", "first_line", "lines", "name")

    def __init__(self, text: str, filename: str = "", first_line: int = 1, cut: int = 0, name: str = "") -> None:
        self.lines, self.filename, self.first_line, self.cut, self.name = (
            text.split("\n"),
            filename,
            first_line,
            cut,
            name,
        )

    def shown(self, column: int) -> int:
        """A column in the file."""
        return column + self.cut

    def at(self, node: Any) -> Location:
        """The place of a node of the syntax tree; of a call, that of what is called."""
        while isinstance(node, ast.Call):
            node = node.func
        line = getattr(node, "lineno", 1)
        start = getattr(node, "col_offset", 0)
        end = getattr(node, "end_col_offset", start + 1)
        if getattr(node, "end_lineno", line) != line:
            end = len(self.lines[line - 1]) if 0 < line <= len(self.lines) else start + 1
        return Location(self, line, start, max(end, start + 1))


def highlighted(location: Location) -> str:
    """The lines around a place, with a caret under it."""
    source = location.source
    if source is None:
        return ""
    pad = " " * source.cut
    at = location.line - 1
    head = f'  File "{source.filename}", line {source.first_line + at}\n' if source.filename else ""
    before = source.lines[max(0, at - _CONTEXT) : at + 1]
    after = list(source.lines[at + 1 : at + 1 + _CONTEXT])
    width = location.end_column - location.start_column
    text = "".join(f"{pad}{line}\n" if line else "\n" for line in before)
    text += pad + " " * location.start_column + "~" * width + " <--- HERE\n"
    return head + text + "".join(f"{pad}{line}\n" if line else "\n" for line in after)


class CompileError(RuntimeError):
    """A program is not in the typed subset of Python: what is wrong, and where."""

    def __init__(self, message: str, location: Location | None = None, calls: Any = ()) -> None:
        shown = f"\n{message}"
        if location is not None and location.source is not None:
            shown += f":\n{highlighted(location)}"
        for name, place in reversed(list(calls)):
            shown += f"'{name}' is being compiled since it was called from '{place[0]}'\n{highlighted(place[1])}"
        super().__init__(shown)
        self.location, self.plain = location, message


class FrontendError(Exception):
    """Syntax that scripts do not have."""

    def __init__(self, message: str, location: Location | None = None) -> None:
        shown = f"\n{message}"
        if location is not None and location.source is not None:
            shown += f":\n{highlighted(location)}"
        super().__init__(shown)
        self.location, self.plain = location, message


class NotSupportedError(FrontendError):
    """A feature of Python that scripts do not have."""


class UnsupportedNodeError(NotSupportedError):
    """A statement or an expression that scripts do not have."""


class FrontendTypeError(FrontendError):
    """A type that scripts do not have."""


def stays_python(held: Any) -> bool:
    """Whether a class or a function is of quantized layers, whose packed weights are objects of Python: scripts call it."""
    return own_place(held).startswith(("rushlight.ao.nn.", "rushlight.ao.operators."))


def own_place(held: Any) -> str:
    """The module of a class or a function of the package, under the package's name; "" for one of another package.

    Programs that were written for PyTorch see the package's modules under PyTorch's names.
    """
    place = held if isinstance(held, str) else getattr(held, "__module__", None) or ""
    head, dot, rest = place.partition(".")
    return f"rushlight{dot}{rest}" if head in ("rushlight", "torch") else ""
