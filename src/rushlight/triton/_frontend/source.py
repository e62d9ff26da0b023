"""The source of a kernel's function: its tree, read once, and the names that it sees."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cached_property
from typing import Any

__all__ = ["FunctionSource"]


class FunctionSource:
    """Text and tree of a Python function.  OSError where Python does not know its text."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.name = function, function.__name__
        self.file = function.__code__.co_filename

    @cached_property
    def _text(self) -> tuple[list[str], int]:
        """The lines from `def` on, and the number of the first."""
        try:
            lines, first = inspect.getsourcelines(self.function)
        except OSError as error:
            raise OSError(
                f"the source of {self.name} is not known to Python (a kernel stands in a file, a notebook cell, or a text given to "
                "`python -m rushlight -c`)"
            ) from error
        start = next((i for i, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
        return lines[start:], first + start

    @property
    def first_line(self) -> int:
        return self._text[1]

    @cached_property
    def indent(self) -> int:
        first = self._text[0][0]
        return len(first) - len(first.lstrip())

    @cached_property
    def text(self) -> str:
        """The function as written, without decorators and indentation."""
        return textwrap.dedent("".join(self._text[0]))

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.FunctionDef:
        (definition,) = ast.parse(self.text).body
        assert isinstance(definition, ast.FunctionDef)
        return definition

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @property
    def namespace(self) -> dict[str, Any]:
        """Globals, and variables of enclosing functions over them."""
        names, cells = self.function.__code__.co_freevars, self.function.__closure__
        if not names or cells is None:
            return self.function.__globals__
        enclosing = {}
        for name, cell in zip(names, cells, strict=True):
            try:
                enclosing[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        return {**self.function.__globals__, **enclosing}
