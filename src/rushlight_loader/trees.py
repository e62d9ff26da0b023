"""How tensors stand among arguments and results, as plain data: a number is a tensor, ["tuple", items], ["list", items],
["dict", [key, item] pairs] hold others, ["value", x] is the same in every call.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["built", "flattened"]


def flattened(tree: Any, x: Any, place: str, found: list[Any]) -> None:
    """Put what stands at the tensors' places of `tree` in `x` into `found`, by their numbers.

    TypeError, which names the place, for another structure; ValueError for another value.
    """
    if type(tree) is int:
        found[tree] = x
        return
    kind, items = tree
    if kind == "value":
        if type(x) is not type(items) or x != items:
            raise ValueError(f"{place} is {items!r} in this package, not {x!r}")
        return
    if kind == "dict":
        keys = [key for key, _ in items]
        if not isinstance(x, dict) or set(x) != set(keys):
            raise TypeError(
                f"{place} must be a dict of {keys}, not {list(x) if isinstance(x, dict) else type(x).__name__}"
            )
        for key, item in items:
            flattened(item, x[key], f"{place}[{key!r}]", found)
        return
    if not isinstance(x, (tuple, list)) or len(x) != len(items):
        what = f"{len(x)} items" if isinstance(x, (tuple, list)) else type(x).__name__
        raise TypeError(f"{place} must have {len(items)} items, not {what}")
    for k, item in enumerate(items):
        flattened(item, x[k], f"{place}[{k}]", found)


def built(tree: Any, leaves: Sequence[Any]) -> Any:
    """What `tree` is with these tensors."""
    if type(tree) is int:
        return leaves[tree]
    kind, items = tree
    if kind == "value":
        return items
    if kind == "dict":
        return {key: built(item, leaves) for key, item in items}
    made = [built(item, leaves) for item in items]
    return tuple(made) if kind == "tuple" else made
