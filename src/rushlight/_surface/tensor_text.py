"""The text of a tensor and of its elements, and the options in force: `rushlight._tensor_str` shows this."""

from __future__ import annotations

from typing import Any

from rushlight._engine.core import printing
from rushlight._engine.core.elements import elements_of

__all__ = ["PRINT_OPTS", "_str", "_tensor_str", "get_printoptions", "printoptions", "set_printoptions"]

PRINT_OPTS = printing.OPTIONS
get_printoptions, printoptions, set_printoptions = (
    printing.get_printoptions,
    printing.printoptions,
    printing.set_printoptions,
)


def _tensor_str(self: Any, indent: int) -> str:
    """The elements of a tensor, lines after the first `indent` characters further in.

    >>> import rushlight as torch
    >>> _tensor_str(torch.ones(2), 0)
    '[1., 1.]'
    """
    return "[]" if self.numel() == 0 else printing.contents(elements_of(self.detach()), self.dtype, indent, PRINT_OPTS)


def _str(self: Any, *, tensor_contents: str | None = None) -> str:
    """The `repr` of a tensor."""
    if tensor_contents is not None:
        raise NotImplementedError("_str: rushlight has no printed form with other contents")
    return repr(self)
