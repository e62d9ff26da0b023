"""Subclasses of Tensor: `__torch_function__`, and results that keep their class."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from types import FunctionType
from typing import Any

from rushlight._base.pytree import tree_map
from rushlight._engine.call import OVERRIDE
from rushlight._engine.kinds import Kind, ask_kinds
from rushlight._engine.state import FUNCTION_MODE, STATE
from rushlight._engine.tensor import Tensor, asking_classes, plain_classes, plain_hook, subclass_hook

__all__ = [
    "DisableTorchFunctionSubclass",
    "as_arguments",
    "as_subclass",
    "dispatch",
    "handle",
    "has_override",
    "shown_as",
]


class DisableTorchFunctionSubclass:
    """Inside, subclass overrides are not asked."""

    def __enter__(self) -> None:
        STATE.overrides_off += 1

    def __exit__(self, *exc: object) -> None:
        STATE.overrides_off -= 1


def shown_as(tensor: Tensor, cls: type[Tensor]) -> Tensor:
    """A view of all of `tensor` as an object of `cls`; the gradient flows through."""
    if not issubclass(cls, Tensor):
        raise TypeError(f"cls must be a type that inherits from Tensor, got {cls.__name__}")
    return as_subclass(ALIAS[0](tensor), cls)


def as_subclass(tensor: Tensor, cls: type[Tensor]) -> Tensor:
    """The same tensor (memory, history) as an object of `cls`."""
    made = Tensor.__new__(cls)
    made._storage, made._spec, made._ptr = tensor._storage, tensor._spec, tensor._ptr
    made._rg, made._node, made._meta = tensor._rg, tensor._node, tensor._meta
    return made


def _overrides(kind: type) -> bool:
    return kind not in plain_classes and getattr(kind, "__torch_function__", None) is not disabled_torch_function


def disabled_torch_function(func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
    """A `__torch_function__` that never takes over: classes that have it behave as plain tensors, and results are plain.

    An override of a subclass reaches it through `super()`: then it runs the function, asking nobody."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def default_torch_function(
    cls: type, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
) -> Any:
    """What a subclass without an override of its own does: run the function, and give results the subclass."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        found = func(*args, **(kwargs or {}))
    if getattr(func, "__self__", None) in _KEEP_CLASS:
        return found

    def convert(item: Any) -> Any:
        return shown_as(item, cls) if isinstance(item, Tensor) and not isinstance(item, cls) else item

    return tree_map(convert, found)


ALIAS: list[Any] = [None]  # a view of a whole tensor, set by `_surface`
# Properties whose value keeps the class it has.
_KEEP_CLASS = [Tensor.__dict__[name] for name in ("grad", "_base")]


def _collect(values: Any, found: list[Any]) -> None:
    for value in values:
        if isinstance(value, (tuple, list)):
            _collect(value, found)
        else:
            kind = type(value)
            if (
                kind not in plain_classes
                and hasattr(kind, "__torch_function__")
                and _overrides(kind)
                and not isinstance(value, type)
            ):
                if all(type(v) is not kind for v in found):
                    place = next((i for i, v in enumerate(found) if issubclass(kind, type(v))), len(found))
                    found.insert(place, value)


def has_override(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments whose classes want a say, subclasses before their bases."""
    found: list[Any] = []
    _collect(args, found)
    if kwargs:
        _collect(kwargs.values(), found)
    return [value for value in found if not isinstance(value, Kind)]


