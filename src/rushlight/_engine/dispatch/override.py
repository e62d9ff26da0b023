"""Subclasses of Tensor: `__torch_function__`, and results that keep their class."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Sequence
from types import FunctionType
from typing import Any

from rushlight._base.forking import free_after_fork
from rushlight._base.lazy import require
from rushlight._base.pytree import tree_map
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import FUNCTION_MODE, STATE, followed
from rushlight._engine.core.tensor import Tensor, add_view, dispatch_classes, plain_classes
from rushlight._engine.dispatch_types.base import DispatchType, ask_dispatch_types

__all__ = [
    "WATCH",
    "DisableTorchFunctionSubclass",
    "as_arguments",
    "as_subclass",
    "disabled_torch_dispatch",
    "dispatch",
    "handle",
    "has_override",
    "plain_attribute",
    "shown_as",
]


class DisableTorchFunctionSubclass:
    """Within this context subclass overrides are not called."""

    def __enter__(self) -> None:
        STATE.overrides_off += 1

    def __exit__(self, *exc: object) -> None:
        STATE.overrides_off -= 1


NO_TENSOR_CLASS = (
    "Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. Make sure your class "
    "inherits from Tensor"
)


def shown_as(tensor: Tensor, cls: type[Tensor]) -> Tensor:
    """A view of all of `tensor` as an object of `cls`; the gradient flows through."""
    if not isinstance(cls, type):
        raise TypeError(f"cls must be a type (got {type(cls).__name__})")
    if not issubclass(cls, Tensor):
        raise TypeError(f"{NO_TENSOR_CLASS}, got {cls!r}")
    return as_subclass(HOOKS.whole_view(tensor), cls)


def as_subclass(tensor: Tensor, cls: type[Tensor]) -> Tensor:
    """The same tensor (memory, history) as an object of `cls`."""
    made = object.__new__(cls)
    made._storage, made._spec, made._ptr = tensor._storage, tensor._spec, tensor._ptr
    made._rg, made._node, made._autograd_meta = tensor._rg, tensor._node, tensor._autograd_meta
    meta = made._autograd_meta
    if meta is not None and meta.base is not None:
        add_view(meta.base, made)  # the base refers to its views weakly, and `tensor` may be freed
    return made


def _overrides(kind: type) -> bool:
    return kind not in plain_classes and getattr(kind, "__torch_function__", None) is not disabled_torch_function


def disabled_torch_function(func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
    """A `__torch_function__` that never overrides: classes that have it behave as plain tensors, and results are plain.

    If an override of a subclass calls it through `super()`, it runs the function without further overrides."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def disabled_torch_dispatch(func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
    """A `__torch_dispatch__` that is never asked: its classes are plain tensors below autograd.  Called, it runs `func`
    on their memory.
    """
    STATE.dispatch_off += 1
    try:
        return func(*args, **(kwargs or {}))
    finally:
        STATE.dispatch_off -= 1


