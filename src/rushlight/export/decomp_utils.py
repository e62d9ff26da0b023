"""`torch.export.decomp_utils`: the table of `default_decompositions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["CustomDecompTable"]


class CustomDecompTable(dict[Any, Callable[..., Any]]):
    """Operator -> rule.  Entries may be taken out, so that the operator stays, and put in.

    >>> import rushlight as torch
    >>> table = torch.export.default_decompositions()
    >>> _ = table.pop(torch.ops.aten.hardswish.default)
    >>> torch.ops.aten.hardswish.default in table
    False
    """

    def materialize(self) -> dict[Any, Callable[..., Any]]:
        """The table as a plain dict."""
        return dict(self)

    def copy(self) -> CustomDecompTable:
        """Another table with the same entries."""
        return CustomDecompTable(self)
