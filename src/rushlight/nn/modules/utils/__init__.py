"""Tuples for arguments that may be one number, and names of state dicts without a prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rushlight.nn.modules.argument_shapes import reverse_repeat_tuple as _reverse_repeat_tuple
from rushlight.nn.modules.argument_shapes import spread as _spread

__all__ = [
    "_pair",
    "_quadruple",
    "_reverse_repeat_tuple",
    "_single",
    "_triple",
    "consume_prefix_in_state_dict_if_present",
]


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function that makes a tuple of `n` equal values of anything that cannot be iterated over."""

    def parse(x: Any) -> tuple[Any, ...]:
        return _spread(x, n)

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _list_with_default(out_size: Any, defaults: Iterable[int]) -> Any:
    """`out_size` with the last of `defaults` in the places of None; a number is taken as it is."""
    if isinstance(out_size, int):
        return out_size
    defaults = list(defaults)
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [d if v is None else v for v, d in zip(out_size, defaults[-len(out_size) :], strict=True)]


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take `prefix` off those keys of a state dict (and of its metadata) that begin with it, in place.

    For state dicts of models inside `DataParallel` and the like, whose keys begin with "module.".

        >>> state = {"module.weight": 1, "bias": 2}
        >>> consume_prefix_in_state_dict_if_present(state, "module.")
        >>> state
        {'bias': 2, 'weight': 1}
    """
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key.removeprefix(prefix)] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is None:
        return
    for key in list(metadata):
        # Metadata are kept by module, without the dot at the end.
        if key and f"{key}.".startswith(prefix):
            metadata[f"{key}."[len(prefix) :].removesuffix(".")] = metadata.pop(key)
