"""Subclasses of Tensor: `__torch_function__`, and results that keep their class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._base.pytree import tree_map
from rushlight._engine.call import OVERRIDE
from rushlight._engine.state import STATE
from rushlight._engine.tensor import Tensor, plain_classes, subclass_hook

__all__ = ["DisableTorchFunctionSubclass", "as_subclass", "handle", "has_override"]


class DisableTorchFunctionSubclass:
    """Inside, subclass overrides are not asked."""

    def __enter__(self) -> None:
        STATE.overrides_off += 1

    def __exit__(self, *exc: object) -> None:
        STATE.overrides_off -= 1


def as_subclass(tensor: Tensor, cls: type[Tensor]) -> Tensor:
    """The same tensor (memory, history) as an object of `cls`."""
    made = Tensor.__new__(cls)
    made._storage, made._spec, made._ptr = tensor._storage, tensor._spec, tensor._ptr
    made._rg, made._node, made._meta = tensor._rg, tensor._node, tensor._meta
    return made


def _overrides(kind: type) -> bool:
    return kind not in plain_classes and getattr(kind, "__torch_function__", None) is not disabled_torch_function


def disabled_torch_function(*args: Any, **kwargs: Any) -> Any:
    """A `__torch_function__` that never takes over: classes that have it behave as plain tensors, and results are plain."""
    return NotImplemented


def default_torch_function(cls: type, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
    """What a subclass without an override of its own does: run the function, and give results the subclass."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        found = func(*args, **(kwargs or {}))
    if getattr(func, "__name__", "") in _KEEPS_CLASS:
        return found

    def convert(item: Any) -> Any:
        return as_subclass(item, cls) if isinstance(item, Tensor) and not isinstance(item, cls) else item

    return tree_map(convert, found)


_KEEPS_CLASS = {"numpy", "item", "tolist"}


def _collect(values: Any, found: list[Any]) -> None:
    for value in values:
        if isinstance(value, (tuple, list)):
            _collect(value, found)
        else:
            kind = type(value)
            if kind not in plain_classes and hasattr(kind, "__torch_function__") and _overrides(kind) and not isinstance(value, type):
                if all(type(v) is not kind for v in found):
                    place = next((i for i, v in enumerate(found) if issubclass(kind, type(v))), len(found))
                    found.insert(place, value)


def has_override(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments whose classes want a say, subclasses before their bases."""
    found: list[Any] = []
    _collect(args, found)
    if kwargs:
        _collect(kwargs.values(), found)
    return found


def handle(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """(True, result) when a mode or a subclass handled the call."""
    state = STATE
    if state.function_modes and state.word & 16:
        mode = state.function_modes.pop()
        before = state.word
        if not state.function_modes:
            state.word = before & ~16
        try:
            types = tuple(type(v) for v in has_override(args, kwargs))
            return True, mode.__torch_function__(function, types, tuple(args), kwargs)
        finally:
            state.function_modes.append(mode)
            state.word = before
    if state.overrides_off:
        return False, None
    found = has_override(args, kwargs)
    if not found:
        return False, None
    types = tuple(type(v) for v in found)
    for value in found:
        made = type(value).__torch_function__(function, types, tuple(args), dict(kwargs))
        if made is not NotImplemented:
            return True, made
    raise TypeError(
        f"no implementation found for '{getattr(function, '__name__', function)}' on types that implement __torch_function__: "
        f"{[t.__name__ for t in types]}"
    )


def _note_class(cls: Any) -> None:
    """A class without a say is treated as plain: its tensors take the fast path."""
    if cls.__torch_function__ is disabled_torch_function:
        plain_classes.add(cls)


OVERRIDE[0] = handle
subclass_hook[0] = _note_class
Tensor.__torch_function__ = classmethod(default_torch_function)  # type: ignore[attr-defined]
