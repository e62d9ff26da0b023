"""The syntax of Python functions."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

from rushlight.jit.frontend.errors import FrontendError, Source

__all__ = ["syntax_of", "syntax_of_text"]


def syntax_of(function: Any) -> tuple[ast.FunctionDef, Source]:
    """The syntax tree of a function, and its source; OSError text where there is no source."""
    function = inspect.unwrap(function)
    try:
        lines, first = inspect.getsourcelines(function)
        filename = inspect.getsourcefile(function) or ""
    except (OSError, TypeError):
        raise OSError(
            f"Can't get source for {function}. TorchScript requires source access in order to carry out compilation, make sure original .py files are available."
        ) from None
    text = "".join(lines)
    cut = len(lines[0]) - len(lines[0].lstrip())
    text = textwrap.dedent(text) if cut else text
    source = Source(text.rstrip("\n"), filename, first, cut, getattr(function, "__name__", ""))
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise FrontendError(f"the source of {function} cannot be read: {error}") from None
    node = tree.body[0] if tree.body else None
    if isinstance(node, (ast.AsyncFunctionDef, ast.ClassDef)) or not isinstance(node, ast.FunctionDef):
        raise FrontendError("Expected a single top-level function: lambdas and async functions are not compiled")
    return node, source


def syntax_of_text(text: str, function: Any) -> tuple[ast.FunctionDef, Source]:
    """The syntax tree of a function that was generated, by a text that says the same, and that text."""
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.FunctionDef)
    return node, Source(text.rstrip("\n"), "", 1, 0, getattr(function, "__name__", ""))
