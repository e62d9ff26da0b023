"""Takes arguments and results apart into tensors and a tree of plain data, which `rushlight_loader.trees` reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._base.errors import PackageError
from rushlight_loader.trees import built, flattened

__all__ = ["built", "flattened", "packed_tree"]


def packed_tree(x: Any, is_leaf: Callable[[Any], bool], leaves: list[Any]) -> Any:
    """The tree of `x`; what `is_leaf` goes to `leaves`.  PackageError for what cannot be in a tree."""
    if is_leaf(x):
        leaves.append(x)
        return len(leaves) - 1
    if isinstance(x, tuple) or type(x) is list:  # named tuples come back as tuples
        kind = "tuple" if isinstance(x, tuple) else "list"
        return [kind, [packed_tree(item, is_leaf, leaves) for item in x]]
    if isinstance(x, dict):
        pairs = [(key, item) for key, item in x.items() if item is not None or type(x) is dict]
        if all(type(key) in (str, int) for key, _ in pairs):
            return ["dict", [[key, packed_tree(item, is_leaf, leaves)] for key, item in pairs]]
    if x is None or type(x) in (bool, int, float, str):
        return ["value", x]
    raise PackageError(f"a packaged program takes and gives tensors in tuples, lists and dicts, not {type(x).__name__}")
