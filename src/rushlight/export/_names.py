"""Names of nodes."""

from __future__ import annotations

import builtins
import keyword
import re

__all__ = ["identifier", "keyword_free"]


def keyword_free(name: str) -> bool:
    """Whether a name is taken only because it is a builtin's: inputs keep theirs."""
    return name in builtins.__dict__ and not keyword.iskeyword(name)


def identifier(name: str) -> str:
    """A name of a node: letters, digits and underscores."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)
