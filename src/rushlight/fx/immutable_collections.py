"""Lists and dicts that refuse to be changed: what a node's arguments are kept in.

A node is told when its arguments change (its users are counted), so they are changed by assigning `node.args`, never in
place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from rushlight.utils._pytree import (
    _dict_flatten,
    _dict_flatten_with_keys,
    _list_flatten,
    _list_flatten_with_keys,
    register_pytree_node,
)

__all__ = ["immutable_dict", "immutable_list"]


def _refusing(name: str) -> Callable[..., NoReturn]:
    def method(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__!r} object does not support mutation ({name}): the arguments of a node are changed by assigning "
            "node.args or node.kwargs, or by node.update_arg() and node.update_kwarg()"
        )

    method.__name__ = name
    return method


class immutable_list(list):
    """A list that cannot be changed."""

    append = extend = insert = pop = remove = clear = reverse = sort = _refusing("change of a list")
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refusing("change of a list")

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_list, (tuple(self),)


class immutable_dict(dict):
    """A dict that cannot be changed."""

    clear = pop = popitem = setdefault = update = _refusing("change of a dict")
    __setitem__ = __delitem__ = __ior__ = _refusing("change of a dict")

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_dict, (tuple(self.items()),)


register_pytree_node(
    immutable_list,
    _list_flatten,
    lambda values, _: immutable_list(values),
    serialized_type_name="torch.fx.immutable_collections.immutable_list",
    flatten_with_keys_fn=_list_flatten_with_keys,
)
register_pytree_node(
    immutable_dict,
    _dict_flatten,
    lambda values, keys: immutable_dict(zip(keys, values, strict=True)),
    serialized_type_name="torch.fx.immutable_collections.immutable_dict",
    flatten_with_keys_fn=_dict_flatten_with_keys,
)
