"""Errors while a kernel is compiled: the error names the user's file, line and column."""

from __future__ import annotations

import ast
from typing import NamedTuple

__all__ = ["CompilationError", "CompileTimeAssertionFailure", "Place", "UnsupportedLanguageConstruct"]


class Place(NamedTuple):
    """A place in the user's source."""

    file: str
    line: int
    column: int
    text: str

    def shown(self) -> str:
        """`file:line:column`, the line and a caret below it."""
        return f"{self.file}:{self.line}:{self.column + 1}:\n{self.text}\n{' ' * self.column}^"


class CompilationError(Exception):
    """A kernel that does not compile.  `places` are the place of the error and the calls that led there, inner first."""

    def __init__(self, place: Place | None, node: ast.AST | None, message: str | None = None) -> None:
        self.node, self.error_message = node, message
        self.places = [] if place is None else [place]
        super().__init__(message)

    def called_from(self, place: Place) -> None:
        """Add a call that led here."""
        self.places.append(place)

    def __str__(self) -> str:
        parts = [f"at {self.places[0].shown()}"] if self.places else []
        parts += [self.error_message] if self.error_message else []
        parts += [f"called from {place.shown()}" for place in self.places[1:]]
        return "\n".join(parts)

    def __reduce__(self) -> tuple[object, ...]:
        return (_restored, (type(self), self.places, self.error_message))


class CompileTimeAssertionFailure(CompilationError):
    """A `static_assert`, or an `assert` on constexpr, that fails."""


class UnsupportedLanguageConstruct(CompilationError, NotImplementedError):
    """Something that the language, or rushlight, does not have."""


def _restored(kind: type[CompilationError], places: list[Place], message: str | None) -> CompilationError:
    error = kind(None, None, message)
    error.places = places
    return error