def handle(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """(True, result) when a mode or a subclass handled the call."""
    state = STATE
    if state.function_modes and state.word & FUNCTION_MODE:
        mode = state.function_modes.pop()
        before = state.word
        if not state.function_modes:
            state.word = before & ~FUNCTION_MODE
        try:
            types = tuple(type(v) for v in has_override(args, kwargs))
            return True, mode.__torch_function__(function, types, tuple(args), kwargs)
        finally:
            state.function_modes.append(mode)
            state.word = before
    found: list[Any] = []
    _collect(args, found)
    if kwargs:
        _collect(kwargs.values(), found)
    if not found:
        return False, None
    kinds = [v for v in found if isinstance(v, Kind)]
    asked = [] if state.overrides_off else [v for v in found if not isinstance(v, Kind)]
    if asked:
        return True, ask(function, asked, args, kwargs)
    return (True, ask_kinds(function, kinds, args, kwargs)) if kinds else (False, None)


def as_arguments(relevant: Iterable[Any]) -> list[Any]:
    """Those of a function's arguments that want a say, in the order in which they are asked."""
    return has_override(tuple(relevant), {})


def dispatch(function: Any, asked: list[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A call that a mode or one of `asked` must handle."""
    if STATE.function_modes and STATE.word & FUNCTION_MODE:
        return handle(function, args, kwargs)[1]
    return ask(function, asked, args, kwargs)


def ask(function: Any, found: list[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The answer of the first of `found` whose class does not decline; TypeError where all do."""
    types = tuple(type(v) for v in found)
    for value in found:
        made = type(value).__torch_function__(function, types, tuple(args), dict(kwargs))
        if made is not NotImplemented:
            return made
    raise TypeError(
        f"no implementation found for '{getattr(function, '__name__', function)}' on types that implement __torch_function__: "
        f"{[t.__name__ for t in types]}"
    )


def _note_class(cls: Any) -> None:
    """A class without a say is treated as plain: its tensors take the fast path.  For the others, properties ask too."""
    if cls is Kind:
        return
    if not issubclass(cls, Kind) and cls.__torch_function__ is disabled_torch_function:
        plain_classes.add(cls)
        plain_hook[0](cls)
        return
    if not asking_classes:
        asking_classes.append(cls)
    if issubclass(cls, Kind):
        _ask_methods(cls)
        return
    own = getattr(cls.__torch_function__, "__func__", None) is not default_torch_function
    defined = {name for each in cls.__mro__ if each not in plain_classes and each is not object for name in each.__dict__}
    for name, value in list(Tensor.__dict__.items()):
        if name in defined:
            continue
        if isinstance(value, property):
            if own or name in _TENSOR_PROPERTIES:
                setattr(cls, name, _asking(value))
        elif own and _is_plain_method(name, value):
            setattr(cls, name, _asking_method(value))


def _ask_methods(cls: type[Kind]) -> None:
    """A kind answers for the plain methods of Tensor too, and for the properties that are operators; its facts come from its spec."""
    for name, value in list(Tensor.__dict__.items()):
        if name in cls.__dict__ or any(name in each.__dict__ for each in cls.__mro__[1:] if each is not Tensor and issubclass(each, Tensor)):
            continue
        if isinstance(value, property):
            if name in _TENSOR_PROPERTIES:
                setattr(cls, name, _asking_kind(name, value))
        elif _is_plain_method(name, value):
            setattr(cls, name, _asking_method(value))


def _asking_kind(name: str, plain: property) -> property:
    """A property of a kind, asked for under its own name."""

    def get(self: Any) -> Any:
        return ask_kinds(get, [self], (self,), {})

    get.__name__ = name
    return property(get, plain.fset, plain.fdel, plain.__doc__)


def _is_plain_method(name: str, value: Any) -> bool:
    """Methods in plain Python that do not ask by themselves, as operators and composites do."""
    if not isinstance(value, FunctionType) or hasattr(value, "operator") or hasattr(value, "__wrapped__"):
        return False
    return name in _ASKING_SPECIAL if name.startswith("_") else name not in ("view", "as_subclass")


_ASKING_SPECIAL = frozenset(("__bool__", "__complex__", "__contains__", "__float__", "__format__", "__index__", "__int__", "__len__", "__repr__"))


def _asking_method(plain: Any) -> Any:
    """A plain method of Tensor as a subclass with a `__torch_function__` of its own has it."""

    @functools.wraps(plain)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        handled, made = handle(plain, (self, *args), kwargs)
        return made if handled else plain(self, *args, **kwargs)

    return method


_TENSOR_PROPERTIES = frozenset(("T", "mT", "H", "mH", "real", "imag", "data"))


def _asking(plain: property) -> property:
    """A property of a subclass: its `__torch_function__` gets the getter of Tensor's own."""
    getter = plain.__get__

    def get(self: Any) -> Any:
        handled, made = handle(getter, (self,), {})
        return made if handled else getter(self)

    return property(get, plain.fset, plain.fdel, plain.__doc__)


OVERRIDE[0] = handle
subclass_hook[0] = _note_class
Tensor.__torch_function__ = classmethod(default_torch_function)  # type: ignore[attr-defined]
