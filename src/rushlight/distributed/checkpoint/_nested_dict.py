"""Nested state dicts as flat ones, with names joined by dots, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from rushlight import Tensor
from rushlight.distributed.checkpoint.metadata import STATE_DICT_TYPE

__all__ = ["flatten_state_dict", "set_element", "traverse_state_dict", "unflatten_state_dict"]

OBJ_PATH = tuple[str | int, ...]
FLATTEN_MAPPING = dict[str, OBJ_PATH]


def traverse_state_dict(
    state_dict: STATE_DICT_TYPE, visitor: Callable[[OBJ_PATH, Any], None], into_mappings: bool = True
) -> None:
    """Call `visitor(path, value)` for all values of nested dicts, and of lists that have tensors or dicts in them.

    Without `into_mappings` a dict is a value too unless it has tensors in it: so PyTorch up to 2.3 named things.
    """

    def has_tensors(value: Any) -> bool:
        if isinstance(value, Tensor) or hasattr(value, "__create_write_items__"):
            return True
        if isinstance(value, Mapping):
            return into_mappings or any(has_tensors(v) for v in value.values())
        if isinstance(value, list):
            return any(has_tensors(v) for v in value)
        return False

    def visit(path: OBJ_PATH, value: Any) -> None:
        if isinstance(value, Mapping) and has_tensors(value):
            for key, inner in value.items():
                visit((*path, str(key)), inner)
        elif isinstance(value, list) and has_tensors(value):
            for index, inner in enumerate(value):
                visit((*path, index), inner)
        else:
            visitor(path, value)

    for key, value in state_dict.items():
        visit((str(key),), value)


def flatten_state_dict(
    state_dict: STATE_DICT_TYPE, into_mappings: bool = True
) -> tuple[STATE_DICT_TYPE, FLATTEN_MAPPING]:
    """A flat dict, and the path of each of its names.  ValueError for two things of one name.

    >>> flatten_state_dict({"a": {"b": 1}, "c": [{"d": 2}]})
    ({'a.b': 1, 'c.0.d': 2}, {'a.b': ('a', 'b'), 'c.0.d': ('c', 0, 'd')})
    """
    flat: STATE_DICT_TYPE = {}
    paths: FLATTEN_MAPPING = {}

    def keep(path: OBJ_PATH, value: Any) -> None:
        name = ".".join(map(str, path))
        if name in flat:
            raise ValueError(f"duplicated flatten key {name}")
        flat[name], paths[name] = value, path

    traverse_state_dict(state_dict, keep, into_mappings)
    return flat, paths


def unflatten_state_dict(state_dict: STATE_DICT_TYPE, mapping: FLATTEN_MAPPING) -> STATE_DICT_TYPE:
    """The nested dict of a flat one."""
    nested: STATE_DICT_TYPE = {}
    for key, value in state_dict.items():
        set_element(nested, mapping[key], value)
    return nested


def set_element(root_dict: STATE_DICT_TYPE, path: OBJ_PATH, value: Any) -> None:
    """Put a value at a path; dicts (for texts) and lists (for numbers) on the way are made.

    >>> tree = {}
    >>> set_element(tree, ("a", 1, "b"), 5)
    >>> tree
    {'a': [None, {'b': 5}]}
    """
    inner: Any = root_dict
    for here, following in pairwise(path):
        _check(inner, here, path)
        held = inner.get(here) if isinstance(inner, Mapping) else inner[here]
        if held is None:
            held = inner[here] = {} if isinstance(following, str) else []
        inner = held
    _check(inner, path[-1], path)
    inner[path[-1]] = value


def _check(container: Any, index: str | int, path: OBJ_PATH) -> None:
    """Make a list long enough; ValueError where a path goes through what has no such parts."""
    if isinstance(container, list) and isinstance(index, int):
        container.extend([None] * (index + 1 - len(container)))
    elif not isinstance(container, Mapping):
        raise ValueError(f"the path {path} goes through a {type(container).__name__}")