def default_torch_function(
    cls: type, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
) -> Any:
    """The default override of a subclass: run the function, and give results the class of the subclass."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        found = func(*args, **(kwargs or {}))
    if getattr(func, "__self__", None) in _KEEP_CLASS:
        return found

    def convert(item: Any) -> Any:
        return shown_as(item, cls) if isinstance(item, Tensor) and not isinstance(item, cls) else item

    return tree_map(convert, found)


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
    """The arguments whose classes have an override, subclasses before their bases."""
    found: list[Any] = []
    _collect(args, found)
    if kwargs:
        _collect(kwargs.values(), found)
    return [value for value in found if not isinstance(value, DispatchType)]


def handle(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """(True, result) when a mode or a subclass handled the call."""
    state = STATE
    if state.function_modes and state.word & FUNCTION_MODE:
        mode = state.function_modes.pop()
        before = state.word
        if not state.function_modes and not state.dispatch_modes:
            state.word = before & ~FUNCTION_MODE
        try:
            types = tuple(type(v) for v in has_override(args, kwargs))
            return True, followed(mode.__torch_function__)(function, types, *as_shown(function, args, kwargs))
        finally:
            state.function_modes.append(mode)
            state.word = before
    found: list[Any] = []
    _collect(args, found)
    if kwargs:
        _collect(kwargs.values(), found)
    if not found and not state.dispatch_modes and not dispatch_classes:
        return False, None
    typed = [v for v in found if isinstance(v, DispatchType)]
    asked = [] if state.overrides_off else [v for v in found if not isinstance(v, DispatchType)]
    if asked:
        return True, ask(function, asked, args, kwargs)
    if (state.dispatch_modes or dispatch_classes) and not any(v.above_modes for v in typed):
        handled, made = HOOKS.below(function, args, kwargs)
        if handled:
            return True, made
    if not typed or isinstance(function, _Again):  # dispatch types have their own properties and plain methods
        return False, None
    return True, ask_dispatch_types(function, typed, args, kwargs)


def as_arguments(relevant: Iterable[Any]) -> list[Any]:
    """The arguments with an override, in the order in which their overrides are called."""
    return has_override(tuple(relevant), {})


def dispatch(function: Any, asked: list[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Let a mode, or one of `asked`, handle the call."""
    if STATE.function_modes and STATE.word & FUNCTION_MODE:
        return handle(function, args, kwargs)[1]
    return ask(function, asked, args, kwargs)


