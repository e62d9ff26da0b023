"""A function that occurs many times in a program: `invoke_subgraph` calls it, `mark_compile_region` marks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.compiler.marks import nested_compile_region

__all__ = ["invoke_subgraph", "mark_compile_region"]

mark_compile_region = nested_compile_region


def invoke_subgraph(subgraph: Callable[..., Any], identifier: str | None, *operands: Any) -> tuple[Any, ...]:
    """Result of a function (or of an fx graph's module), as a tuple; `identifier` names it among those of a program."""
    found = subgraph(*operands)
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)
