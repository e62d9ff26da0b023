"""Functions from text that the tracer wrote: callers with the parameters of what is compiled, segments, conditions."""

from __future__ import annotations

from typing import Any

__all__ = ["functions"]


def functions(text: str, space: dict[str, Any], name: str) -> dict[str, Any]:
    """What the statements of `text` define, with `space` as their globals.

    The text is made of our own patterns, of names and of literals; every object that it speaks of is in `space`.
    """
    exec(compile(text, f"<{name}>", "exec"), space)  # noqa: S102 - see above
    return space
