"""Names of this package's modules, which programs under the name torch see as PyTorch's."""

from __future__ import annotations

import sys

__all__ = ["own_module"]

OURS, THEIRS = "rushlight", "torch"


def own_module(name: str | None) -> str:
    """The name that a module of this package has here, from the one under which it is shown; others as they are.

    >>> own_module("numpy.linalg"), own_module(None)
    ('numpy.linalg', '')
    """
    if not name:
        return ""
    if name.partition(".")[0] == THEIRS and sys.modules.get(THEIRS) is sys.modules.get(OURS):
        return OURS + name[len(THEIRS) :]
    return name
