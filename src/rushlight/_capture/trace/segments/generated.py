"""Functions from text that the tracer wrote: callers with the parameters of what is compiled, segments, conditions."""

from __future__ import annotations

from types import CodeType
from typing import Any

__all__ = ["MISS", "compiled_text", "defined", "functions"]


class _Miss:
    def __repr__(self) -> str:
        return "MISS"


MISS = _Miss()
"""Result of a segment whose conditions do not hold."""


def functions(text: str, space: dict[str, Any], name: str) -> dict[str, Any]:
    """Run the statements of `text` with `space` as their globals, and return `space`.

    The text is made of our own patterns, of names and of literals; every object that it speaks of is in `space`.
    """
    defined(compiled_text(text, name), space)
    return space


def compiled_text(text: str, name: str) -> CodeType:
    """The statements of `text`, to be executed with several spaces (see `functions`)."""
    return compile(text, f"<{name}>", "exec")


def defined(code: CodeType, space: dict[str, Any]) -> None:
    """Execute what `compiled_text` gave."""
    exec(code, space)  # noqa: S102 - see `functions`