def ask(function: Any, found: list[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result of the first override among `found` that does not decline; TypeError if all decline."""
    types = tuple(type(v) for v in found)
    args, kwargs = as_shown(function, args, kwargs)
    for value in found:
        made = followed(type(value).__torch_function__)(function, types, args, dict(kwargs))
        if made is not NotImplemented:
            return made
    raise TypeError(
        f"no implementation found for '{getattr(function, '__name__', function)}' on types that implement __torch_function__: "
        f"{[t.__name__ for t in types]}"
    )


# ***** the arguments as overrides see them *****

# Python functions of PyTorch pass required arguments by position and all others by name, given or not; native ones pass
# what they were given.  In `nn.functional` these are native:
_NATIVE = frozenset((
    "adaptive_avg_pool1d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "bilinear", "channel_shuffle", "conv1d", "conv2d", "conv3d", "conv_tbc",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "gelu", "hardshrink", "linear", "logsigmoid", "native_channel_shuffle",
    "one_hot", "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "prelu", "scaled_dot_product_attention", "softplus", "softshrink",
))  # fmt: skip
# Outside of it these are Python:
_PYTHON = frozenset((
    "cdist", "lobpcg", "lu", "norm", "pca_lowrank", "split", "stft", "svd_lowrank", "tensordot", "unique", "unique_consecutive",
))  # fmt: skip
# Functions of the package only: those of others may be freed
_FORMS: dict[Any, tuple[list[str], int, dict[str, Any]]] = {}


def as_shown(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call in the form in which PyTorch passes them to overrides; unchanged if they do not fit the
    function.
    """
    form = _FORMS.get(function) or _form(function)
    if (
        form is None
        and len(args) == 2
        and isinstance(args[1], (tuple, list))
        and getattr(function, "__name__", "") == "einsum"
    ):
        return (args[0], *args[1]), kwargs  # operands may come as a list, which is unpacked before overrides are called
    if form is None or len(args) > len(form[0]):
        return tuple(args), kwargs
    names, required, defaults = form
    given = dict(zip(names, args, strict=False))
    if any(name in given or name not in defaults and name not in names[:required] for name in kwargs) or any(
        name not in given and name not in kwargs for name in names[:required]
    ):
        return tuple(args), kwargs
    given.update(kwargs)
    return tuple(given[name] for name in names[:required]), {
        name: given.get(name, default) for name, default in defaults.items()
    }


def _form(function: Any) -> tuple[list[str], int, dict[str, Any]] | None:
    """(names of positional arguments, how many are required, defaults of the others); None for functions whose
    arguments are passed on as given.
    """
    name, page = getattr(function, "__name__", ""), getattr(function, "__module__", "") or ""
    root, _, page = page.partition(".")
    python = (
        page == "nn.functional" and name not in _NATIVE and not name.endswith("_") or page == "" and name in _PYTHON
    )
    if root not in ("rushlight", "torch") or not python:  # the latter where the package runs as torch
        return None
    inspect = require("inspect")

    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters):
        return None
    places = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
    defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
    made = _FORMS[function] = places, sum(each.default is each.empty for each in parameters), defaults
    return made


def _note_class(cls: Any) -> None:
    """Treat a class without an override as plain, so that its tensors take the fast path; for other classes properties
    call the override too.
    """
    if cls is DispatchType:
        return
    if not issubclass(cls, DispatchType) and cls.__torch_dispatch__ is not disabled_torch_dispatch:
        dispatch_classes.add(cls)
        HOOKS.asks = True
        if getattr(cls.__torch_function__, "__func__", None) is default_torch_function:
            cls.__torch_function__ = disabled_torch_function  # results are what the dispatch gives, not made this class
        if cls.__torch_function__ is disabled_torch_function:
            return
    elif not issubclass(cls, DispatchType) and cls.__torch_function__ is disabled_torch_function:
        plain_classes.add(cls)
        HOOKS.plain_class_added(cls)
        return
    HOOKS.asks = True
    if issubclass(cls, DispatchType):
        _ask_methods(cls)
        return
    own = getattr(cls.__torch_function__, "__func__", None) is not default_torch_function
    defined = {
        name for each in cls.__mro__ if each not in plain_classes and each is not object for name in each.__dict__
    }
    for name, value in _plain_attributes():
        if name in defined:
            continue
        if isinstance(value, property):
            if own or name in _TENSOR_PROPERTIES:
                setattr(cls, name, _asking(value))
        elif own and _is_plain_method(name, value):
            setattr(cls, name, _asking_method(value))


def _ask_methods(cls: type[DispatchType]) -> None:
    """Let a dispatch type handle plain methods of Tensor and properties that are operators; facts such as `shape` come from its
    spec.
    """
    for name, value in _plain_attributes():
        if name in cls.__dict__ or any(
            name in each.__dict__ for each in cls.__mro__[1:] if each is not Tensor and issubclass(each, Tensor)
        ):
            continue
        if isinstance(value, property):
            if name in _TENSOR_PROPERTIES:
                setattr(cls, name, _asking_type(name, value))
        elif _is_plain_method(name, value):
            setattr(cls, name, _asking_method(value))


def _asking_type(name: str, plain: property) -> property:
    """A property that a dispatch type handles under the property's name."""

    def get(self: Any) -> Any:
        return ask_dispatch_types(get, [self], (self,), {})

    get.__name__ = name
    return property(get, plain.fset, plain.fdel, plain.__doc__)


def _is_plain_method(name: str, value: Any) -> bool:
    """Whether a method is plain Python that does not call overrides by itself, as operators and composites do."""
    if not isinstance(value, FunctionType) or hasattr(value, "operator") or hasattr(value, "__wrapped__"):
        return False
    return name in _ASKING_SPECIAL if name.startswith("_") else name not in ("view", "as_subclass")


_ASKING_SPECIAL = frozenset((
    "__array__", "__bool__", "__complex__", "__contains__", "__deepcopy__", "__dir__", "__dlpack__", "__dlpack_device__", "__float__", "__format__",
    "__index__", "__int__", "__len__", "__reduce_ex__", "__repr__", "__reversed__",
))  # fmt: skip


def _asking_method(plain: Any) -> Any:
    """A plain method of Tensor for a subclass with a `__torch_function__`: it calls the override."""

    again = _Again(plain)

    @functools.wraps(plain)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        # No override is called after this one
        last = len(STATE.function_modes) < 2 and (type(self) in plain_classes or not STATE.function_modes)
        handled, made = handle(plain if last else again, (self, *args), kwargs)
        return made if handled else plain(self, *args, **kwargs)

    return method


class _Again:
    """A plain function as overrides see it: equal to the function, and calling it goes on to the next override (an
    outer mode, the class of an argument).
    """

    __slots__ = ("__name__", "__self__", "asked")

    def __init__(self, asked: Any) -> None:
        self.asked, self.__name__, self.__self__ = asked, asked.__name__, getattr(asked, "__self__", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        handled, made = handle(self, args, kwargs)
        return made if handled else self.asked(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self.asked == (other.asked if isinstance(other, _Again) else other)

    def __hash__(self) -> int:
        return hash(self.asked)

    def __repr__(self) -> str:
        return repr(self.asked)


_TENSOR_PROPERTIES = frozenset(("T", "mT", "H", "mH", "real", "imag", "data"))


def _asking(plain: property) -> property:
    """A property of a subclass: its `__torch_function__` gets the getter, or the setter, of Tensor's own."""
    getter, setter = _Again(plain.__get__), _Again(plain.__set__)

    def get(self: Any) -> Any:
        return getter(self)

    def put(self: Any, value: Any) -> None:
        setter(self, value)

    return property(get, put if plain.fset is not None else None, plain.fdel, plain.__doc__)


# ***** function modes see what plain tensors are asked, too *****


class _Watched:
    """Replaces a property of Tensor while function modes are active; read from the class it is the property itself."""

    __slots__ = ("deleter", "getter", "plain", "setter")

    def __init__(self, plain: property) -> None:
        self.plain, self.getter, self.setter, self.deleter = (
            plain,
            _Again(plain.__get__),
            _Again(plain.__set__),
            _Again(plain.__delete__),
        )

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self.plain
        return self.getter(instance) if STATE.word & FUNCTION_MODE else self.plain.__get__(instance)

    def __set__(self, instance: Any, value: Any) -> None:
        (self.setter if STATE.word & FUNCTION_MODE else self.plain.__set__)(instance, value)

    def __delete__(self, instance: Any) -> None:
        (self.deleter if STATE.word & FUNCTION_MODE else self.plain.__delete__)(instance)


class _WatchedMethod:
    """Replaces a plain method of Tensor while function modes are active; read from the class it is the function itself."""

    __slots__ = ("asking", "plain")

    def __init__(self, plain: FunctionType) -> None:
        self.plain, self.asking = plain, _asking_method(plain)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self.plain
        return (self.asking if STATE.word & FUNCTION_MODE else self.plain).__get__(instance, owner)


class _Watch:
    """Installs the watched forms on Tensor while any thread has a function mode, so that they cost nothing otherwise.

    Each change of a class uses up one of its version tags, of which newer interpreters have a thousand: after
    `_CHANGES` changes the forms stay.
    """

    _CHANGES = 200

    def __init__(self) -> None:
        self.lock, self.modes, self.changes = free_after_fork(threading.RLock()), 0, 0
        self.forms: dict[str, Any] = {}

    def enter(self) -> None:
        """Note that a mode begins."""
        with self.lock:
            self.modes += 1
            if self.modes == 1 and not self.forms:
                self.changes += 1
                for name, value in list(Tensor.__dict__.items()):
                    if isinstance(value, property):
                        self.forms[name] = _Watched(value)
                    elif _is_plain_method(name, value):
                        self.forms[name] = _WatchedMethod(value)
                for name, form in self.forms.items():
                    setattr(Tensor, name, form)

    def leave(self) -> None:
        """Note that a mode ends."""
        with self.lock:
            self.modes -= 1
            if not self.modes and self.changes < self._CHANGES:
                for name, form in self.forms.items():
                    if Tensor.__dict__[name] is form:
                        setattr(Tensor, name, form.plain)
                self.forms.clear()


WATCH = _Watch()


def plain_attribute(name: str) -> Any:
    """The attribute of Tensor with this name, whether modes are active or not."""
    found: Any = Tensor.__dict__.get(name)
    return found.plain if isinstance(found, (_Watched, _WatchedMethod)) else found


def _plain_attributes() -> list[tuple[str, Any]]:
    return [(name, plain_attribute(name)) for name in Tensor.__dict__]


HOOKS.override = handle
HOOKS.subclass_added = _note_class
Tensor.__torch_function__ = classmethod(default_torch_function)  # type: ignore[attr-defined]
Tensor.__torch_dispatch__ = staticmethod(disabled_torch_dispatch)  # type: ignore[attr-defined]
